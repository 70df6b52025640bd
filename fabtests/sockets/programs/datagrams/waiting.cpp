// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of waiting: poll, select and epoll with datagrams of accelerated and plain senders, threads, signals.
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

volatile sig_atomic_t g_alarms;
int g_control;

void count_alarm(int)
{
    const int saved = errno;
    g_alarms = g_alarms + 1;
    const std::uint64_t value = 0;
    if (g_alarms == 4 && g_control >= 0 && ::send(g_control, &value, sizeof value, MSG_NOSIGNAL) < 0)
        ::_exit(9);
    errno = saved;
}

// SIGALRM every 20 ms while it exists.
class Alarms
{
public:
    explicit Alarms(bool restart)
    {
        struct sigaction action {
        };
        action.sa_handler = count_alarm;
        action.sa_flags = restart ? SA_RESTART : 0;
        must(::sigaction(SIGALRM, &action, nullptr), "sigaction");
        const itimerval every{{0, 20000}, {0, 20000}};
        must(::setitimer(ITIMER_REAL, &every, nullptr), "setitimer");
    }
    ~Alarms()
    {
        const itimerval never{};
        must(::setitimer(ITIMER_REAL, &never, nullptr), "setitimer");
        ::signal(SIGALRM, SIG_IGN);
    }
    Alarms(const Alarms &) = delete;
    Alarms &operator=(const Alarms &) = delete;
};

int new_set(int fd, std::uint32_t events)
{
    const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    epoll_event event{events, {}};
    event.data.fd = fd;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    return set;
}

void show_wait(const Datagrams &me, const char *when, int set, int timeout = 0)
{
    epoll_event events[8];
    const int n = ::epoll_wait(set, events, 8, timeout);
    me.say("%s: %d %s", when, n, n > 0 ? event_text(events[0].events).c_str() : "");
}

enum class Way { kPoll, kPpoll, kSelect, kPselect, kEpoll, kEpollEdge, kEpollOneshot };
constexpr struct {
    Way way;
    const char *name;
} kWays[] = {{Way::kPoll, "poll"},
             {Way::kPpoll, "ppoll"},
             {Way::kSelect, "select"},
             {Way::kPselect, "pselect"},
             {Way::kEpoll, "epoll"},
             {Way::kEpollEdge, "epoll EPOLLET"},
             {Way::kEpollOneshot, "epoll EPOLLONESHOT"}};

// Waits until there is something to read, without a limit; true when it says so.
bool wait_by(Way way, int fd, int set)
{
    pollfd p{fd, POLLIN, 0};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    epoll_event event{};
    switch (way) {
    case Way::kPoll:
        return ::poll(&p, 1, -1) == 1 && p.revents == POLLIN;
    case Way::kPpoll:
        return ::ppoll(&p, 1, nullptr, nullptr) == 1 && p.revents == POLLIN;
    case Way::kSelect:
        return ::select(fd + 1, &in, nullptr, nullptr, nullptr) == 1 && FD_ISSET(fd, &in);
    case Way::kPselect:
        return ::pselect(fd + 1, &in, nullptr, nullptr, nullptr, nullptr) == 1 && FD_ISSET(fd, &in);
    default:
        return ::epoll_wait(set, &event, 1, -1) == 1 && event.data.fd == fd && event.events == EPOLLIN;
    }
}

} // namespace

// Two senders, one of them without the library in any case. Every datagram ends a wait, and is there once.
EVERY_FAMILY(mixed_senders)
{
    constexpr int kEach = 60;
    if (!me.server) {
        Stranger stranger;
        me.share_port(stranger.address(me.link.other).port(), true, "E");
        for ([[maybe_unused]] const auto &way : kWays) {
            for (int i = 0; i < kEach; ++i) {
                me.hear(); // it is about to wait, or does already
                const std::string text = std::to_string(i);
                if (i % 3 == 0)
                    stranger.send(me.link.other, "E" + text);
                else
                    send_to(me.link.fd, ("C" + text).data(), text.size() + 1, me.link.other);
            }
            me.step();
        }
        me.still_works(me.link);
        return;
    }
    me.share_port(0, false, "E");
    for (const auto &[way, name] : kWays) {
        const std::uint32_t mode = way == Way::kEpollEdge      ? static_cast<std::uint32_t>(EPOLLET)
                                   : way == Way::kEpollOneshot ? static_cast<std::uint32_t>(EPOLLONESHOT)
                                                               : 0U;
        const int set = new_set(me.link.fd, EPOLLIN | mode);
        int right = 0;
        for (int i = 0; i < kEach; ++i) {
            me.tell(0);
            if (!wait_by(way, me.link.fd, set))
                die("%s said something else for number %d", name, i);
            const Received r = receive_by(Form::kRecvfrom, me.link.fd, 20, MSG_DONTWAIT);
            const char *sender = i % 3 == 0 ? "E" : "C";
            right += r.data == sender + std::to_string(i) && me.name(r.from).ends_with(std::string(":") + sender);
            if (way == Way::kEpollOneshot) {
                epoll_event event{EPOLLIN | mode, {}};
                event.data.fd = me.link.fd;
                must(::epoll_ctl(set, EPOLL_CTL_MOD, me.link.fd, &event), "epoll_ctl");
            }
        }
        me.say("%s: %d right", name, right);
        me.nothing_there("and", me.link.fd);
        must(::close(set), "close");
        me.step();
    }
    me.still_works(me.link);
}

// Readiness before, during and after: what the calls report at once.
EVERY_FAMILY(readiness)
{
    const auto report = [&](const char *when) {
        pollfd p{me.link.fd, POLLIN | POLLOUT | POLLRDNORM | POLLPRI, 0};
        const int ready = ::poll(&p, 1, 0);
        fd_set in, out, except;
        for (fd_set *set : {&in, &out, &except}) {
            FD_ZERO(set);
            FD_SET(me.link.fd, set);
        }
        timeval none{};
        const int selected = ::select(me.link.fd + 1, &in, &out, &except, &none);
        me.say("%s: poll %d %s, select %d %d%d%d", when, ready, event_text(static_cast<unsigned>(p.revents)).c_str(),
               selected, FD_ISSET(me.link.fd, &in), FD_ISSET(me.link.fd, &out), FD_ISSET(me.link.fd, &except));
        const int set = new_set(me.link.fd, EPOLLIN | EPOLLOUT);
        show_wait(me, "epoll", set);
        must(::close(set), "close");
    };
    if (me.server)
        report("nothing there");
    me.step();
    me.deliver(me.link, {"", "two"});
    if (me.server) {
        report("two there");
        me.take("an empty one", me.link.fd, MSG_DONTWAIT);
        report("one there");
        me.take("two", me.link.fd, MSG_DONTWAIT);
        report("nothing there");
    }
    me.step();
    me.still_works(me.link);
}

// An edge is a datagram that comes, not one that is there.
SCENARIO(edges)
{
    const int set = me.server ? new_set(me.link.fd, EPOLLIN | static_cast<std::uint32_t>(EPOLLET)) : -1;
    if (me.server)
        show_wait(me, "nothing", set);
    me.step();
    me.deliver(me.link, {"one", "two"});
    if (me.server) {
        show_wait(me, "two came", set, -1);
        show_wait(me, "no edge", set);
        me.take("one", me.link.fd, MSG_DONTWAIT);
        show_wait(me, "one is left, no edge", set);
    }
    me.step();
    me.deliver(me.link, {"three"});
    if (me.server) {
        show_wait(me, "one came", set, -1);
        show_wait(me, "no edge", set);
        me.say("drained: %u", me.drain(me.link.fd));
        show_wait(me, "empty", set);
    }
    me.step();
    me.deliver(me.link, {"four"});
    if (me.server) {
        show_wait(me, "one came", set, -1);
        epoll_event event{EPOLLIN | static_cast<std::uint32_t>(EPOLLET), {}};
        me.show("MOD", ::epoll_ctl(set, EPOLL_CTL_MOD, me.link.fd, &event));
        show_wait(me, "MOD makes an edge", set);
        show_wait(me, "no edge", set);
        event.events = EPOLLIN | EPOLLONESHOT;
        me.show("MOD oneshot", ::epoll_ctl(set, EPOLL_CTL_MOD, me.link.fd, &event));
        show_wait(me, "once", set);
        show_wait(me, "twice", set);
        me.show("DEL", ::epoll_ctl(set, EPOLL_CTL_DEL, me.link.fd, &event));
        show_wait(me, "gone", set);
    }
    me.step();
    if (me.server)
        me.say("drained: %u", me.drain(me.link.fd));
    me.step();
    me.still_works(me.link);
}

// A thread waits in epoll for many sockets; the right one is reported, for each datagram.
SCENARIO(many_sockets)
{
    constexpr unsigned kSockets = 12;
    std::vector<Link> links;
    for (unsigned i = 0; i < kSockets; ++i)
        links.push_back(me.open("D", "T"));
    if (me.server) {
        const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
        for (unsigned i = 0; i < kSockets; ++i) {
            epoll_event event{EPOLLIN, {}};
            event.data.u32 = i;
            must(::epoll_ctl(set, EPOLL_CTL_ADD, links[i].fd, &event), "epoll_ctl");
        }
        int right = 0;
        for (unsigned i = 0; i < 200; ++i) {
            me.tell(0);
            epoll_event events[kSockets];
            const int n = ::epoll_wait(set, events, kSockets, -1);
            right += n == 1 && events[0].data.u32 == i * 5 % kSockets &&
                     receive_by(Form::kRecv, links[events[0].data.u32].fd, 20, MSG_DONTWAIT).data == std::to_string(i);
        }
        me.say("right: %d", right);
    } else {
        for (unsigned i = 0; i < 200; ++i) {
            me.hear();
            const std::string text = std::to_string(i);
            const Link &l = links[i * 5 % kSockets];
            must(static_cast<int>(send_to(l.fd, text.data(), text.size(), l.other)), "sendto");
        }
    }
    me.step();
    for (const Link &l : links)
        me.still_works(l);
}

// Several threads in recvfrom on one socket: each datagram goes to one of them.
EVERY_FAMILY(threads_receive)
{
    constexpr int kThreads = 4, kDatagrams = 2000;
    if (!me.server) {
        for (int i = 0; i < kDatagrams; ++i) {
            must(static_cast<int>(send_to(me.link.fd, &i, sizeof i, me.link.other)), "sendto");
            if (i % 20 == 19)
                me.hear(); // these have been taken
        }
        for (int i = 0; i < kThreads; ++i)
            must(static_cast<int>(send_to(me.link.fd, "", 0, me.link.other)), "sendto"); // the end, for each thread
        me.step();
        return;
    }
    std::vector<std::atomic<int>> seen(kDatagrams);
    std::atomic<int> count = 0;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            for (;;) {
                int number = -1;
                const ssize_t n = ::recvfrom(me.link.fd, &number, sizeof number, 0, nullptr, nullptr);
                if (n == 0)
                    return;
                if (n != sizeof number || number < 0 || number >= kDatagrams)
                    die("%zd bytes, number %d", n, number);
                ++seen[static_cast<std::size_t>(number)];
                if (++count % 20 == 0)
                    me.tell(0);
            }
        });
    for (auto &thread : threads)
        thread.join();
    me.say("each once: %s", std::all_of(seen.begin(), seen.end(), [](const auto &n) { return n == 1; }) ? "yes" : "no");
    me.step();
}

// Several threads send by one socket; nothing is mixed up.
EVERY_FAMILY(threads_send)
{
    constexpr unsigned kThreads = 4, kDatagrams = 300;
    std::atomic<unsigned> turns = 0;
    if (!me.server) {
        std::vector<std::thread> threads;
        std::atomic<unsigned> allowed = 40;
        for (unsigned t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                for (unsigned i = 0; i < kDatagrams; ++i) {
                    const unsigned turn = turns++;
                    for (unsigned now = allowed; turn >= now; now = allowed)
                        allowed.wait(now);
                    const std::string text(1 + (i * 7 + t) % 900, static_cast<char>('a' + t));
                    must(static_cast<int>(send_to(me.link.fd, text.data(), text.size(), me.link.other)), "sendto");
                }
            });
        for (unsigned got = 0; got < kThreads * kDatagrams; got += 20) {
            me.hear();
            allowed += 20;
            allowed.notify_all();
        }
        for (auto &thread : threads)
            thread.join();
        me.step();
        return;
    }
    unsigned next[kThreads] = {};
    for (unsigned got = 1; got <= kThreads * kDatagrams; ++got) {
        const Received r = receive_by(Form::kRecv, me.link.fd, 1000);
        const unsigned t = static_cast<unsigned>(r.data.at(0) - 'a');
        if (t >= kThreads || r.data != std::string(1 + (next[t] * 7 + t) % 900, r.data[0]))
            die("%u of thread %u: %zu bytes", next[t], t, r.data.size());
        ++next[t];
        if (got % 20 == 0)
            me.tell(0);
    }
    me.say("all in order, by thread");
    me.step();
}

// A descriptor that is closed while a thread waits in recvfrom: the thread goes on waiting, and gets what comes next.
SCENARIO(closed_under_a_thread)
{
    const Link l = me.open("D", "T");
    if (!me.server) {
        me.hear();
        me.show("sendto", send_to(l.fd, "to a closed one", 15, l.other));
        me.step();
        me.still_works(me.link);
        return;
    }
    Received r;
    std::atomic<pid_t> task = 0;
    std::thread thread([&] {
        task = ::gettid();
        task.notify_one();
        r = receive_by(Form::kRecvfrom, l.fd, 100);
    });
    task.wait(0);
    await_waiting(task);
    me.show("close", ::close(l.fd));
    me.tell(0);
    thread.join();
    me.show("recvfrom", r);
    me.step();
    me.still_works(me.link);
}

// shutdown() by another thread ends a wait.
SCENARIO(shut_down_under_a_thread)
{
    if (me.server) {
        must(connect_to(me.link.fd, me.link.other), "connect");
        Received r;
        std::atomic<pid_t> task = 0;
        std::thread thread([&] {
            task = ::gettid();
            task.notify_one();
            r = receive_by(Form::kRecv, me.link.fd, 100);
        });
        task.wait(0);
        await_waiting(task);
        me.show("shutdown", ::shutdown(me.link.fd, SHUT_RD));
        thread.join();
        me.show("recv", r);
    }
    me.step();
}

SCENARIO(interrupted)
{
    if (me.server) {
        g_control = -1;
        for (const bool restart : {false, true}) {
            if (restart) { // restarted only without a time-out
                const timeval limit{patience::seconds(), 0};
                must(set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, limit), "SO_RCVTIMEO");
            }
            for (const Form form : kForms) {
                const Alarms alarms(restart);
                me.show(form_name(form), receive_by(form, me.link.fd, 10));
            }
        }
        pollfd p{me.link.fd, POLLIN, 0};
        const Alarms alarms(true);
        me.show("poll", ::poll(&p, 1, -1));
        const int set = new_set(me.link.fd, EPOLLIN);
        epoll_event event{};
        me.show("epoll_wait", ::epoll_wait(set, &event, 1, -1));
        fd_set in;
        FD_ZERO(&in);
        FD_SET(me.link.fd, &in);
        me.show("select", ::select(me.link.fd + 1, &in, nullptr, nullptr, nullptr));
    }
    me.step();
    if (me.server) {
        const timeval none{};
        must(set_option(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, none), "SO_RCVTIMEO");
    }
    me.still_works(me.link);
}

// With SA_RESTART the wait goes on: the client sends when the handler has run four times.
SCENARIO(restarted)
{
    for (const Form form : kForms) {
        if (!me.server) {
            me.hear();
            send_to(me.link.fd, "at last", 7, me.link.other);
            continue;
        }
        g_alarms = 0;
        g_control = me.control;
        const Alarms alarms(true);
        me.show(form_name(form), receive_by(form, me.link.fd, 10));
        me.say("after %s alarms", g_alarms >= 4 ? "enough" : "too few");
    }
    me.step();
    me.still_works(me.link);
}
