// SPDX-License-Identifier: BSD-2-Clause
// A lock for sections of some tens of nanoseconds. It can be switched off when the program promised to keep its threads
// apart (FI_THREAD_DOMAIN). A waiter gives its CPU away soon: the holder may have been descheduled.
#pragma once

#include <atomic>

#include "core/held.hpp"

namespace vma::core {

inline void cpu_relax() noexcept
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

// Orders our earlier stores before our later loads as another process sees them. ThreadSanitizer doesn't know fences.
inline void full_fence() noexcept
{
#if defined(__SANITIZE_THREAD__)
    static std::atomic<int> dummy{0}; // the process's; its value means nothing
    dummy.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The same where our last access to memory was a store or an exchange with memory_order_seq_cst. On x86-64 that is a
// locked instruction, which orders all; on others it orders no later load but those of seq_cst (doc/memory-order.md).
inline void fence_after_exchange() noexcept
{
#if defined(__x86_64__)
    std::atomic_signal_fence(std::memory_order_seq_cst);
#else
    full_fence();
#endif
}

class SpinLock
{
public:
    SpinLock() noexcept = default;
    SpinLock(const SpinLock &) = delete;
    SpinLock &operator=(const SpinLock &) = delete;

    // Before anyone uses it.
    void set_enabled(bool enabled) noexcept { enabled_ = enabled; }

    void lock() noexcept
    {
        if (!enabled_)
            return;
        const bool counted = begin_hold();
        if (held_.exchange(true, std::memory_order_acquire))
            lock_slow();
        counted_ = counted;
    }
    bool try_lock() noexcept
    {
        if (!enabled_)
            return true;
        const bool counted = begin_hold();
        if (!held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire)) {
            counted_ = counted;
            return true;
        }
        end_hold(counted);
        return false;
    }
    void unlock() noexcept
    {
        if (!enabled_)
            return;
        const bool counted = counted_;
        held_.store(false, std::memory_order_release);
        end_hold(counted);
    }

private:
    void lock_slow() noexcept;

    std::atomic<bool> held_{false};
    bool enabled_ = true;
    bool counted_ = false; // who holds it has counted it (held.hpp)
};

class SpinGuard
{
public:
    explicit SpinGuard(SpinLock &lock) noexcept : lock_(lock) { lock_.lock(); }
    ~SpinGuard() { lock_.unlock(); }
    SpinGuard(const SpinGuard &) = delete;
    SpinGuard &operator=(const SpinGuard &) = delete;

private:
    SpinLock &lock_;
};

} // namespace vma::core
