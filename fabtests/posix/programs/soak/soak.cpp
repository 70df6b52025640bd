// SPDX-License-Identifier: BSD-2-Clause
// soak --ledger FILE --preload LD_PRELOAD [--seed N] [--seconds N] [--without OPERATION,...] [--break SENDS]: eight
// processes, each with or without the library, that open, connect, send, fork, dup, pass and close at random, while
// this one stops, kills and replaces them. Every byte is checked, and at the end nothing is left. It runs in a network
// namespace of its own where it may, and needs none of the library itself.
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/posix/programs/soak/soak.hpp"
#include "fabtests/posix/programs/soak/worker.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace soak;
using fabtest::must;

// Microseconds in one operation, more than any wait in it has: somebody waits for ever.
const std::uint64_t kHangs = 2 * static_cast<std::uint64_t>(patience::nanoseconds()) / 1000;

struct Options {
    const char *ledger = nullptr;
    const char *preload = "";
    const char *without = "";
    std::uint64_t seed = 1;
    int breaks = 0;
    unsigned seconds = 10;
};

class Driver
{
public:
    Driver(char *program, const Options &options) : program_(program), options_(options), random_(options.seed) {}

    int run();

private:
    void start(unsigned index);
    void disturb();
    void stop(pid_t pid);
    void stop_for_long(pid_t pid);
    void let_go_on(bool all);
    void kill(pid_t pid, int worker);
    bool reap(bool going); // false: there are no children
    void end_all();
    void watch();
    void end_in_steps();
    void check_segments() const;
    void print_totals() const;
    void failed(const std::string &what);

    char *program_;
    Options options_;
    fabtest::Random random_;
    pid_t workers_[kWorkers] = {};
    std::set<pid_t> ours_;
    const std::time_t began_ = std::time(nullptr);
    struct Seen {
        pid_t pid;
        std::uint64_t count;
        std::uint32_t since;
    } seen_[kWorkers + kChildren] = {};
    unsigned ended_ = 0;
    std::map<pid_t, std::uint32_t> stopped_; // workers, and until when
};

void sleep_ms(unsigned milliseconds)
{
    ::usleep(milliseconds * 1000);
}

void own_network()
{
    if (::unshare(CLONE_NEWNET) != 0)
        return; // no superuser: the host's loopback
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    must(::ioctl(fd, SIOCSIFFLAGS, &lo), "lo up");
    ::close(fd);
}

// A user has 1,024 as a rule, and root in a container more. Workers inherit it.
void allow_descriptors()
{
    rlimit limit{};
    must(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, kDescriptors);
    must(::setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
}

bool is_stopped(pid_t pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t end = text.rfind(')');
    return end == std::string::npos || (text[end + 2] != 'R' && text[end + 2] != 'S' && text[end + 2] != 'D');
}

// Each worker draws anew, whenever it is started: the library or not, its profile, how soon it accelerates.
void Driver::start(unsigned index)
{
    std::vector<std::string> environment;
    for (char **entry = environ; *entry != nullptr; ++entry)
        if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0 && std::strncmp(*entry, "VMA_SPEC=", 9) != 0)
            environment.emplace_back(*entry);
    const bool vma = random_.below(4) != 0, latency = random_.below(2) != 0, soon = random_.below(2) != 0;
    const bool rests = random_.below(3) == 0; // what carries nothing for a moment goes back to the kernel
    if (vma)
        environment.push_back(std::string("LD_PRELOAD=") + options_.preload);
    if (latency)
        environment.emplace_back("VMA_SPEC=latency");
    if (soon)
        environment.emplace_back("VMA_LIFT_AFTER=4");
    if (rests) {
        environment.emplace_back("VMA_IDLE_STREAMS=0");
        environment.emplace_back("VMA_IDLE_MSEC=20");
    }
    std::vector<char *> pointers;
    pointers.reserve(environment.size() + 1);
    for (std::string &entry : environment)
        pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    const std::string number = std::to_string(index), seed = std::to_string(random_.next());
    const char *argv[] = {program_,     "--worker", options_.ledger,  number.c_str(),
                          seed.c_str(), "",         options_.preload, nullptr};
    std::printf("%10u us: worker %u %s%s%s%s\n", since_start_us(), index, vma ? "with the library" : "without",
                vma && latency ? ", latency" : "", vma && soon ? ", soon" : "", vma && rests ? ", rests" : "");
    if (const int error =
            ::posix_spawn(&workers_[index], program_, nullptr, nullptr, const_cast<char **>(argv), pointers.data()))
        fabtest::die("posix_spawn: %s", strerrorname_np(error));
    ours_.insert(workers_[index]);
}

// SIGSTOP, and a while later SIGCONT.
void Driver::stop(pid_t pid)
{
    ++g_ledger->totals.stops;
    ::kill(pid, SIGSTOP);
    sleep_ms(static_cast<unsigned>(random_.below(100)) + 1);
    ::kill(pid, SIGCONT);
}

// Seconds, while everybody else goes on. let_go_on() ends it.
void Driver::stop_for_long(pid_t pid)
{
    ++g_ledger->totals.long_stops;
    ::kill(pid, SIGSTOP);
    stopped_[pid] = since_start_us() + 500000 + static_cast<std::uint32_t>(random_.below(2500000));
}

void Driver::let_go_on(bool all)
{
    std::erase_if(stopped_, [all](const auto &one) {
        const bool over = all || since_start_us() > one.second;
        return over && ::kill(one.first, SIGCONT) <= 0;
    });
}

// Wherever it is. Stopped first, so that what it holds stands still while that is written down.
void Driver::kill(pid_t pid, int worker)
{
    ++g_ledger->totals.kills;
    ::kill(pid, SIGSTOP);
    while (!is_stopped(pid))
        ::usleep(200);
    mark_dead(pid, worker);
    ::kill(pid, SIGKILL);
    if (worker < 0)
        return;
    stopped_.erase(pid);
    must(::waitpid(pid, nullptr, 0), "waitpid");
    start(static_cast<unsigned>(worker));
}

void Driver::disturb()
{
    const std::size_t choice = random_.below(12);
    const auto index = static_cast<unsigned>(random_.below(kWorkers));
    const pid_t child = g_ledger->doing[kWorkers + random_.below(kChildren)].pid;
    if (choice == 0)
        kill(workers_[index], static_cast<int>(index));
    else if (choice < 3)
        stop(workers_[index]);
    else if (choice == 3 && stopped_.size() < 2 && std::strstr(options_.without, "long stops") == nullptr)
        stop_for_long(workers_[index]);
    else if (child != 0 && !is_dead(child))
        choice < 7 ? kill(child, -1) : stop(child);
}

void Driver::failed(const std::string &what)
{
    if (g_ledger->failing.exchange(true))
        return;
    std::fprintf(stderr, "soak: FAILED, seed %llu: %s\n", static_cast<unsigned long long>(options_.seed), what.c_str());
    g_ledger->failed = true;
}

// Children of killed workers come to this process too.
bool Driver::reap(bool going)
{
    int status = 0;
    pid_t pid;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
        ours_.insert(pid);
        // Who fails says so itself (fail()); a shell whose worker was killed may end with an error.
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGPIPE)
            failed("process " + std::to_string(pid) + " ended with status " + std::to_string(status));
        for (unsigned i = 0; i < kWorkers; ++i) {
            if (workers_[i] != pid)
                continue;
            workers_[i] = 0;
            ++ended_;
            if (going || status != 0)
                failed("worker " + std::to_string(i) + " ended by itself with status " + std::to_string(status));
        }
    }
    return pid == 0;
}

// After a failure: everything that is below this process.
void Driver::end_all()
{
    while (::waitpid(-1, nullptr, WNOHANG) >= 0) {
        std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
        for (pid_t child = 0; children >> child;)
            ::kill(child, SIGKILL);
        sleep_ms(1);
    }
}

// A process that is in one operation for very long.
void Driver::watch()
{
    for (unsigned i = 0; i < kWorkers + kChildren; ++i) {
        const Doing &d = g_ledger->doing[i];
        const pid_t pid = d.pid;
        if (pid == 0 || pid != seen_[i].pid || d.count != seen_[i].count || is_dead(pid)) {
            seen_[i] = {pid, d.count, since_start_us()};
            continue;
        }
        const bool idle = std::strcmp(d.operation, "wait for the others") == 0; // one of them is what hangs
        if (since_start_us() - seen_[i].since < (idle ? 2 * kHangs : kHangs))
            continue;
        std::ifstream waits("/proc/" + std::to_string(pid) + "/wchan");
        std::string where;
        std::getline(waits, where);
        if (std::getenv("SOAK_KEEP") != nullptr && std::printf("%d hangs\n", pid) > 0)
            ::pause(); // for a debugger
        show_sockets("| grep -A 1 'pid=" + std::to_string(pid) + ",'");
        if (::fork() == 0)
            fail(d.stream, "process %d hangs (in %s) in: %s", pid, where.c_str(), d.operation);
        while (!g_ledger->failed)
            sleep_ms(1);
    }
}

void Driver::end_in_steps()
{
    for (unsigned phase = kNothingNew; phase <= kReadToTheEnd + 1; ++phase) {
        g_ledger->phase = phase;
        for (bool all = false; !all && !g_ledger->failed;) {
            all = true;
            for (const WorkerEntry &worker : g_ledger->workers)
                all = all && worker.reached >= phase;
            reap(false);
            watch();
            sleep_ms(5);
            if (phase > kReadToTheEnd)
                all = ended_ == kWorkers;
        }
    }
    while (!g_ledger->failed && reap(false)) {
        watch(); // children of killed workers, until none is left
        sleep_ms(5);
    }
}

// Whose holders were all killed: the next process that uses the shared directory removes it (lib/shared_dir.py looks
// whether it does).
bool is_left_to_the_next(long key)
{
    const char *const directory = std::getenv("VMA_SHM_DIR");
    std::error_code none;
    for (const auto &entry :
         std::filesystem::directory_iterator(std::string(directory != nullptr ? directory : "") + "/unread", none)) {
        const std::string target = std::filesystem::read_symlink(entry.path(), none);
        if (target.rfind("shm." + std::to_string(key) + ".", 0) == 0)
            return true;
    }
    return false;
}

// System V segments of our processes.
void Driver::check_segments() const
{
    std::ifstream file("/proc/sysvipc/shm");
    std::string line;
    for (std::getline(file, line); std::getline(file, line);) {
        long key = 0, id = 0, mode = 0, size = 0, creator = 0, other = 0, made = 0;
        std::istringstream fields(line);
        fields >> key >> id >> mode >> size >> creator;
        for (int skipped = 0; skipped < 8; ++skipped) // lpid to dtime
            fields >> other;
        fields >> made;
        if (made >= began_ && !is_left_to_the_next(key) &&
            ours_.count(static_cast<pid_t>(creator)) != 0) { // else the process that made it is long gone
            std::fprintf(stderr, "soak: FAILED, seed %llu: a shared segment is left: %s\n",
                         static_cast<unsigned long long>(options_.seed), line.c_str());
            g_ledger->failed = true;
        }
    }
}

void Driver::print_totals() const
{
    const Totals &t = g_ledger->totals;
    const auto number = [](const std::atomic<std::uint64_t> &value) { return static_cast<unsigned long long>(value); };
    std::printf("seed %llu: %u streams, %llu bytes, %llu ends, %llu resets; %llu of %llu datagrams; ",
                static_cast<unsigned long long>(options_.seed), g_ledger->next_stream.load(), number(t.bytes),
                number(t.ends), number(t.resets), number(t.datagrams_read), number(t.datagrams_sent));
    std::printf("%llu forks, %llu execs, %llu programs with sockets, %llu fast opens, %llu descriptors passed; ",
                number(t.forks), number(t.execs), number(t.spawns), number(t.fast_opens), number(t.passes));
    std::printf("%llu kills, %llu stops, %llu for seconds\n", number(t.kills), number(t.stops), number(t.long_stops));
}

int Driver::run()
{
    own_network();
    allow_descriptors();
    must(::prctl(PR_SET_CHILD_SUBREAPER, 1), "PR_SET_CHILD_SUBREAPER");
    for (unsigned i = 0; i < kWorkers; ++i)
        start(i);
    while (since_start_us() < options_.seconds * 1000000 && !g_ledger->failing) {
        sleep_ms(static_cast<unsigned>(random_.below(100)));
        if (std::strstr(options_.without, "disturb") == nullptr)
            disturb();
        let_go_on(false);
        reap(true);
        watch();
    }
    let_go_on(true);
    end_in_steps();
    while (g_ledger->failing && !g_ledger->failed)
        sleep_ms(1);
    g_ledger->failed ? end_all() : check_segments();
    print_totals();
    return g_ledger->failed ? 1 : 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 7 && (std::strcmp(argv[1], "--worker") == 0 || std::strcmp(argv[1], "--heir") == 0 ||
                      std::strcmp(argv[1], "--spawned") == 0))
        return work(argv);
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--ledger")
            options.ledger = argv[i + 1];
        else if (name == "--preload")
            options.preload = argv[i + 1];
        else if (name == "--without")
            options.without = argv[i + 1];
        else if (name == "--break")
            options.breaks = std::atoi(argv[i + 1]);
        else if (name == "--seed")
            options.seed = std::strtoull(argv[i + 1], nullptr, 0);
        else if (name == "--seconds")
            options.seconds = static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 0));
        else
            fabtest::die("no option %s", argv[i]);
    }
    if (options.ledger == nullptr)
        fabtest::die("soak --ledger FILE --preload LIBRARIES [--seed N] [--seconds N]");
    make_ledger(options.ledger, options.seed);
    g_ledger->breaks = options.breaks;
    g_ledger->seconds = options.seconds;
    std::snprintf(g_ledger->without, sizeof g_ledger->without, "%s,", options.without);
    char self[PATH_MAX];
    if (::realpath("/proc/self/exe", self) == nullptr)
        fabtest::die("/proc/self/exe: %s", strerrorname_np(errno));
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return Driver(self, options).run();
}
