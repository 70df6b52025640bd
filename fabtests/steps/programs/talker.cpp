// SPDX-License-Identifier: BSD-2-Clause
// talker writer|reader SCENARIO [--heir FD]: one side of the stepped connection. It calls sockets as any program does;
// the step harness runs it with the library, without, and stops and kills it anywhere in its stretch.
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fabtests/steps/programs/handlers.hpp"
#include "fabtests/steps/programs/scenarios.hpp"
#include "fabtests/steps/programs/side.hpp"

namespace {

using namespace step;

constexpr std::size_t kMuch = 160000;   // more than a ring holds
constexpr std::size_t kSome = 20000;    // less
constexpr std::size_t kThrough = 40000; // read in a stretch
constexpr std::size_t kMore = 3000;     // behind the stretch
constexpr std::size_t kAnswer = 3000;   // of the reader, when it has read the end
constexpr timeval kWaits{0, 150000};    // a send that waits
constexpr int kRestMs = 3000;           // the most that is waited for the thread that is stepped

enum class End { kShutdown, kClose, kExit };

void finish(const Side &side, End end)
{
    if (end == End::kShutdown) {
        ::shutdown(side.fd, SHUT_WR);
        side.end_stretch();
        side.read_to_end();
    } else if (end == End::kClose) {
        ::close(side.fd);
        side.end_stretch();
    }
    std::exit(0);
}

Side as_child(Side side)
{
    side.child = true;
    return side;
}

// What the reader does in the end, whatever came before.
void read_all(const Side &side, bool answers)
{
    wait_for(side.board->released);
    side.read_to_end();
    if (answers && side.in().end == 0)
        side.send_all(kAnswer);
}

void pin(const Side &side)
{
    const int one = 1;
    ::setsockopt(side.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
}

// The reader gives the socket back to the kernel with bytes unread.
void fork_once()
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(0);
    ::waitpid(child, nullptr, 0);
}

// ---- the writer

void resend(const Side &side, End end)
{
    side.fill(kMuch);
    side.board->full = true;
    wait_for(side.board->returning);
    ::usleep(500); // what the peer says now stands in this side's queue
    side.begin_stretch();
    for (int i = 0; i < 6; ++i) {
        pollfd one{side.fd, POLLOUT, 0};
        ::poll(&one, 1, 2);
        side.send_some(1000, MSG_DONTWAIT);
    }
    finish(side, end);
}

// The library's thread has done all that the peer has given it to do. Nobody counts where it is not stepped.
void wait_for_rest(const Side &side)
{
    const unsigned seen = side.board->rests;
    for (int i = 0; i < kRestMs && side.is_victim() && seen != kNobodyCounts && side.board->rests == seen; ++i)
        ::usleep(1000);
}

void resend_by_helper(const Side &side)
{
    side.fill(kMuch);
    side.board->full = true;
    side.begin_stretch();
    wait_for(side.board->returned);
    wait_for_rest(side);
    side.end_stretch();
    finish(side, End::kShutdown);
}

void send_waiting(const Side &side)
{
    ::setsockopt(side.fd, SOL_SOCKET, SO_SNDTIMEO, &kWaits, sizeof kWaits);
    side.fill(kMuch);
    side.board->full = true;
    if (!side.is_victim())
        wait_for(side.board->begun);
    side.begin_stretch();
    side.send_some(5000, 0);
    side.board->asked = true;
    finish(side, End::kShutdown);
}

void end_with_unread(const Side &side, End end)
{
    side.fill(kSome);
    side.board->full = true;
    side.begin_stretch();
    finish(side, end);
}

void send_and_end(const Side &side)
{
    side.board->full = true;
    side.send_all(kThrough);
    finish(side, End::kShutdown);
}

void send_until_error(const Side &side)
{
    side.fill(kSome);
    side.board->full = true;
    wait_for(side.board->released);
    while (side.send_all(kMore))
        ;
}

void send_on(const Side &side) // the reader's stretch is over
{
    side.fill(kSome);
    side.board->full = true;
    wait_for(side.board->released);
    if (side.send_all(kMore))
        finish(side, End::kShutdown);
}

void fork_writer(const Side &side)
{
    side.fill(kSome);
    side.begin_stretch();
    const pid_t child = ::fork();
    if (child == 0) {
        as_child(side).send_all(kMore);
        ::_exit(0);
    }
    side.end_stretch();
    ::waitpid(child, nullptr, 0);
    if (side.out().send_error == 0 && side.send_all(kMore))
        finish(side, End::kShutdown);
}

void start_again(const Side &side, char *program, const char *scenario)
{
    const std::string fd = std::to_string(side.fd);
    const char *const argv[] = {program, side.role == kWriter ? "writer" : "reader", scenario, "--heir", fd.c_str(),
                                nullptr};
    side.begin_stretch();
    ::execv("/proc/self/exe", const_cast<char **>(argv));
    fail(side.board, "execv: %s", strerrorname_np(errno));
}

void pin_writer(const Side &side)
{
    side.fill(kSome);
    side.begin_stretch();
    pin(side);
    side.end_stretch();
    if (side.send_all(kMore))
        finish(side, End::kShutdown);
}

void send_with_room(const Side &side)
{
    side.begin_stretch();
    for (int i = 0; i < 3; ++i)
        side.send_some(700, 0);
    finish(side, End::kShutdown);
}

void connect_stepped(Side &side)
{
    side.begin_stretch();
    side.connect();
    side.end_stretch();
}

void write_scenario(Side &side, const std::string &name, char *program)
{
    name == "connect" ? connect_stepped(side) : side.connect();
    const bool offloading = name.rfind("offload_", 0) == 0;
    if (offloading)
        side.begin_stretch();
    side.talk();
    if (offloading) {
        side.end_stretch();
        if (side.send_all(kSome))
            finish(side, End::kShutdown);
    } else if (name == "send") {
        send_with_room(side);
    } else if (name == "resend_shutdown" || name == "resend_pin") {
        resend(side, End::kShutdown);
    } else if (name == "resend_close") {
        resend(side, End::kClose);
    } else if (name == "resend_exit") {
        resend(side, End::kExit);
    } else if (name == "resend_helper") {
        resend_by_helper(side);
    } else if (name == "ask" || name == "ask_helper") {
        send_waiting(side);
    } else if (name == "end_shutdown") {
        end_with_unread(side, End::kShutdown);
    } else if (name == "end_close") {
        end_with_unread(side, End::kClose);
    } else if (name == "end_exit") {
        end_with_unread(side, End::kExit);
    } else if (name == "read_end") {
        send_and_end(side);
    } else if (name == "close_reader") {
        send_until_error(side);
    } else if (name == "fork_writer") {
        fork_writer(side);
    } else if (name == "exec_writer") {
        side.fill(kSome);
        start_again(side, program, name.c_str());
    } else if (name == "pin_writer") {
        pin_writer(side);
    } else {
        send_on(side);
    }
}

// ---- the reader

// Gives the socket back to the kernel, with bytes unread.
void read_after_return(const Side &side, const std::string &name)
{
    wait_for(side.board->full);
    if (name == "resend_helper") // nothing else is the stretch
        wait_for(side.board->begun);
    side.board->returning = true;
    name == "resend_pin" ? pin(side) : fork_once();
    side.board->returned = true;
}

void fork_reader(const Side &side)
{
    const pid_t child = ::fork();
    if (child == 0) {
        const Side mine = as_child(side);
        mine.read_to_end();
        if (mine.in().end == 0)
            mine.send_all(kAnswer);
        ::_exit(0);
    }
    side.end_stretch();
    ::waitpid(child, nullptr, 0);
}

void read_by_epoll(const Side &side)
{
    const int set = ::epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(set, EPOLL_CTL_ADD, side.fd, &event);
    for (;;) {
        if (::epoll_wait(set, &event, 1, -1) == 1 && !side.receive_some(3000))
            break;
    }
    ::close(set);
}

void read_by_poll(const Side &side)
{
    pollfd one{side.fd, POLLIN, 0};
    while (::poll(&one, 1, -1) != 1 || side.receive_some(3000))
        ;
}

void read_stepped(const Side &side, const std::string &name, char *program)
{
    wait_for(side.board->full);
    if (name == "exec_reader")
        start_again(side, program, name.c_str());
    side.begin_stretch();
    if (name == "ask_helper") {
        wait_for(side.board->asked);
        wait_for_rest(side);
    } else if (name == "pin_reader")
        pin(side);
    else if (name == "read_end")
        side.read_to_end();
    else if (name == "epoll_reader")
        read_by_epoll(side);
    else if (name == "poll_reader")
        read_by_poll(side);
    else if (name == "fork_past") {
        fork_once();
        side.read_to_end();
    } else if (name == "close_reader")
        ::close(side.fd);
    else
        fork_reader(side);
    side.end_stretch();
}

void read_scenario(Side &side, const std::string &name, char *program)
{
    if (name == "accept")
        side.begin_stretch();
    side.accept();
    if (name == "accept")
        side.end_stretch();
    const bool offloading = name.rfind("offload_", 0) == 0;
    if (offloading)
        side.begin_stretch();
    side.talk();
    if (offloading)
        side.end_stretch();
    else if (name.rfind("resend_", 0) == 0)
        read_after_return(side, name);
    else if (side.is_victim() && name != "accept")
        read_stepped(side, name, program);
    const bool closed_there =
        name == "resend_close" || name == "resend_exit" || name == "end_close" || name == "end_exit";
    if (name != "close_reader")
        read_all(side, !closed_there && name != "fork_reader");
}

} // namespace

// argv: writer|reader SCENARIO [--heir FD]
int main(int argc, char **argv)
{
    Side side{map_board(kBoardFd), argc > 1 && std::strcmp(argv[1], "writer") == 0 ? kWriter : kReader};
    if (side.board == nullptr || argc < 3 || find_scenario(argv[2]) == nullptr)
        return 2;
    if (argc == 5) {
        side.fd = std::atoi(argv[4]);
        side.connected = true;
        side.child = true;
        if (side.role == kReader)
            read_all(side, true);
        else if (side.send_all(kMore))
            finish(side, End::kShutdown);
        return 0;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    install(side);
    if (sigsetjmp(g_way_out, 1) != 0)
        go_on_behind_jump();
    side.role == kWriter ? write_scenario(side, argv[2], argv[0]) : read_scenario(side, argv[2], argv[0]);
    return 0;
}
