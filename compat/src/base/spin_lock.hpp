// SPDX-License-Identifier: BSD-2-Clause
// A lock for a few instructions on the path of each packet: half the price of a Mutex, whose unlocking has somebody to
// wake.
#pragma once

#include <sched.h>

#include <atomic>

#include "compat/src/base/lock.hpp"
#include "compat/src/libc/critical.hpp"

namespace vma::extra {

class SpinLock
{
public:
    void lock()
    {
        libc::enter_critical();
        while (held_.exchange(true, std::memory_order_acquire))
            [[unlikely]]
            {
                for (int i = 0; i < kSpins && held_.load(std::memory_order_relaxed); ++i)
                    sock::cpu_relax();
                if (held_.load(std::memory_order_relaxed))
                    ::sched_yield();
            }
    }
    void unlock()
    {
        held_.store(false, std::memory_order_release);
        libc::leave_critical();
    }
    void reset() { held_.store(false, std::memory_order_relaxed); } // in a forked child only

private:
    static constexpr int kSpins = 200;
    std::atomic<bool> held_{false};
};

class SpinGuard
{
public:
    explicit SpinGuard(SpinLock &lock) : lock_(lock) { lock_.lock(); }
    ~SpinGuard() { lock_.unlock(); }
    SpinGuard(const SpinGuard &) = delete;
    SpinGuard &operator=(const SpinGuard &) = delete;

private:
    SpinLock &lock_;
};

} // namespace vma::extra
