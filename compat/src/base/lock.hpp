// SPDX-License-Identifier: BSD-2-Clause
// A four-byte mutex: one exchange when free, a short spin, then a futex. Type-stable and trivially destructible, so it
// may live in memory that is never freed and be re-initialised in a forked child. Signal handlers wait while a thread
// holds one (libc/critical.hpp).
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/futex.hpp"

namespace vma::sock {

inline void cpu_relax()
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Mutex
{
public:
    bool try_lock()
    {
        libc::enter_critical();
        if (take())
            return true;
        libc::leave_critical();
        return false;
    }
    void lock()
    {
        libc::enter_critical();
        if (!take()) [[unlikely]]
            lock_slow();
    }
    void unlock()
    {
        if (word_.exchange(kFree, std::memory_order_release) == kContended) [[unlikely]]
            libc::futex_wake(word_, 1);
        libc::leave_critical();
    }
    void reset() // in a forked child only, which gets a copy of each page that it writes to
    {
        if (word_.load(std::memory_order_relaxed) != kFree)
            word_.store(kFree, std::memory_order_relaxed);
    }

private:
    enum : std::uint32_t { kFree = 0, kHeld = 1, kContended = 2 };
    static constexpr int kSpins = 200;

    bool take()
    {
        std::uint32_t expected = kFree;
        return word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
    }
    void lock_slow()
    {
        for (int i = 0; i < kSpins; ++i) {
            cpu_relax();
            if (word_.load(std::memory_order_relaxed) == kFree && take())
                return;
        }
        while (word_.exchange(kContended, std::memory_order_acquire) != kFree)
            libc::futex_wait(word_, kContended);
    }

    std::atomic<std::uint32_t> word_{kFree};
};

class LockGuard
{
public:
    explicit LockGuard(Mutex &mutex) : mutex_(mutex) { mutex_.lock(); }
    ~LockGuard() { mutex_.unlock(); }
    LockGuard(const LockGuard &) = delete;
    LockGuard &operator=(const LockGuard &) = delete;

private:
    Mutex &mutex_;
};

} // namespace vma::sock
