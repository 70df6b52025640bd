// SPDX-License-Identifier: BSD-2-Clause
// Short forms of the epoll calls for scenarios: a set, a change, one wait as a transcript line.
#pragma once

#include <sys/epoll.h>

#include <algorithm>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace fabtest {

inline int new_set()
{
    return must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
}

inline int control(int set, int op, int fd, std::uint32_t events, std::uint64_t data)
{
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return ::epoll_ctl(set, op, fd, &event);
}

// One epoll_wait, its events by their data.
inline void show_wait(const Side &me, const char *when, int set, int timeout = 0, int max = 8)
{
    epoll_event events[32];
    const int n = ::epoll_wait(set, events, max, timeout);
    if (n < 0) {
        me.show(when, n);
        return;
    }
    std::sort(events, events + n, [](const epoll_event &a, const epoll_event &b) { return a.data.u64 < b.data.u64; });
    std::string text;
    for (int i = 0; i < n; ++i)
        text += " " + std::to_string(events[i].data.u64) + ":" + event_names(events[i].events);
    me.say("%s: %d%s", when, n, text.c_str());
}

} // namespace fabtest
