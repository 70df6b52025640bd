// SPDX-License-Identifier: BSD-2-Clause
// What a wait of select(), poll() or epoll_wait() counts when it ends. The records are of a set, or of some of the
// threads (stats/layout.hpp): of threads that share one some counts may be lost.
#pragma once

#include <errno.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/stats/count.hpp"
#include "compat/src/stats/region.hpp"

namespace vma::mux {

class WaitCount
{
public:
    explicit WaitCount(stats::Mux &record)
        : record_(record), measures_(config::params().cpu_usage_stats), start_(measures_ ? ticks() : 0)
    {
    }
    void asleep()
    {
        slept_ = true;
        if (measures_) [[unlikely]]
            sleep_start_ = ticks();
    }
    void awake()
    {
        if (measures_) [[unlikely]]
            start_ += ticks() - sleep_start_; // as if it had begun later
    }
    void by_kernel(int descriptors) { os_ready_ = descriptors; } // of those that the wait ends with

    int done(int result) // which it returns, errno as it was
    {
        stats::MuxCounters &c = record_.now;
        stats::set(record_.thread, stats::this_thread());
        if (slept_)
            stats::add(c.poll_miss);
        else if (result > 0)
            stats::add(c.poll_hit);
        if (result > os_ready_)
            stats::add(c.ready, static_cast<std::uint64_t>(result - os_ready_));
        if (result > 0 && os_ready_ != 0)
            stats::add(c.os_ready, static_cast<std::uint64_t>(os_ready_));
        if (result == 0)
            stats::add(c.timeouts);
        else if (result < 0 && errno != EINTR)
            stats::add(c.errors);
        if (measures_) [[unlikely]]
            measure();
        return result;
    }

private:
    static constexpr std::uint64_t kWindow = 3'000'000'000; // about a second

    void measure()
    {
        const std::uint64_t now = ticks();
        const std::uint64_t window = now - stats::get(record_.window_ticks);
        const std::uint64_t busy = stats::get(record_.busy_ticks) + (now - start_);
        stats::set(record_.busy_ticks, busy);
        if (window < kWindow)
            return;
        if (stats::get(record_.window_ticks) != 0)
            stats::set(record_.polling, static_cast<std::uint32_t>(std::min(busy * 100 / window, std::uint64_t{100})));
        stats::set(record_.window_ticks, now);
        stats::set(record_.busy_ticks, std::uint64_t{0});
    }

    stats::Mux &record_;
    const bool measures_;
    bool slept_ = false;
    int os_ready_ = 0;
    std::uint64_t start_;
    std::uint64_t sleep_start_ = 0;
};

} // namespace vma::mux
