// SPDX-License-Identifier: BSD-2-Clause
// The library that the program needs: its constructor runs before that of a preloaded one, its destructor after.
#include "fabtests/posix/programs/order/stage.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kTimes = 100;

constinit Ends g_before = {-1, -1};
constinit bool g_shared = false;

void say(const char *name, const char *what)
{
    char line[200];
    const int length = std::snprintf(line, sizeof line, "%s: %s\n", name, what);
    must(static_cast<int>(::write(STDOUT_FILENO, line, static_cast<std::size_t>(length))), "write");
}

bool wakes_epoll(const Ends &ends)
{
    const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    epoll_event event = {EPOLLIN, {}};
    must(::epoll_ctl(set, EPOLL_CTL_ADD, ends.b, &event), "epoll_ctl");
    send_all(ends.a, "x", 1);
    const int count = ::epoll_wait(set, &event, 1, patience::milliseconds());
    char byte = 0;
    receive_all(ends.b, &byte, 1);
    ::close(set);
    return count == 1 && event.events == EPOLLIN;
}

void try_all(const char *name, const Ends &ends)
{
    talk(ends, kTimes);
    pollfd p = {ends.a, POLLIN | POLLOUT, 0};
    if (::poll(&p, 1, 0) != 1 || p.revents != POLLOUT)
        say(name, "wrong poll()");
    if (!wakes_epoll(ends))
        say(name, "wrong epoll_wait()");
}

[[gnu::constructor]] void needed_begins()
{
    order_stage("constructor of a needed library");
    ORDER_FORK_HANDLERS("handlers of a needed library");
}

[[gnu::destructor]] void needed_ends()
{
    order_stage("destructor of a needed library");
}

} // namespace

void order_in_child()
{
    g_shared = true;
}

void order_stage(const char *name)
{
    if (g_before.a >= 0) {
        try_all(name, g_before);
        ::close(g_before.a);
        char byte = 0;
        say(name,
            g_shared || ::read(g_before.b, &byte, 1) == 0 ? "the one before works" : "the one before does not end");
        ::close(g_before.b);
        g_shared = false;
    }
    g_before = connected();
    try_all(name, g_before);
    say(name, "a new connection");
}
