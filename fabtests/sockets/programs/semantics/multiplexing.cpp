// SPDX-License-Identifier: BSD-2-Clause
// select and poll over connections and other descriptors: what is ready when, and what a wait wakes up for.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#include <thread>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

// Not the lowest one that is free: another thread may open something there for a moment.
int closed_number()
{
    const int number = must(::fcntl(0, F_DUPFD, 900), "F_DUPFD");
    ::close(number);
    return number;
}

void show_polls(const Side &me, const char *when, std::initializer_list<pollfd> list, int timeout = 0)
{
    pollfd fds[16];
    std::size_t count = 0;
    for (const pollfd &p : list)
        fds[count++] = p;
    const int n = ::poll(fds, count, timeout);
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
        text += " " + event_names(static_cast<unsigned>(fds[i].revents));
    me.say("%s: %d:%s", when, n, text.c_str());
}

struct Sets {
    fd_set in, out, err;
    int top = 0;
    Sets()
    {
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_ZERO(&err);
    }
    Sets &add(int fd)
    {
        FD_SET(fd, &in);
        FD_SET(fd, &out);
        FD_SET(fd, &err);
        top = fd >= top ? fd + 1 : top;
        return *this;
    }
    std::string shown(int fd) const
    {
        std::string text;
        text += FD_ISSET(fd, &in) ? "i" : "-";
        text += FD_ISSET(fd, &out) ? "o" : "-";
        return text + (FD_ISSET(fd, &err) ? "e" : "-");
    }
};

} // namespace

SCENARIO(poll_levels)
{
    constexpr short kAll = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM;
    if (me.server) {
        me.step();
        send_text(me.fd, "data");
        me.step();
        me.step();
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        me.step();
        me.step();
        ::close(me.fd);
        return;
    }
    char buf[8];
    show_polls(me, "idle", {{me.fd, kAll, 0}});
    show_polls(me, "nothing asked", {{me.fd, 0, 0}});
    show_polls(me, "idle for 20 ms", {{me.fd, POLLIN, 0}}, 20);
    me.step();
    await_readable(me.fd, 4);
    show_polls(me, "readable", {{me.fd, kAll, 0}});
    show_polls(me, "still readable", {{me.fd, POLLIN, 0}}, -1);
    show_polls(me, "twice the same", {{me.fd, POLLIN, 0}, {me.fd, POLLOUT, 0}, {me.fd, POLLPRI, 0}}, -1);
    must(static_cast<int>(::recv(me.fd, buf, 2, 0)), "recv");
    show_polls(me, "half read", {{me.fd, POLLIN, 0}});
    must(static_cast<int>(::recv(me.fd, buf, 2, 0)), "recv");
    show_polls(me, "all read", {{me.fd, POLLIN, 0}});
    me.step();
    me.step();
    await_events(me.fd, POLLRDHUP);
    show_polls(me, "the peer's half closed", {{me.fd, kAll, 0}});
    show_polls(me, "nothing asked", {{me.fd, 0, 0}});
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    me.step();
    me.step();
    await_events(me.fd, POLLHUP);
    show_polls(me, "both closed", {{me.fd, kAll, 0}});
    show_polls(me, "nothing asked", {{me.fd, 0, 0}});
}

// The end of the peer's bytes stands beside bytes that are unread, and room to send, from the first look on.
SCENARIO(end_beside_what_is_there)
{
    if (me.server) {
        send_text(me.fd, "abc");
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        me.step();
        me.step();
        return;
    }
    me.step();
    pollfd end{me.fd, POLLRDHUP, 0};
    must(::poll(&end, 1, -1), "poll"); // until the end is there
    for (int i = 0; i < 4; ++i) {
        pollfd p{me.fd, POLLIN | POLLOUT | POLLRDHUP, 0};
        ::poll(&p, 1, 0);
        me.say("poll: %s", event_names(static_cast<unsigned short>(p.revents)).c_str());
    }
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    for (int i = 0; i < 4; ++i) {
        event.events = 0;
        ::epoll_wait(set, &event, 1, 0);
        me.say("epoll_wait: %s", event_names(event.events).c_str());
    }
    ::close(set);
    me.step();
}

SCENARIO(poll_writable)
{
    if (me.server) {
        me.step();
        me.step();
        char block[65536];
        std::size_t total = 0;
        while (total < 200000) {
            const ssize_t n = ::recv(me.fd, block, sizeof block, 0);
            if (n <= 0)
                die("recv: %zd", n);
            total += static_cast<std::size_t>(n);
        }
        me.step();
        drain(me.fd);
        return;
    }
    show_polls(me, "empty", {{me.fd, POLLOUT, 0}});
    fill_until_full(me.fd);
    show_polls(me, "full", {{me.fd, POLLOUT | POLLIN, 0}});
    show_polls(me, "full for 20 ms", {{me.fd, POLLOUT, 0}}, 20);
    me.step();
    me.step();
    me.step();
    ::shutdown(me.fd, SHUT_WR);
}

// A wait for room ends when the peer reads.
SCENARIO(poll_wakes_for_room)
{
    if (me.server) {
        me.step();
        me.say("drained: %s", drain(me.fd) > 0 ? "yes" : "no");
        return;
    }
    fill_until_full(me.fd);
    me.step();
    show_polls(me, "room", {{me.fd, POLLOUT, 0}}, -1);
    me.say("send: %s", ::send(me.fd, "x", 1, MSG_DONTWAIT) == 1 ? "yes" : "no");
    ::close(me.fd);
}

SCENARIO(poll_other_descriptors)
{
    const int second = me.connection();
    if (me.server) {
        me.step();
        send_text(second, "x");
        me.step();
        return;
    }
    int ends[2];
    must(::pipe(ends), "pipe");
    const int timer = must(::timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
    const int event = must(::eventfd(0, 0), "eventfd");
    const int udp = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    const int closed = closed_number();
    show_polls(me, "quiet",
               {{me.fd, POLLIN, 0},
                {second, POLLIN, 0},
                {ends[0], POLLIN, 0},
                {timer, POLLIN, 0},
                {event, POLLIN, 0},
                {udp, POLLIN, 0},
                {-1, POLLIN, 0}});
    show_polls(me, "with a closed number", {{me.fd, POLLIN, 0}, {closed, POLLIN, 0}, {-5, POLLIN, 0}}, -1);
    const itimerspec soon{{}, {0, 20000000}};
    must(::timerfd_settime(timer, 0, &soon, nullptr), "timerfd_settime");
    show_polls(me, "timer", {{me.fd, POLLIN, 0}, {second, POLLIN, 0}, {timer, POLLIN, 0}, {event, POLLIN, 0}}, -1);
    std::thread other([&] {
        ::usleep(30000);
        must(::eventfd_write(event, 1), "eventfd_write");
    });
    show_polls(me, "eventfd", {{me.fd, POLLIN, 0}, {event, POLLIN, 0}, {second, POLLIN, 0}}, -1);
    other.join();
    std::thread writer([&] {
        ::usleep(30000);
        must(static_cast<int>(::write(ends[1], "x", 1)), "write");
    });
    show_polls(me, "pipe", {{me.fd, POLLIN, 0}, {ends[0], POLLIN, 0}, {second, POLLIN, 0}}, -1);
    writer.join();
    me.step();
    show_polls(me, "second connection", {{me.fd, POLLIN, 0}, {second, POLLIN, 0}, {udp, POLLIN, 0}}, -1);
    me.step();
}

SCENARIO(select_sets)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "data");
        me.step();
        me.step();
        ::close(me.fd);
        return;
    }
    int ends[2];
    must(::pipe(ends), "pipe");
    Sets sets;
    sets.add(me.fd).add(ends[0]).add(ends[1]);
    timeval none{};
    int n = ::select(sets.top, &sets.in, &sets.out, &sets.err, &none);
    me.say("idle: %d, %s %s %s", n, sets.shown(me.fd).c_str(), sets.shown(ends[0]).c_str(),
           sets.shown(ends[1]).c_str());
    Sets reading;
    reading.add(me.fd);
    timeval limit{0, 30000};
    n = ::select(reading.top, &reading.in, nullptr, nullptr, &limit);
    me.say("time-out: %d %s, %ld.%06ld left", n, FD_ISSET(me.fd, &reading.in) ? "set" : "clear", limit.tv_sec,
           limit.tv_usec);
    me.step();
    await_readable(me.fd, 4);
    sets = {};
    sets.add(me.fd).add(ends[0]);
    n = ::select(sets.top, &sets.in, &sets.out, &sets.err, nullptr);
    me.say("readable: %d, %s %s", n, sets.shown(me.fd).c_str(), sets.shown(ends[0]).c_str());
    receive_text(me.fd, 4);
    me.step();
    me.step();
    await_events(me.fd, POLLRDHUP);
    sets = {};
    sets.add(me.fd);
    n = ::select(sets.top, &sets.in, &sets.out, &sets.err, nullptr);
    me.say("at the end: %d, %s", n, sets.shown(me.fd).c_str());
    const int closed = closed_number();
    sets = {};
    sets.add(me.fd).add(closed);
    me.show("with a closed number", ::select(sets.top, &sets.in, nullptr, nullptr, nullptr));
    sets = {};
    limit = {-1, 0};
    me.show("negative time", ::select(0, nullptr, nullptr, nullptr, &limit));
    me.show("negative count", ::select(-1, nullptr, nullptr, nullptr, &none));
    limit = {0, 10000};
    me.show("nothing", ::select(0, nullptr, nullptr, nullptr, &limit));
}

SCENARIO(select_wakes)
{
    if (me.server) {
        for (int i = 0; i < 3; ++i) {
            me.step();
            ::usleep(20000);
            send_text(me.fd, "x");
        }
        me.step();
        return;
    }
    int ends[2];
    must(::pipe(ends), "pipe");
    for (int i = 0; i < 3; ++i) {
        Sets sets;
        sets.add(me.fd).add(ends[0]);
        me.step();
        timeval limit{patience::seconds(), 0};
        const int n = ::select(sets.top, &sets.in, nullptr, nullptr, i == 1 ? nullptr : &limit);
        me.say("%d, %d %d", n, FD_ISSET(me.fd, &sets.in) != 0, FD_ISSET(ends[0], &sets.in) != 0);
        receive_text(me.fd, 1);
    }
    me.step();
}

// Two threads wait for one connection; both see it, one takes the byte.
SCENARIO(two_threads_poll)
{
    if (me.server) {
        me.step();
        ::usleep(50000);
        send_text(me.fd, "x");
        me.step();
        return;
    }
    std::string seen[2];
    auto wait = [&](int which) {
        pollfd p{me.fd, POLLIN, 0};
        const int n = ::poll(&p, 1, -1);
        seen[which] = std::to_string(n) + " " + event_names(static_cast<unsigned>(p.revents));
    };
    std::thread first(wait, 0), second(wait, 1);
    me.step();
    first.join();
    second.join();
    me.say("%s, %s", seen[0].c_str(), seen[1].c_str());
    receive_text(me.fd, 1);
    me.step();
}

// A plain connection becomes an accelerated one while threads sleep on it in each multiplexer, and the answer comes the
// new way. What offloads it goes in one direction only, so that nothing wakes them before.
SCENARIO(offloaded_while_others_wait)
{
    const int fd = me.connect_plain();
    if (me.server) {
        char byte;
        do
            receive_all(fd, &byte, 1);
        while (byte != 'e');
        me.step();
        for (int i = 0; i < 3; ++i) {
            send_text(fd, "x");
            me.step();
        }
        return;
    }
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event{EPOLLIN, {}};
    must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    int results[4] = {-9, -9, -9, -9};
    char byte = 0;
    std::thread by_poll([&] {
        pollfd p{fd, POLLIN, 0};
        results[0] = ::poll(&p, 1, -1);
    });
    std::thread by_select([&] {
        fd_set in;
        FD_ZERO(&in);
        FD_SET(fd, &in);
        results[1] = ::select(fd + 1, &in, nullptr, nullptr, nullptr);
    });
    std::thread by_epoll([&] {
        epoll_event out;
        results[2] = ::epoll_wait(set, &out, 1, -1);
    });
    std::thread by_peek([&] { results[3] = static_cast<int>(::recv(fd, &byte, 1, MSG_PEEK)); });
    ::usleep(50000); // all sleep by now, more likely than not
    const std::int64_t end = now_ms() + patience::milliseconds();
    for (int after = 0; after < 100; after += me.is_offloaded(fd)) {
        send_text(fd, "m");
        if (now_ms() > end)
            die("not accelerated");
    }
    send_text(fd, "e");
    me.step();
    by_poll.join();
    by_select.join();
    by_epoll.join();
    by_peek.join();
    me.say("%d %d %d %d", results[0], results[1], results[2], results[3]);
    for (int i = 0; i < 3; ++i) {
        receive_text(fd, 1);
        me.step();
    }
}
