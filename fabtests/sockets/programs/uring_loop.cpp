// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/sockets/programs/uring_loop.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <deque>
#include <set>

#include "fabtests/sockets/programs/uring.hpp"

namespace fabtest {

namespace {

// What is watched is collected, and handed over before each wait.
class Loop
{
public:
    void watch(int fd, unsigned events, int operation)
    {
        const unsigned slot = uring_.waiting();
        prepared_[slot].events = events;
        prepared_[slot].data.fd = fd;
        change(uring_, set_, operation, fd, &prepared_[slot]).user_data =
            static_cast<unsigned>(operation) | slot << 2 | static_cast<std::uint64_t>(fd) << 32;
        if (uring_.waiting() == uring_.size())
            flush();
    }

    // How many events there are, and which.
    int wait(epoll_event *events, int most)
    {
        while (uring_.waiting() != 0)
            flush();
        return must(::epoll_pwait(set_, events, most, -1, nullptr), "epoll_pwait");
    }

    void stop_watching(int fd) { must(::epoll_ctl(set_, EPOLL_CTL_DEL, fd, nullptr), "EPOLL_CTL_DEL"); }

    int again = 0; // were in the set already

private:
    void flush()
    {
        uring_.enter();
        epoll_event before[kEntries];
        std::memcpy(before, prepared_, sizeof before);
        for (const io_uring_cqe &done : uring_.completed()) {
            if (done.res == 0)
                continue;
            if ((done.user_data & 3) != EPOLL_CTL_ADD || done.res != -EEXIST)
                die("EPOLL_CTL %u: %s", static_cast<unsigned>(done.user_data & 3), name_of(done.res));
            ++again;
            watch(static_cast<int>(done.user_data >> 32), before[done.user_data >> 2 & (kEntries - 1)].events,
                  EPOLL_CTL_MOD);
        }
    }

    static constexpr unsigned kEntries = 8;
    Entered uring_{kEntries};
    epoll_event prepared_[kEntries] = {};
    int set_ = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
};

// What one end sends the other answers by the loop.
void echo(Loop &loop, int from, int to, unsigned number)
{
    unsigned got = 0;
    epoll_event event = {};
    must(static_cast<int>(::send(from, &number, sizeof number, 0)), "send");
    do
        loop.wait(&event, 1);
    while (event.data.fd != to);
    must(static_cast<int>(::recv(to, &got, sizeof got, 0)), "recv");
    must(static_cast<int>(::send(to, &got, sizeof got, 0)), "send");
    must(static_cast<int>(::recv(from, &got, sizeof got, 0)), "recv");
    if (got != number)
        die("%u came instead of %u", got, number);
}

} // namespace

Ends udp_pair()
{
    Ends ends = {};
    sockaddr_in at[2] = {};
    int *const fds[2] = {&ends.a, &ends.b};
    for (int i = 0; i < 2; ++i) {
        at[i].sin_family = AF_INET;
        at[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *fds[i] = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
        must(::bind(*fds[i], reinterpret_cast<sockaddr *>(&at[i]), sizeof at[i]), "bind");
        socklen_t length = sizeof at[i];
        must(::getsockname(*fds[i], reinterpret_cast<sockaddr *>(&at[i]), &length), "getsockname");
    }
    for (int i = 0; i < 2; ++i)
        must(::connect(*fds[i], reinterpret_cast<sockaddr *>(&at[1 - i]), sizeof at[i]), "connect");
    return ends;
}

void libuv_loop(int count)
{
    Loop loop;
    std::deque<Ends> all;
    all.push_back(udp_pair());
    for (int i = 0; i < count; ++i)
        all.push_back(i % 2 == 0 ? accelerated() : connected()); // half of them become so while they are watched
    for (const Ends &ends : all)
        loop.watch(ends.b, EPOLLIN, EPOLL_CTL_ADD);
    int pair[2];
    must(::pipe(pair), "pipe");
    loop.watch(pair[0], EPOLLIN, EPOLL_CTL_ADD);
    for (unsigned round = 0; round < 200; ++round)
        for (const Ends &ends : all)
            echo(loop, ends.a, ends.b, round);
    for (std::size_t i = 1; i < all.size(); ++i)
        accelerate(all[i]);
    for (const Ends &ends : all) // uv_read_stop() and uv_read_start()
        loop.watch(ends.b, EPOLLIN, EPOLL_CTL_ADD);
    for (const Ends &ends : all)
        echo(loop, ends.a, ends.b, 1);
    std::printf("were there already: %d\n", loop.again);
    for (const Ends &ends : all) // uv_write() that found no room, once
        loop.watch(ends.b, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    epoll_event events[64];
    std::set<int> writable;
    while (writable.size() < all.size()) // not all need be told of at once
        for (int i = 0, n = loop.wait(events, 64); i < n; ++i)
            if ((events[i].events & EPOLLOUT) != 0)
                writable.insert(events[i].data.fd);
    for (const Ends &ends : all)
        loop.watch(ends.b, EPOLLIN, EPOLL_CTL_MOD);
    for (const Ends &ends : all)
        echo(loop, ends.a, ends.b, 2);
    must(static_cast<int>(::write(pair[1], "x", 1)), "write");
    std::printf("the pipe: %d\n", loop.wait(events, 64) == 1 && events[0].data.fd == pair[0]);
    for (const Ends &ends : all) {
        loop.stop_watching(ends.b);
        loop.watch(ends.b, EPOLLIN, EPOLL_CTL_ADD);
        echo(loop, ends.a, ends.b, 3);
    }
    std::printf("were there already: %d\n", loop.again);
}

} // namespace fabtest
