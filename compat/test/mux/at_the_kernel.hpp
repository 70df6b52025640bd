// SPDX-License-Identifier: BSD-2-Clause
// What others do in the moment in which a wait asks the kernel, or goes to sleep there.
#pragma once

#include <sys/epoll.h>

#include <functional>

#include "compat/src/libc/real.hpp"

namespace vma::fake {

// What another thread does in the moment in which a wait has heard from the kernel.
struct AfterTheKernel {
    explicit AfterTheKernel(std::function<void()> act)
    {
        g_act = std::move(act);
        g_real = libc::real.epoll_wait;
        libc::real.epoll_wait = [](int epfd, epoll_event *events, int max, int timeout) {
            const int n = g_real(epfd, events, max, timeout);
            libc::real.epoll_wait = g_real; // once
            g_act();
            return n;
        };
    }
    ~AfterTheKernel() { libc::real.epoll_wait = g_real; }
    AfterTheKernel(const AfterTheKernel &) = delete;
    AfterTheKernel &operator=(const AfterTheKernel &) = delete;

    static inline std::function<void()> g_act;
    static inline decltype(libc::real.epoll_wait) g_real = nullptr;
};

// The same, once the wait is over all looks, with the engine armed, and about to sleep.
struct BeforeTheSleep {
    explicit BeforeTheSleep(std::function<void()> act)
    {
        g_act = std::move(act);
        g_real = libc::real.epoll_wait;
        libc::real.epoll_wait = [](int epfd, epoll_event *events, int max, int timeout) {
            if (timeout != 0) {
                libc::real.epoll_wait = g_real;
                g_act();
            }
            return g_real(epfd, events, max, timeout);
        };
    }
    ~BeforeTheSleep() { libc::real.epoll_wait = g_real; }
    BeforeTheSleep(const BeforeTheSleep &) = delete;
    BeforeTheSleep &operator=(const BeforeTheSleep &) = delete;

    static inline std::function<void()> g_act;
    static inline decltype(libc::real.epoll_wait) g_real = nullptr;
};

} // namespace vma::fake
