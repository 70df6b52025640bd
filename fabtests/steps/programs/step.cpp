// SPDX-License-Identifier: BSD-2-Clause
// step --talker PROGRAM --scenario NAME --fault none|kill|stop|stop-kill|signal|jump [--preload LIBRARY]
// [--buffer BYTES] [--every] [--pause MILLISECONDS] survey|POINT...: runs the two sides of a connection for each. A
// survey steps one of them through the scenario's stretch, instruction by instruction, and names its points. A point is
// gone to at full speed, and the fault happens there. What became of every byte is printed, as a line of JSON.
// fabtests/steps/inject.py is what people call.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"
#include "fabtests/steps/programs/order.hpp"
#include "fabtests/steps/programs/tracee.hpp"

namespace {

using namespace step;
using fabtest::must;

constexpr double kSettled = 0.04;   // seconds without a byte: the peer has done what it can
constexpr double kWaitsLong = 0.03; // in one system call: the reader is what it waits for

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// One pair of processes from its start to its end.
class Run
{
public:
    explicit Run(const Order &order);
    ~Run();
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    void go(const Point &point);
    void print(const char *point) const;

private:
    pid_t start(Role role) const;
    bool is_over() { return now() - began_ > order_.limit; }
    void reap(bool wait);
    bool wait_for_mark();
    pid_t find_thread() const;
    void survey(Tracee &tracee);
    void run_to(Tracee &tracee, const Point &point);
    bool goes_on(Tracee::Step state)
    {
        return state != Tracee::Step::kGone && state != Tracee::Step::kExec && !is_over() && !board_->finished;
    }
    void note_wait(double &since);
    void inject(Tracee &tracee);
    void cancel(Tracee &tracee);
    void wait_until_stopped(pid_t victim);
    void wait_until_settled();
    void wait_for_all();
    void judge();
    void judge_flow(Role sender);
    void judge_aside(Role sender);
    void say(const char *verdict, const std::string &detail);

    const Order &order_;
    Board *board_;
    const double began_ = now();
    pid_t pids_[2] = {};
    std::map<pid_t, int> ended_;
    bool killed_ = false, reached_ = false, alone_ = false; // alone_: nobody is left
    bool left_ = false;                                     // its stretch: it does nothing more than to end
    unsigned steps_ = 0;
    std::vector<std::string> points_;
    std::string where_, verdict_ = "ok", detail_;
};

Run::Run(const Order &order) : order_(order)
{
    const int fd = must(::memfd_create("step-board", 0), "memfd_create");
    must(::ftruncate(fd, sizeof(Board)), "ftruncate");
    must(::dup2(fd, kBoardFd), "dup2");
    ::close(fd);
    board_ = map_board(kBoardFd);
    board_->with_library = order.preload != nullptr;
    board_->buffer = order.buffer;
    board_->victim = order.scenario->victim;
    board_->handler = order.handler;
    for (unsigned role : {kWriter, kReader}) {
        board_->flows[role].wrong = board_->asides[role].wrong = -1;
        board_->flows[role].end = kOpen;
    }
}

Run::~Run()
{
    for (const pid_t pid : pids_)
        if (ended_.count(pid) == 0)
            ::kill(pid, SIGKILL);
    while (!alone_) { // children of theirs as well: they have come to this process
        std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
        for (pid_t child = 0; children >> child;)
            ::kill(child, SIGKILL);
        reap(false);
        ::usleep(100);
    }
    ::munmap(board_, sizeof *board_);
}

pid_t Run::start(Role role) const
{
    const pid_t pid = must(::fork(), "fork");
    if (pid != 0)
        return pid;
    ::personality(ADDR_NO_RANDOMIZE); // a place in the code is the same in the next run
    if (order_.preload != nullptr)
        ::setenv("LD_PRELOAD", order_.preload, 1);
    ::execl(order_.talker, order_.talker, role == kWriter ? "writer" : "reader", order_.scenario->name, nullptr);
    fabtest::die("%s: %s", order_.talker, strerrorname_np(errno));
}

void Run::reap(bool wait)
{
    int status = 0;
    pid_t pid;
    while ((pid = ::waitpid(-1, &status, wait ? 0 : WNOHANG)) > 0) {
        ended_[pid] = status;
        if (wait)
            break;
    }
    alone_ = pid < 0 && errno == ECHILD;
}

bool Run::wait_for_mark()
{
    while (board_->marked == 0) {
        reap(false);
        if (alone_ || board_->failed || is_over())
            return false;
        ::usleep(100);
    }
    return true;
}

void Run::note_wait(double &since)
{
    if (now() - since < kWaitsLong)
        return;
    board_->released = true;
    ++board_->rests;
    since = now();
}

// The library's own thread of the victim.
pid_t Run::find_thread() const
{
    const pid_t victim = pids_[order_.scenario->victim];
    if (order_.scenario->thread != Thread::kHelper)
        return victim;
    pid_t found = 0;
    std::error_code gone;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/" + std::to_string(victim) + "/task", gone)) {
        const pid_t thread = std::stoi(entry.path().filename());
        if (thread != victim && (found == 0 || thread < found))
            found = thread;
    }
    return found;
}

void Run::inject(Tracee &tracee)
{
    const pid_t victim = pids_[order_.scenario->victim];
    reached_ = true;
    where_ = tracee.where();
    left_ = board_->handler == kJumps || board_->handler == kCancels;
    if (board_->handler == kCancels) {
        cancel(tracee);
        return;
    }
    if (board_->handler != kNoHandler) {
        tracee.detach(SIGUSR1);
        return;
    }
    killed_ = order_.fault != Fault::kStop;
    if (order_.fault == Fault::kKill) {
        ::kill(victim, SIGKILL);
        tracee.forget();
        return;
    }
    ::kill(victim, SIGSTOP);
    tracee.detach();
    board_->rests = kNobodyCounts;
    wait_until_stopped(victim);
    board_->released = true;
    if (order_.fault == Fault::kStop) {
        const double until = now() + order_.pause_ms * 1e-3;
        while (now() < until)
            ::usleep(1000);
        ::kill(victim, SIGCONT);
        return;
    }
    wait_until_settled();
    ::kill(victim, SIGKILL);
}

// By a thread of its own process, while it stands at the point.
void Run::cancel(Tracee &tracee)
{
    tracee.let_others_go();
    board_->cancel = true;
    while (!board_->cancelled && !is_over())
        ::usleep(100);
    tracee.detach();
}

// An execve() undoes a stop that another thread of the process has begun (the kernel's zap_other_threads()), so it is
// asked again.
void Run::wait_until_stopped(pid_t victim)
{
    int status = 0;
    for (double asked = now(); !is_over(); ::usleep(100)) {
        const pid_t pid = ::waitpid(victim, &status, WUNTRACED | WNOHANG);
        if (pid == victim && !WIFSTOPPED(status))
            ended_[pid] = status;
        if (pid == victim || (pid < 0 && errno != EINTR))
            return;
        if (now() - asked < kSettled)
            continue;
        ::kill(victim, SIGSTOP);
        asked = now();
    }
}

// The other side goes on for as long as it can by itself.
void Run::wait_until_settled()
{
    std::uint64_t seen = 0;
    for (double since = now(); now() - since < kSettled && !is_over(); ::usleep(1000)) {
        const std::uint64_t progress =
            board_->flows[0].read + board_->flows[1].read + board_->flows[0].accepted + board_->flows[1].accepted;
        if (progress != seen || board_->returning != board_->returned)
            since = now();
        seen = progress;
    }
}

void Run::survey(Tracee &tracee)
{
    double since = now();
    for (Tracee::Step state = Tracee::Step::kStands; goes_on(state);) {
        if (state == Tracee::Step::kWaits) {
            note_wait(since);
            state = tracee.go_on();
            continue;
        }
        if (board_->begun && tracee.is_point(order_.every))
            points_.push_back(tracee.point());
        steps_ += board_->begun ? 1 : 0;
        since = now();
        const bool past = board_->computing && order_.scenario->thread == Thread::kMain;
        state = past ? tracee.run_to(board_->computed_at) : tracee.step();
    }
    tracee.detach();
}

void Run::run_to(Tracee &tracee, const Point &point)
{
    const std::uint64_t found = tracee.find(point.file, point.offset), place = found != 0 ? found : point.place;
    if (!tracee.set_breakpoint(place))
        say("failed", "no breakpoint");
    double since = now();
    unsigned times = 0;
    for (Tracee::Step state = tracee.run(); goes_on(state);) {
        if (state == Tracee::Step::kWaits) {
            note_wait(since);
            state = tracee.go_on();
            continue;
        }
        if (board_->begun && tracee.is_there() && ++times == point.time) {
            inject(tracee);
            return;
        }
        since = now();
        state = tracee.run();
    }
    tracee.detach();
}

void Run::go(const Point &point)
{
    const Scenario &scenario = *order_.scenario;
    pids_[kReader] = start(kReader);
    pids_[kWriter] = start(kWriter);
    if (wait_for_mark()) {
        const pid_t thread = find_thread();
        Tracee tracee(pids_[scenario.victim], thread);
        if (thread == 0 || !tracee.attach(is_new(scenario.thread)))
            say("failed", "no such thread");
        board_->go = true;
        if (verdict_ == "ok" &&
            (!is_new(scenario.thread) || tracee.follow_new_thread(scenario.thread == Thread::kNewLoader ? 1 : 2)))
            point.place == 0 ? survey(tracee) : run_to(tracee, point);
        tracee.detach();
        const std::map<pid_t, int> ended = tracee.ended();
        ended_.insert(ended.begin(), ended.end());
    }
    board_->rests = kNobodyCounts;
    board_->released = true;
    wait_for_all();
    judge();
}

void Run::wait_for_all()
{
    while (!alone_ && !is_over()) {
        reap(false);
        if (!alone_)
            ::usleep(200);
    }
}

void Run::say(const char *verdict, const std::string &detail)
{
    if (verdict_ == "ok" || verdict_ == "reset") // what was found first, a reset least of all
        verdict_ = verdict;
    detail_ += (detail_.empty() ? "" : "; ") + detail;
}

void Run::judge_flow(Role sender)
{
    const Flow &flow = board_->flows[sender];
    const Role reader = sender == kWriter ? kReader : kWriter;
    const std::string name = sender == kWriter ? "writer" : "reader";
    const std::string numbers = name + " began " + std::to_string(flow.begun) + ", sent " +
                                std::to_string(flow.accepted) + ", read " + std::to_string(flow.read) + ", end " +
                                (flow.end > 0    ? strerrorname_np(flow.end)
                                 : flow.end == 0 ? "EOF"
                                                 : "none");
    if (flow.wrong >= 0)
        say("doubled", "wrong byte at " + std::to_string(flow.wrong) + ", " + numbers);
    else if (flow.read > flow.begun)
        say("doubled", numbers);
    else if (flow.end == 0 && flow.read < flow.accepted)
        say("lost", numbers);
    else if ((killed_ || left_) && order_.scenario->victim == reader)
        return; // it can't say more
    else if (flow.end > 0)
        say("reset", numbers);
    else if (flow.send_error > 0 && flow.end != 0)
        say("reset", numbers + ", sending ended with " + strerrorname_np(flow.send_error));
    else if (flow.end == kOpen && sender == kWriter && std::strcmp(order_.scenario->name, "close_reader") != 0)
        say("unfinished", numbers);
}

// What a handler has sent, of which the reader has to have read all where it came to the end.
void Run::judge_aside(Role sender)
{
    const Flow &flow = board_->asides[sender];
    const std::string numbers =
        "a handler sent " + std::to_string(flow.accepted) + ", read " + std::to_string(flow.read);
    if (flow.wrong >= 0 || flow.read > flow.begun)
        say("doubled", numbers);
    else if (board_->flows[sender].end == 0 && flow.read < flow.accepted)
        say("lost", numbers);
}

void Run::judge()
{
    if (!alone_)
        say("hung", "not over after " + std::to_string(static_cast<int>(order_.limit)) + " s");
    if (board_->failed)
        say("failed", board_->why);
    for (const auto &[pid, status] : ended_) {
        const bool by_us = killed_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; // nobody else sends it
        if (status != 0 && !by_us)
            say(WIFSIGNALED(status) ? "crashed" : "failed",
                "process " + std::to_string(pid) + " ended with status " + std::to_string(status));
    }
    judge_flow(kWriter);
    judge_flow(kReader);
    judge_aside(kWriter);
    judge_aside(kReader);
}

void Run::print(const char *point) const
{
    sigset_t ticks; // they would cut off what is written
    ::sigemptyset(&ticks);
    ::sigaddset(&ticks, SIGALRM);
    ::sigaddset(&ticks, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &ticks, nullptr);
    std::string names;
    for (const std::string &name : points_)
        names += (names.empty() ? "\"" : ", \"") + name + "\"";
    std::printf("{\"point\": \"%s\", \"steps\": %u, \"reached\": %s, \"verdict\": \"%s\", \"seconds\": %.3f, "
                "\"where\": \"%s\", \"detail\": \"%s\", \"points\": [%s]}\n",
                point, steps_, reached_ ? "true" : "false", verdict_.c_str(), now() - began_, where_.c_str(),
                detail_.c_str(), names.c_str());
    std::fflush(stdout);
    ::sigprocmask(SIG_UNBLOCK, &ticks, nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    const Order order = read_options(argc, argv);
    must(::prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER");
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    start_ticking();
    for (int i = optind; i < argc; ++i) {
        Run run(order);
        run.go(point_of(argv[i]));
        run.print(argv[i]);
    }
    return 0;
}
