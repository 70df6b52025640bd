// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of datagrams that are refused, on a socket that is accelerated: who tells of the error, and who takes it.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

std::uint32_t look(int set)
{
    epoll_event event{};
    return ::epoll_wait(set, &event, 1, 0) == 1 ? event.events : 0;
}

// One socket of IP_RECVERR, in two epoll sets, and where nobody is.
struct Refused {
    const Datagrams &me;
    const int fd;
    const int level = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    const int edge = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    Address gone;

    explicit Refused(const Datagrams &side) : me(side), fd(side.link.fd)
    {
        must(set_option(fd, IPPROTO_IP, IP_RECVERR, 1), "IP_RECVERR");
        const int nobody = bound_socket(make_address("127.0.0.1", 0));
        gone = local_address(nobody);
        ::close(nobody);
        for (const auto &[set, events] : {std::pair{level, EPOLLIN | EPOLLOUT}, std::pair{edge, EPOLLIN | EPOLLET}}) {
            epoll_event event{static_cast<std::uint32_t>(events), {}};
            must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
            look(set);
        }
    }
    ~Refused()
    {
        ::close(level);
        ::close(edge);
    }
    Refused(const Refused &) = delete;
    Refused &operator=(const Refused &) = delete;

    // Until its answer has come, which is before the call returns unless the machine puts it off.
    void send() const
    {
        me.show("send to nobody", send_to(fd, "x", 1, gone));
        pollfd p{fd, 0, 0};
        if (::poll(&p, 1, patience::milliseconds()) != 1)
            me.say("no answer");
    }
    void look_around(const char *when) const
    {
        pollfd p{fd, POLLIN | POLLOUT, 0};
        ::poll(&p, 1, 0);
        fd_set in;
        FD_ZERO(&in);
        FD_SET(fd, &in);
        timeval now{};
        const int readable = ::select(fd + 1, &in, nullptr, nullptr, &now);
        me.say("%s: poll %s, select %d, epoll %s, edge %s", when, event_text(static_cast<unsigned>(p.revents)).c_str(),
               readable, event_text(look(level)).c_str(), event_text(look(edge)).c_str());
    }
    void take_from_queue() const
    {
        char bytes[8];
        me.show("MSG_ERRQUEUE", ::recv(fd, bytes, sizeof bytes, MSG_ERRQUEUE | MSG_DONTWAIT));
    }
};

} // namespace

SCENARIO(refused_is_told_until_taken)
{
    if (!me.server) {
        const Refused refused(me);
        for (int i = 0; i < 3; ++i) {
            refused.send();
            refused.look_around("refused");
            refused.look_around("again");
            me.say("SO_ERROR %d", int_option(me.link.fd, SOL_SOCKET, SO_ERROR));
            refused.look_around("taken");
            refused.take_from_queue();
            refused.look_around("queue taken");
        }
    }
    me.step();
    me.still_works(me.link);
}

// Whoever wakes the thread that sleeps tells the sets of nothing that they know.
SCENARIO(refused_beside_a_sleeper)
{
    if (!me.server) {
        const Refused refused(me);
        for (int i = 0; i < 3; ++i) {
            std::atomic<pid_t> task{0};
            pollfd p{me.link.fd, POLLIN, 0};
            std::thread sleeper([&] {
                task = ::gettid();
                ::poll(&p, 1, -1);
            });
            while (task == 0)
                std::this_thread::yield();
            await_waiting(task);
            refused.send();
            const std::uint32_t told = look(refused.edge);
            sleeper.join();
            me.say("the sleeper %s, edge %s, and then %s", event_text(static_cast<unsigned>(p.revents)).c_str(),
                   event_text(told).c_str(), event_text(look(refused.edge)).c_str());
            me.say("SO_ERROR %d", int_option(me.link.fd, SOL_SOCKET, SO_ERROR));
            refused.take_from_queue();
        }
    }
    me.step();
    me.still_works(me.link);
}

// Also of those that go and come by another way than the refused one.
SCENARIO(refused_fails_the_next_call)
{
    if (me.server)
        must(static_cast<int>(send_to(me.link.fd, "unread", 6, me.link.other)), "send");
    me.step();
    if (!me.server) {
        const Refused refused(me);
        refused.send();
        refused.look_around("refused");
        me.show("receive", ::recv(me.link.fd, nullptr, 0, MSG_PEEK | MSG_DONTWAIT));
        refused.take_from_queue(); // so that the next answer is the only one there
        refused.send();
        me.show("send to the peer", send_to(me.link.fd, "lost", 4, me.link.other));
        me.show("again", send_to(me.link.fd, "sent", 4, me.link.other));
        me.take("unread", me.link.fd, MSG_DONTWAIT);
        refused.take_from_queue();
        refused.look_around("queue taken");
    }
    me.step();
    if (me.server)
        me.take("from the client", me.link.fd);
    me.step();
    me.still_works(me.link);
}
