// SPDX-License-Identifier: BSD-2-Clause
// Many threads of the server wait each for a socket of its own, by recv(), poll() alone or beside another socket, or
// epoll_wait(), and one of them is talked to: the others sleep on. The kernel has counted how often each was given a
// processor, in one round after the other: a fault wakes somebody in each.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr std::size_t kThreads = 24;
constexpr int kRounds = 20; // in a row, in which nobody else woke
constexpr int kAsked = 10;  // times in each

enum class Way { kReceive, kPoll, kPollTwo, kEpoll };

struct Waiter {
    int fd = -1;
    int idle = -1; // nothing comes for it
    int set = -1;
    std::atomic<pid_t> task{0};
    std::thread thread;
};

void wait_for_input(const Waiter &w, Way way)
{
    epoll_event event = {};
    pollfd two[] = {{w.fd, POLLIN, 0}, {w.idle, POLLIN, 0}};
    if (way == Way::kPoll || way == Way::kPollTwo)
        must(::poll(two, way == Way::kPoll ? 1 : 2, -1), "poll");
    if (way == Way::kEpoll)
        must(::epoll_wait(w.set, &event, 1, -1), "epoll_wait");
}

void echo(Waiter &w, Way way)
{
    char block[64];
    w.task = static_cast<pid_t>(::syscall(SYS_gettid));
    for (;;) {
        wait_for_input(w, way);
        sockaddr_storage from;
        socklen_t size = sizeof from;
        const ssize_t n = ::recvfrom(w.fd, block, sizeof block, 0, reinterpret_cast<sockaddr *>(&from), &size);
        if (n <= 0)
            return;
        if (size == 0)
            send_all(w.fd, block, static_cast<std::size_t>(n));
        else
            must(static_cast<int>(
                     ::sendto(w.fd, block, static_cast<std::size_t>(n), 0, reinterpret_cast<sockaddr *>(&from), size)),
                 "sendto");
    }
}

struct Seen {
    char state = '?';
    unsigned long turns = 0; // on a processor
};

Seen look_at(pid_t task)
{
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    std::FILE *const file = std::fopen(path, "re");
    if (file == nullptr)
        die("%s can't be read", path);
    Seen seen;
    char line[256];
    unsigned long count = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::strncmp(line, "State:", 6) == 0)
            seen.state = line[7];
        if (std::sscanf(line, "voluntary_ctxt_switches: %lu", &count) == 1 ||
            std::sscanf(line, "nonvoluntary_ctxt_switches: %lu", &count) == 1)
            seen.turns += count;
    }
    std::fclose(file);
    return seen;
}

using Turns = std::array<unsigned long, kThreads>;

// Of all but the first, once they sleep.
Turns turns_of_others(const std::array<Waiter, kThreads> &waiters)
{
    Turns turns = {};
    for (std::size_t i = 1; i < kThreads; ++i) {
        Seen seen;
        while (waiters[i].task == 0 || (seen = look_at(waiters[i].task)).state != 'S')
            std::this_thread::yield();
        turns[i] = seen.turns;
    }
    return turns;
}

// On both sides: a connection, or a socket of which the client knows the address.
int open_socket(Peer &me, bool udp)
{
    if (!udp)
        return me.connect_plain();
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    sockaddr_in at = {};
    socklen_t size = sizeof at;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto *const generic = reinterpret_cast<sockaddr *>(&at);
    if (me.server) {
        must(::bind(fd, generic, size), "bind");
        must(::getsockname(fd, generic, &size), "getsockname");
        me.tell(at.sin_port);
        return fd;
    }
    at.sin_port = static_cast<in_port_t>(me.hear());
    must(::connect(fd, generic, size), "connect");
    return fd;
}

// On both sides: all are accelerated. What a client sends by UDP can only be so where its receiver is.
bool both_offloaded(const Peer &me, bool udp, const std::array<int, kThreads> &fds)
{
    return me.both((udp && me.server) ||
                   std::all_of(fds.begin(), fds.end(), [&me](int fd) { return me.is_offloaded(fd); }));
}

[[noreturn]] void end_awake(const Turns &turns, int rounds)
{
    for (std::size_t i = 1; i < kThreads; ++i)
        std::printf("thread %zu: %lu turns in %d rounds of another\n", i, turns[i], rounds);
    std::fflush(stdout);
    die("threads wake for what is another's");
}

// The first is talked to. Who was seen asleep before may have been so on a lock, and a busy machine has more turns:
// there are rounds in which nobody woke all the same.
void see_others_sleep(const Peer &me, const std::array<Waiter, kThreads> &waiters)
{
    const Turns first = turns_of_others(waiters);
    Turns before = first;
    int rounds = 0;
    int in_a_row = 0;
    for (const patience::Deadline deadline; in_a_row < kRounds; ++rounds) {
        me.tell(1);
        me.hear();
        Turns turns = turns_of_others(waiters);
        in_a_row = turns == before ? in_a_row + 1 : 0;
        before = turns;
        if (in_a_row < kRounds && deadline.over()) {
            for (std::size_t i = 0; i < kThreads; ++i)
                turns[i] -= first[i];
            end_awake(turns, rounds + 1);
        }
    }
    std::printf("%d rounds\n", rounds);
    me.tell(0);
}

void serve(Peer &me, Way way, bool udp)
{
    static std::array<Waiter, kThreads> waiters;
    std::array<int, kThreads> fds = {};
    std::size_t count = 0;
    for (Waiter &w : waiters) {
        w.fd = fds[count++] = open_socket(me, udp);
        w.idle = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
        if (way == Way::kEpoll) {
            epoll_event event = {};
            event.events = EPOLLIN;
            w.set = must(::epoll_create1(0), "epoll_create1");
            must(::epoll_ctl(w.set, EPOLL_CTL_ADD, w.fd, &event), "epoll_ctl");
        }
        w.thread = std::thread([&w, way] { echo(w, way); });
    }
    do
        me.step(); // each has been talked to
    while (!both_offloaded(me, udp, fds));
    see_others_sleep(me, waiters);
    for (Waiter &w : waiters)
        w.thread.join();
}

void ask(int fd, int rounds)
{
    char byte = 'x';
    for (int i = 0; i < rounds; ++i) {
        send_all(fd, &byte, 1);
        receive_all(fd, &byte, 1);
    }
}

void talk(Peer &me, bool udp)
{
    std::array<int, kThreads> fds = {};
    for (int &fd : fds)
        fd = open_socket(me, udp);
    do {
        for (const int fd : fds)
            ask(fd, 10);
        me.step();
    } while (!both_offloaded(me, udp, fds));
    while (me.hear() != 0) {
        ask(fds[0], kAsked);
        me.tell(0);
    }
    for (const int fd : fds) {
        if (udp)
            must(static_cast<int>(::send(fd, nullptr, 0, 0)), "send");
        ::close(fd);
    }
}

} // namespace

int main(int argc, char **argv)
{
    static constexpr struct {
        const char *name;
        Way way;
    } kWays[] = {{"recv", Way::kReceive}, {"poll", Way::kPoll}, {"poll_two", Way::kPollTwo}, {"epoll", Way::kEpoll}};
    Peer me = parse_peer(&argc, argv);
    const bool udp = argc == 3 && std::strcmp(argv[2], "udp") == 0;
    const auto *const chosen = std::find_if(std::begin(kWays), std::end(kWays), [&](const auto &one) {
        return argc == 3 && std::strcmp(argv[1], one.name) == 0;
    });
    if (chosen == std::end(kWays) || (!udp && std::strcmp(argv[2], "tcp") != 0))
        die("usage: threads_asleep recv|poll|poll_two|epoll tcp|udp");
    me.open_listener();
    if (me.server)
        serve(me, chosen->way, udp);
    else
        talk(me, udp);
    return 0;
}
