// SPDX-License-Identifier: BSD-2-Clause
// One epoll set: level, edge, one-shot, errors, and connections among other descriptors.
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <thread>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/epolling.hpp"

namespace {

using namespace fabtest;

constexpr std::uint64_t kLarge = 0xfedcba9876543210U;

} // namespace

SCENARIO(epoll_level)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "data");
        me.step();
        me.step();
        ::close(me.fd);
        return;
    }
    const int set = new_set();
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, kLarge));
    show_wait(me, "idle", set);
    show_wait(me, "idle for 20 ms", set, 20);
    me.step();
    show_wait(me, "readable", set, -1);
    show_wait(me, "again", set, -1);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLOUT, 7));
    show_wait(me, "writable", set, -1);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 8));
    show_wait(me, "both", set, -1);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, 0, 9));
    show_wait(me, "nothing asked", set);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 10));
    receive_text(me.fd, 4);
    show_wait(me, "all read", set);
    me.step();
    me.step();
    await_events(me.fd, POLLRDHUP);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLRDHUP, 11));
    show_wait(me, "at the end", set, -1);
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, 0, 0));
    show_wait(me, "deleted", set);
}

// Found without room by epoll_wait() though no send had failed: the peer's reading is news all the same.
SCENARIO(epoll_room_comes_back)
{
    constexpr std::uint64_t kSize = 262144 - 4096; // it all fits, but for less than what is room to send
    const Pattern pattern(5);
    for (int turn = 0; turn < 3; ++turn) {
        if (me.server) {
            me.step();
            me.step();
            read_pattern(me.fd, pattern, 0, kSize);
            me.step();
            continue;
        }
        const int set = new_set();
        me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLOUT, kLarge));
        write_pattern(me.fd, pattern, 0, kSize);
        me.step();
        epoll_event event;
        for (int i = 0; i < 3; ++i)
            ::epoll_wait(set, &event, 1, 0); // there may be room, or not
        me.step();
        show_wait(me, "room", set, patience::milliseconds());
        ::close(set);
        me.step();
    }
}

SCENARIO(epoll_edge)
{
    if (me.server) {
        for (int i = 0; i < 4; ++i) {
            me.step();
            send_text(me.fd, "ab");
            me.step();
        }
        me.step();
        ::shutdown(me.fd, SHUT_WR);
        return;
    }
    const int set = new_set();
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLET, 1));
    show_wait(me, "idle", set);
    me.step();
    me.step();
    show_wait(me, "an edge", set, -1);
    show_wait(me, "no edge", set, 20);
    receive_text(me.fd, 1);
    show_wait(me, "no edge after a partial read", set, 20);
    me.step();
    me.step();
    await_readable(me.fd, 3);
    show_wait(me, "new data, new edge", set, -1);
    show_wait(me, "no edge", set, 20);
    receive_text(me.fd, 3);
    show_wait(me, "no edge, all read", set, 20);
    me.step();
    me.step();
    await_readable(me.fd, 2);
    me.show("modify makes an edge", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLET, 2));
    show_wait(me, "after modify", set, -1);
    show_wait(me, "no edge", set, 20);
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, 0, 0));
    me.show("add with data there", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLET | EPOLLRDHUP, 3));
    show_wait(me, "after add", set, -1);
    receive_text(me.fd, 2);
    me.step();
    me.step();
    await_readable(me.fd, 2);
    show_wait(me, "data", set, -1);
    receive_text(me.fd, 2);
    me.step();
    show_wait(me, "the peer's end", set, -1);
    show_wait(me, "no edge", set, 20);
}

// The way servers use edges: read until EAGAIN, then wait. No byte may be left lying.
SCENARIO(epoll_edge_server)
{
    constexpr int kConnections = 8;
    constexpr std::uint64_t kBytes = 300000;
    std::vector<int> fds;
    for (int i = 0; i < kConnections; ++i)
        fds.push_back(me.connection());
    if (me.server) {
        std::vector<std::thread> writers;
        for (int i = 0; i < kConnections; ++i)
            writers.emplace_back([&, i] {
                write_pattern(fds[static_cast<std::size_t>(i)], Pattern(static_cast<std::uint64_t>(i)), 0, kBytes);
                ::close(fds[static_cast<std::size_t>(i)]);
            });
        for (std::thread &t : writers)
            t.join();
        me.step();
        return;
    }
    const int set = new_set();
    std::uint64_t at[kConnections] = {};
    for (int i = 0; i < kConnections; ++i) {
        set_nonblocking(fds[static_cast<std::size_t>(i)], true);
        must(control(set, EPOLL_CTL_ADD, fds[static_cast<std::size_t>(i)], EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP,
                     static_cast<std::uint64_t>(i)),
             "epoll_ctl");
    }
    for (int open = kConnections; open > 0;) {
        epoll_event events[3];
        const int n = must(::epoll_wait(set, events, 3, patience::milliseconds()), "epoll_wait");
        if (n == 0)
            die("no event comes, %d connections open", open);
        for (int e = 0; e < n; ++e) {
            const auto i = static_cast<std::size_t>(events[e].data.u64);
            char block[4096];
            for (;;) {
                const ssize_t got = ::recv(fds[i], block, sizeof block, 0);
                if (got < 0 && errno == EAGAIN)
                    break;
                if (got < 0)
                    die("recv: %s", strerrorname_np(errno));
                if (got == 0) {
                    if (at[i] != kBytes)
                        die("connection %zu ended at %llu", i, static_cast<unsigned long long>(at[i]));
                    ::close(fds[i]);
                    --open;
                    break;
                }
                if (Pattern(i).check(at[i], block, static_cast<std::size_t>(got)) != static_cast<std::size_t>(got))
                    die("connection %zu: wrong byte after %llu", i, static_cast<unsigned long long>(at[i]));
                at[i] += static_cast<std::uint64_t>(got);
            }
        }
    }
    me.say("all came to the end");
    me.step();
}

SCENARIO(epoll_edge_writable)
{
    if (me.server) {
        me.step();
        me.say("drained: %s", drain(me.fd) > 0 ? "yes" : "no");
        return;
    }
    const int set = new_set();
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLOUT | EPOLLET, 1));
    show_wait(me, "writable at once", set, -1);
    show_wait(me, "no edge", set, 20);
    set_nonblocking(me.fd, true);
    fill_until_full(me.fd);
    show_wait(me, "full", set);
    me.step();
    show_wait(me, "room again", set, -1);
    ::close(me.fd);
}

SCENARIO(epoll_one_shot)
{
    if (me.server) {
        for (int i = 0; i < 3; ++i) {
            me.step();
            send_text(me.fd, "x");
            me.step();
        }
        return;
    }
    const int set = new_set();
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLONESHOT, 1));
    me.step();
    me.step();
    show_wait(me, "once", set, -1);
    show_wait(me, "not again", set, 20);
    me.step();
    me.step();
    await_readable(me.fd, 2);
    show_wait(me, "not for new data", set, 20);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT | EPOLLET, 2));
    show_wait(me, "armed again", set, -1);
    show_wait(me, "not again", set, 20);
    receive_text(me.fd, 2);
    me.show("modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLONESHOT, 3));
    show_wait(me, "nothing there", set, 20);
    me.step();
    me.step();
    show_wait(me, "once", set, -1);
}

SCENARIO(epoll_errors)
{
    if (me.server)
        return;
    const int set = new_set();
    me.show("modify before add", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 1));
    me.show("delete before add", control(set, EPOLL_CTL_DEL, me.fd, EPOLLIN, 1));
    me.show("add", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1));
    me.show("add again", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 2));
    me.show("no such operation", control(set, 77, me.fd, EPOLLIN, 1));
    me.show("the set itself", control(set, EPOLL_CTL_ADD, set, EPOLLIN, 1));
    me.show("not a set", control(me.fd, EPOLL_CTL_ADD, set, EPOLLIN, 1));
    me.show("exclusive modify", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    const int closed = ::dup(me.fd);
    ::close(closed);
    me.show("a closed number", control(set, EPOLL_CTL_ADD, closed, EPOLLIN, 1));
    epoll_event event;
    me.show("wait for none", ::epoll_wait(set, &event, 0, 0));
    me.show("wait on no set", ::epoll_wait(me.fd, &event, 1, 0));
    me.show("wait on nothing", ::epoll_wait(closed, &event, 1, 0));
    me.show("delete", control(set, EPOLL_CTL_DEL, me.fd, EPOLLIN, 1));
    me.show("add exclusive", control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    me.show("modify an exclusive one", control(set, EPOLL_CTL_MOD, me.fd, EPOLLIN, 1));
    me.show("create with bad flags", ::epoll_create1(77));
    me.show("create with size 0", ::epoll_create(0));
}

SCENARIO(epoll_mixed)
{
    const int second = me.connection();
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        send_text(second, "y");
        me.step();
        me.step();
        ::close(second);
        me.step();
        return;
    }
    const int set = new_set();
    int ends[2];
    must(::pipe(ends), "pipe");
    const int timer = must(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timerfd_create");
    const int event = must(::eventfd(0, EFD_NONBLOCK), "eventfd");
    must(control(set, EPOLL_CTL_ADD, me.fd, EPOLLIN, 1), "add");
    must(control(set, EPOLL_CTL_ADD, second, EPOLLIN | EPOLLET | EPOLLRDHUP, 2), "add");
    must(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 3), "add");
    must(control(set, EPOLL_CTL_ADD, timer, EPOLLIN, 4), "add");
    must(control(set, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLET, 5), "add");
    show_wait(me, "quiet", set);
    const itimerspec soon{{}, {0, 20000000}};
    must(::timerfd_settime(timer, 0, &soon, nullptr), "timerfd_settime");
    show_wait(me, "timer", set, -1);
    std::uint64_t ticks;
    must(static_cast<int>(::read(timer, &ticks, sizeof ticks)), "read");
    std::thread other([&] {
        ::usleep(30000);
        must(::eventfd_write(event, 1), "eventfd_write");
    });
    show_wait(me, "eventfd", set, -1);
    other.join();
    show_wait(me, "no edge", set, 10);
    me.step();
    await_readable(me.fd, 1);
    await_readable(second, 1);
    must(static_cast<int>(::write(ends[1], "z", 1)), "write");
    show_wait(me, "three", set, -1);
    ::usleep(1000); // the kernel is asked when its turn has come, not in each wait that follows the last one at once
    show_wait(me, "two levels", set, -1);
    receive_text(me.fd, 1);
    show_wait(me, "pipe only", set, -1);
    char byte;
    must(static_cast<int>(::read(ends[0], &byte, 1)), "read");
    show_wait(me, "quiet", set, 10);
    me.step();
    receive_text(second, 1);
    me.step();
    show_wait(me, "end of the second", set, -1);
    me.step();
}
