// SPDX-License-Identifier: BSD-2-Clause
// epoll sets as a whole: fairness, several sets on one connection, nested sets, threads that wait in one set, and what
// happens to registrations when descriptors are closed, copied and inherited.
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "fabtests/sockets/programs/semantics/epolling.hpp"

namespace {

using namespace fabtest;

constexpr std::uint64_t kLarge = 0xfedcba9876543210U;

} // namespace

// With room for one event, every ready descriptor has its turn.
SCENARIO(epoll_fair)
{
    const int second = me.connection(), third = me.connection();
    if (me.server) {
        for (const int fd : {me.fd, second, third})
            send_text(fd, "x");
        me.step();
        return;
    }
    const int set = new_set();
    std::uint64_t number = 0;
    for (const int fd : {me.fd, second, third}) {
        await_readable(fd, 1);
        must(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, ++number), "add");
    }
    unsigned seen[4] = {};
    for (int i = 0; i < 30; ++i) {
        epoll_event event;
        if (must(::epoll_wait(set, &event, 1, 1000), "epoll_wait") == 1)
            ++seen[event.data.u64 & 3];
    }
    me.say("all had a turn: %s", seen[1] > 0 && seen[2] > 0 && seen[3] > 0 ? "yes" : "no");
    me.step();
}

// Half of what is in the set is the kernel's: pipes, a timer, a signal's descriptor. All are ready all the time.
SCENARIO(epoll_busy_with_others)
{
    constexpr unsigned kSockets = 4, kPipes = 2, kAll = kSockets + kPipes + 2;
    int sockets[kSockets] = {me.fd};
    for (unsigned i = 1; i < kSockets; ++i)
        sockets[i] = me.connection();
    if (me.server) {
        for (const int fd : sockets)
            send_text(fd, "x");
        me.step();
        return;
    }
    const int set = new_set();
    std::uint64_t number = 0;
    for (const int fd : sockets) {
        await_readable(fd, 1);
        must(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, number++), "add");
    }
    for (unsigned i = 0; i < kPipes; ++i) {
        int ends[2];
        must(::pipe(ends), "pipe");
        must(static_cast<int>(::write(ends[1], "x", 1)), "write");
        must(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, number++), "add");
    }
    const int timer = must(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timerfd_create");
    const itimerspec often{{0, 1000000}, {0, 1000000}};
    must(::timerfd_settime(timer, 0, &often, nullptr), "timerfd_settime");
    must(control(set, EPOLL_CTL_ADD, timer, EPOLLIN, number++), "add");
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    must(::pthread_sigmask(SIG_BLOCK, &usr1, nullptr), "sigmask");
    const int signals = must(::signalfd(-1, &usr1, SFD_NONBLOCK), "signalfd");
    must(::kill(::getpid(), SIGUSR1), "kill");
    must(control(set, EPOLL_CTL_ADD, signals, EPOLLIN, number++), "add");
    await_events(timer, POLLIN);
    unsigned seen[kAll] = {}, wrong = 0;
    for (int i = 0; i < 3000; ++i) {
        epoll_event events[3];
        const int n = must(::epoll_wait(set, events, 3, 1000), "epoll_wait");
        for (int e = 0; e < n; ++e) {
            const bool known = events[e].data.u64 < kAll && events[e].events == EPOLLIN;
            ++(known ? seen[events[e].data.u64] : wrong);
        }
    }
    unsigned often_seen = 0;
    for (const unsigned times : seen)
        often_seen += times > 0 ? 1 : 0;
    me.say("%u of %u had a turn, wrong: %u", often_seen, kAll, wrong);
    epoll_event all[kAll];
    int most = 0;
    for (int i = 0; i < 1000; ++i)
        most = std::max(most, must(::epoll_wait(set, all, kAll, 1000), "epoll_wait"));
    me.say("at most %d in one call", most);
    me.step();
}

SCENARIO(epoll_several_sets)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        me.step();
        me.step();
        send_text(me.fd, "y");
        me.step();
        return;
    }
    const int level = new_set(), edge = new_set(), shot = new_set();
    must(control(level, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    must(control(edge, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLET, 2), "add");
    must(control(shot, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLONESHOT, 3), "add");
    me.step();
    me.step();
    for (int i = 0; i < 2; ++i) {
        show_wait(me, "level", level, i == 0 ? -1 : 10);
        show_wait(me, "edge", edge, i == 0 ? -1 : 10);
        show_wait(me, "one-shot", shot, i == 0 ? -1 : 10);
    }
    receive_text(me.fd, 1);
    me.show("delete from one", control(level, EPOLL_CTL_DEL, me.fd, 0, 0));
    me.step();
    me.step();
    show_wait(me, "edge", edge, -1);
    show_wait(me, "level", level, 10);
    show_wait(me, "one-shot", shot, 10);
}

SCENARIO(epoll_nested)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        me.step();
        me.step();
        send_text(me.fd, "y");
        me.step();
        return;
    }
    const int inner = new_set(), middle = new_set(), outer = new_set();
    must(control(inner, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    must(control(middle, EPOLL_CTL_ADD, inner, EPOLLIN, 2), "add");
    must(control(outer, EPOLL_CTL_ADD, middle, EPOLLIN | EPOLLET, 3), "add");
    show_wait(me, "quiet", outer);
    pollfd p{inner, POLLIN, 0};
    me.show("poll of the set", ::poll(&p, 1, 0));
    me.step();
    show_wait(me, "outer", outer, -1);
    me.step();
    show_wait(me, "middle", middle, -1);
    me.show("poll of the set", ::poll(&p, 1, -1));
    me.say("%s", event_names(static_cast<unsigned>(p.revents)).c_str());
    fd_set in;
    FD_ZERO(&in);
    FD_SET(inner, &in);
    me.show("select of the set", ::select(inner + 1, &in, nullptr, nullptr, nullptr));
    show_wait(me, "inner", inner, -1);
    receive_text(me.fd, 1);
    show_wait(me, "inner, all read", inner, 10);
    me.show("poll of the set, all read", ::poll(&p, 1, 10));
    show_wait(me, "middle", middle, 10);
    me.step();
    show_wait(me, "middle", middle, -1);
    me.step();
}

SCENARIO(epoll_and_close)
{
    const int second = me.connection();
    if (me.server) {
        me.step();
        me.step();
        send_text(second, "y");
        me.step();
        return;
    }
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLOUT, 1), "add");
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 2), "add");
    show_wait(me, "before", set, -1);
    me.show("close", ::close(me.fd));
    show_wait(me, "after close", set, 10);
    int ends[2];
    must(::pipe(ends), "pipe"); // takes the number
    me.show("the number's new owner", control(set, EPOLL_CTL_DEL, ends[0], 0, 0));
    me.show("add", control(set, EPOLL_CTL_ADD, ends[1], EPOLLOUT, 3));
    show_wait(me, "the pipe", set, -1);
    me.show("delete", control(set, EPOLL_CTL_DEL, ends[1], 0, 0));
    me.step();
    me.step();
    show_wait(me, "the other", set, -1);
    me.step();
}

// A registration lives as long as the connection is open anywhere, not only in the number that was registered.
SCENARIO(epoll_and_dup)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        me.step();
        return;
    }
    const int set = new_set();
    const int copy = must(::dup(me.fd), "dup");
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    me.show("add the copy", control(set, EPOLL_CTL_ADD, copy, EPOLLIN, 2));
    me.show("delete the copy", control(set, EPOLL_CTL_DEL, copy, 0, 0));
    me.show("close the first", ::close(me.fd));
    me.step();
    show_wait(me, "still heard of", set, -1);
    receive_text(copy, 1);
    me.show("close the copy", ::close(copy));
    show_wait(me, "no more", set, 10);
    me.step();
}

SCENARIO(epoll_after_fork)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        me.step();
        send_text(me.fd, "y");
        me.step();
        return;
    }
    const int set = must(::epoll_create1(0), "epoll_create1");
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        me.step();
        show_wait(me, "in the child", set, -1);
        receive_text(me.fd, 1);
        ::_exit(0);
    }
    must(::waitpid(child, nullptr, 0), "waitpid");
    show_wait(me, "in the parent", set, 10);
    me.step();
    show_wait(me, "in the parent", set, -1);
    me.step();
}

// Descriptors come into a set while a thread waits in it.
SCENARIO(epoll_changed_while_waiting)
{
    if (me.server) {
        send_text(me.fd, "x");
        me.step();
        me.step();
        return;
    }
    await_readable(me.fd, 1);
    me.step();
    const int set = new_set();
    epoll_event event{};
    int n = -9;
    std::thread waiter([&] { n = ::epoll_wait(set, &event, 1, -1); });
    ::usleep(50000);
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, kLarge), "add");
    waiter.join();
    me.say("%d %s %s", n, event_names(event.events).c_str(), event.data.u64 == kLarge ? "data kept" : "data lost");
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, 0, 1));
    std::thread second([&] { n = ::epoll_wait(set, &event, 1, -1); });
    ::usleep(50000);
    must(control(set, EPOLL_CTL_MOD, me.fd, EPOLLOUT, 2), "modify");
    second.join();
    me.say("%d %s", n, event_names(event.events).c_str());
    me.step();
}

// One event wakes one of several threads that wait in one set.
SCENARIO(epoll_one_set_many_threads)
{
    constexpr int kRounds = 200;
    if (me.server) {
        for (int i = 0; i < kRounds; ++i) {
            send_text(me.fd, "x");
            receive_text(me.fd, 1);
        }
        ::shutdown(me.fd, SHUT_WR);
        me.step();
        return;
    }
    const int set = new_set();
    set_nonblocking(me.fd, true);
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLONESHOT, 1), "add");
    std::atomic<int> got{0};
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
            while (!ended) {
                epoll_event event;
                if (::epoll_wait(set, &event, 1, 100) != 1)
                    continue;
                char byte;
                const ssize_t n = ::recv(me.fd, &byte, 1, 0);
                if (n == 1) {
                    ++got;
                    send_text(me.fd, "a");
                } else if (n == 0) {
                    ended = true;
                } else {
                    die("woken for nothing");
                }
                control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 1);
            }
        });
    for (std::thread &t : threads)
        t.join();
    me.say("%d", got.load());
    me.step();
}

SCENARIO(epoll_pwait2_waits)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        me.step();
        return;
    }
    const int set = new_set();
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    epoll_event event;
    const timespec little{0, 5000000}, negative{-1, 0};
    me.show("5 ms", ::epoll_pwait2(set, &event, 1, &little, nullptr));
    me.show("negative", ::epoll_pwait2(set, &event, 1, &negative, nullptr));
    me.step();
    me.show("for ever", ::epoll_pwait2(set, &event, 1, nullptr, nullptr));
    me.step();
}
