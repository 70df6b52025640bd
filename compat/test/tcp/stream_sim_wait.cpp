// SPDX-License-Identifier: BSD-2-Clause
// How programs of the simulation wait: as wait_for() and poll() do, and as an epoll set does.
#include "compat/test/tcp/stream_sim.hpp"

#include <errno.h>
#include <poll.h>

namespace vma::test::sim {

using sock::Path;
using sock::Stream;

namespace {

void wake(sock::Watcher *watcher, std::uint32_t events)
{
    Sleep &sleep = *reinterpret_cast<Sleep *>(watcher);
    if (g_world.fault != Fault::kNoNotify)
        sleep.woken |= (events & static_cast<unsigned short>(sleep.events)) != 0;
}

} // namespace

void get_up(Sleep &sleep)
{
    if (sleep.events != 0)
        sock::unwatch(sleep.watcher);
    sleep = {};
}

namespace {

bool is_set(unsigned p, const Sleep &sleep)
{
    return g_world.by_edges && &sleep == &program(p).in;
}

// The set has taken what its kernel's part had to tell.
void take_edge(unsigned p)
{
    if (program(p).told == kernel_edge(p))
        return;
    program(p).told = kernel_edge(p);
    sock::note_kernel_events(socket_of(p), static_cast<unsigned short>(kernel_poll(p, POLLIN | POLLRDHUP)));
}

} // namespace

void lie_down(unsigned p, Sleep &sleep, short events)
{
    Stream &s = socket_of(p);
    if (is_set(p, sleep))
        take_edge(p);
    sleep.watcher.notify = wake;
    sock::watch(s, sleep.watcher);
    sleep.events = events;
    const bool by_kernel = events != POLLOUT || s.tx.path == Path::kKernel;
    sleep.asked = by_kernel ? events : 0;
    const auto interest = static_cast<std::uint32_t>(events);
    if (sock::ready_events(s, fd_of(p), interest) == 0)
        return;
    get_up(sleep);
    if (events != POLLIN || program(p).ended || g_world.may_reset)
        return;
    for (int look = 0; look < 2; ++look) // the first may have been the kernel's bytes, which are behind a span
        if (receive(p, 1, MSG_PEEK) != EAGAIN || sock::ready_events(s, fd_of(p), interest) == 0)
            return;
    // The kernel has told of an end, the endpoint will.
    if (!g_world.endpoints[p].down_due && !(g_world.between_hosts && (kernel_poll(p, POLLRDHUP) & POLLRDHUP) != 0))
        report("poll() says again and again that there is something to read");
}

bool has_news(unsigned p, const Sleep &sleep)
{
    if (!is_asleep(sleep))
        return false;
    return is_set(p, sleep) ? program(p).told != kernel_edge(p) : kernel_poll(p, sleep.asked) != 0;
}

void tell_kernel_news(unsigned p)
{
    for (Sleep *sleep : {&program(p).in, &program(p).out}) {
        if (!has_news(p, *sleep))
            continue;
        if (is_set(p, *sleep))
            take_edge(p);
        else
            sock::note_kernel_events(socket_of(p), static_cast<unsigned short>(kernel_poll(p, sleep->asked)));
        sleep->woken = true;
    }
}

// A set looks at what it was told of, and sleeps on where that has nothing.
void get_up_if_woken(unsigned p)
{
    for (Sleep *sleep : {&program(p).in, &program(p).out}) {
        if (!sleep->woken)
            continue;
        if (is_set(p, *sleep) && sock::ready_events(socket_of(p), fd_of(p), POLLIN) == 0)
            sleep->woken = false;
        else
            get_up(*sleep);
    }
}

} // namespace vma::test::sim
