// SPDX-License-Identifier: BSD-2-Clause
// Time in the waits: the caller's timeout as a deadline with the kernel's nanoseconds, and when the kernel is asked.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace vma::mux {

inline constexpr std::int64_t kNanosPerSecond = 1000000000;
inline constexpr std::int64_t kNanosPerMilli = 1000000;
inline constexpr std::int64_t kNanosPerMicro = 1000;
// What a loop of VMA_RX_POLL and VMA_RX_POLL_INIT stands for: a look takes about so long here and in VMA. A time ends
// where looks are dear as well: behind sched_yield(), or at the kernel.
inline constexpr std::int64_t kNanosPerLoop = 50;
inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

inline std::int64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kNanosPerSecond + now.tv_nsec;
}

// Until it says true, or it is too late. What it tries is another thread's for moments.
template <typename Attempt> bool try_until(std::int64_t until, const Attempt &attempt)
{
    while (!attempt()) {
        if (now_ns() >= until)
            return false;
        ::sched_yield();
    }
    return true;
}

inline timespec to_timespec(std::int64_t ns)
{
    return {static_cast<time_t>(ns / kNanosPerSecond), static_cast<long>(ns % kNanosPerSecond)};
}

// What the kernel accepts as a timeout.
inline bool valid_timeout(const timespec *timeout)
{
    return timeout == nullptr || (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < kNanosPerSecond);
}

// The clock is read only when start() is called: a wait that finds something at once never does.
class Deadline
{
public:
    explicit Deadline(const timespec *timeout)
    {
        if (timeout == nullptr)
            return;
        constexpr std::int64_t kMostSeconds = kForever / kNanosPerSecond / 4;
        length_ = std::min<std::int64_t>(timeout->tv_sec, kMostSeconds) * kNanosPerSecond + timeout->tv_nsec;
    }

    bool forever() const { return length_ == kForever; }
    bool immediate() const { return length_ == 0; }
    bool started() const { return end_ != kForever || forever(); }

    void start()
    {
        if (!started())
            end_ = now_ns() + length_;
    }

    std::int64_t end() const { return end_; } // kForever when there is none, or not started

    std::int64_t left_ns() const // never negative
    {
        if (forever())
            return kForever;
        return end_ == kForever ? length_ : std::max<std::int64_t>(end_ - now_ns(), 0);
    }

    // For a kernel call: nullptr means for ever.
    const timespec *left(timespec &storage) const
    {
        if (forever())
            return nullptr;
        storage = to_timespec(left_ns());
        return &storage;
    }

private:
    std::int64_t length_ = kForever;
    std::int64_t end_ = kForever;
};

// Ticks of a clock that costs little to read; about a third of a nanosecond, which matters little.
inline std::uint64_t ticks()
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<std::uint64_t>(now_ns()) * 3;
#endif
}

// When a wait asks the kernel about the descriptors that are not accelerated. VMA_SELECT_POLL_OS_RATIO says in how many
// looks one is the kernel's (0: rarely, as never could be for ever). But our looks take some 20 ns and the kernel's
// several hundred, so time counts too: what follows a look at the kernel is ten times its length without one.
struct KernelShare { // kept by the caller from wait to wait; threads may share it
    std::atomic<std::uint64_t> last{0};
    std::atomic<std::uint32_t> cost{0};
    std::atomic<std::uint32_t> calls{0};
    std::atomic<bool> filled{false}; // the kernel's events took all of the caller's array
};

class KernelTurn
{
public:
    KernelTurn(std::uint32_t ratio, std::uint32_t skip, KernelShare &share)
        : looks_(ratio != 0 ? ratio : kRarely), skip_(skip != 0 ? skip : kRarely), share_(share)
    {
    }

    // A call's first look, which must not starve either side. `mixed`: there is something that only the kernel knows
    // of, and the program shall hear of it in the same call if there is time for it. Else the kernel may still have
    // something of accelerated sockets that nobody tells (a datagram, the end of a peer that was killed): who is in no
    // hurry hears of that in the same call, too.
    bool due_at_call(bool mixed)
    {
        const std::uint32_t call = share_.calls.load(std::memory_order_relaxed) + 1;
        share_.calls.store(call, std::memory_order_relaxed);
        if (!mixed)
            return begin(call % std::max(looks_, kLeast) == 0 || (looks_ < kRarely && rested(kTimesAlone)));
        return begin(call % skip_ == 0 || (looks_ < kRarely && rested(kTimes)));
    }

    bool due_in_spin() { return ++count_ >= looks_ && begin(rested(kTimes)); }

    void done() // the look that was due
    {
        const std::uint64_t now = ticks();
        const std::uint64_t spent = now - share_.last.load(std::memory_order_relaxed);
        const std::uint64_t known = share_.cost.load(std::memory_order_relaxed);
        const std::uint64_t more = known + known / 8 + 20; // a slow look says little: it may have been interrupted
        share_.cost.store(static_cast<std::uint32_t>(std::min({spent, more, kLongest})), std::memory_order_relaxed);
        share_.last.store(now, std::memory_order_relaxed);
    }

private:
    static constexpr std::uint32_t kRarely = 1024;
    static constexpr std::uint32_t kLeast = 10;
    static constexpr std::uint64_t kTimes = 10;
    static constexpr std::uint64_t kTimesAlone = 100;
    static constexpr std::uint64_t kLongest = 30000; // 10 us

    bool rested(std::uint64_t times) const
    {
        return ticks() - share_.last.load(std::memory_order_relaxed) >=
               share_.cost.load(std::memory_order_relaxed) * times;
    }
    bool begin(bool due)
    {
        if (due) {
            count_ = 0;
            share_.last.store(ticks(), std::memory_order_relaxed);
        }
        return due;
    }

    const std::uint32_t looks_;
    const std::uint32_t skip_;
    std::uint32_t count_ = 0;
    KernelShare &share_;
};

} // namespace vma::mux
