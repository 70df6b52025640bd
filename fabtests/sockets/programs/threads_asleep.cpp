// SPDX-License-Identifier: BSD-2-Clause
// Many threads of the server wait each for a connection of its own, by recv(), poll() or epoll_wait(), and one of them is talked to: the others
// sleep on. The kernel has counted how often each was given a processor.
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

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr std::size_t kThreads = 24;
constexpr int kRounds = 400;

enum class Way { kReceive, kPoll, kEpoll };

struct Waiter {
    int fd = -1;
    int set = -1;
    std::atomic<pid_t> task{0};
    std::thread thread;
};

void wait_for_input(const Waiter &w, Way way)
{
    epoll_event event = {};
    pollfd one = {w.fd, POLLIN, 0};
    if (way == Way::kPoll)
        must(::poll(&one, 1, -1), "poll");
    if (way == Way::kEpoll)
        must(::epoll_wait(w.set, &event, 1, -1), "epoll_wait");
}

void echo(Waiter &w, Way way)
{
    char block[64];
    w.task = static_cast<pid_t>(::syscall(SYS_gettid));
    for (;;) {
        wait_for_input(w, way);
        const ssize_t n = ::recv(w.fd, block, sizeof block, 0);
        if (n <= 0)
            return;
        send_all(w.fd, block, static_cast<std::size_t>(n));
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

// Of all but the first, once they sleep.
unsigned long turns_of_others(const std::array<Waiter, kThreads> &waiters)
{
    unsigned long turns = 0;
    for (std::size_t i = 1; i < kThreads; ++i) {
        Seen seen;
        while (waiters[i].task == 0 || (seen = look_at(waiters[i].task)).state != 'S')
            std::this_thread::yield();
        turns += seen.turns;
    }
    return turns;
}

void serve(Peer &me, Way way)
{
    static std::array<Waiter, kThreads> waiters;
    for (Waiter &w : waiters) {
        w.fd = me.connect_plain();
        if (way == Way::kEpoll) {
            epoll_event event = {};
            event.events = EPOLLIN;
            w.set = must(::epoll_create1(0), "epoll_create1");
            must(::epoll_ctl(w.set, EPOLL_CTL_ADD, w.fd, &event), "epoll_ctl");
        }
        me.lift(w.fd);
        w.thread = std::thread([&w, way] { echo(w, way); });
    }
    me.step(); // each has been talked to
    const unsigned long before = turns_of_others(waiters);
    me.step();
    me.step(); // and now the first
    const unsigned long woken = turns_of_others(waiters) - before;
    std::printf("%lu turns of %zu others in %d rounds of one\n", woken, kThreads - 1, kRounds);
    if (woken > 2 * kThreads) // who was seen asleep may have been so on a lock
        die("threads wake for what is another's");
    me.step();
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

void talk(Peer &me)
{
    std::array<int, kThreads> fds = {};
    for (int &fd : fds) {
        fd = me.connect_plain();
        me.lift(fd);
    }
    for (const int fd : fds)
        ask(fd, 10);
    me.step();
    me.step();
    ask(fds[0], kRounds);
    me.step();
    me.step();
    for (const int fd : fds)
        ::close(fd);
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    const char *const way = argc == 2 ? argv[1] : "";
    me.open_listener();
    if (!me.server)
        talk(me);
    else if (std::strcmp(way, "recv") == 0)
        serve(me, Way::kReceive);
    else if (std::strcmp(way, "poll") == 0)
        serve(me, Way::kPoll);
    else if (std::strcmp(way, "epoll") == 0)
        serve(me, Way::kEpoll);
    else
        die("usage: threads_asleep recv|poll|epoll");
    return 0;
}
