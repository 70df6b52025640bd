// SPDX-License-Identifier: BSD-2-Clause
// epoll_wait, epoll_pwait or epoll_pwait2, whichever says what is meant.
#include "compat/src/mux/kernel_wait.hpp"

#include <errno.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "compat/src/base/clock.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"

namespace vma::mux {

namespace {

constexpr long kMillisPerSecond = 1000;

bool in_millis(const timespec &timeout)
{
    return timeout.tv_nsec % kNanosPerMilli == 0 && timeout.tv_sec < INT_MAX / kMillisPerSecond;
}

int to_millis(const timespec *timeout)
{
    if (timeout == nullptr)
        return -1;
    if (timeout->tv_sec >= INT_MAX / kMillisPerSecond)
        return INT_MAX;
    const long rounded = (timeout->tv_nsec + kNanosPerMilli - 1) / kNanosPerMilli;
    return static_cast<int>(timeout->tv_sec * kMillisPerSecond + rounded);
}

} // namespace

int kernel_wait(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask)
{
    const auto &real = libc::real;
    if (timeout != nullptr && !in_millis(*timeout) && real.epoll_pwait2 != nullptr &&
        !g_mux.no_pwait2.load(std::memory_order_relaxed)) {
        const int n = real.epoll_pwait2(epfd, events, max, timeout, mask);
        if (n >= 0 || errno != ENOSYS)
            return n;
        g_mux.no_pwait2.store(true, std::memory_order_relaxed);
    }
    const int millis = to_millis(timeout);
    return mask == nullptr ? real.epoll_wait(epfd, events, max, millis)
                           : real.epoll_pwait(epfd, events, max, millis, mask);
}

} // namespace vma::mux
