// SPDX-License-Identifier: BSD-2-Clause
// When a slot was published, by a clock that all processors share: a queue takes slots of different endpoints in this
// order. Only compared, never converted into a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.hpp"

namespace vma::local {

enum class StampClock : std::uint32_t {
    none = 0,        // stamps aren't wanted: all are 0
    cycles = 1,      // the processor's counter
    nanoseconds = 2, // CLOCK_MONOTONIC
};

inline std::uint64_t stamp_now(StampClock clock) noexcept
{
    if (clock == StampClock::none)
        return 0;
#if defined(__x86_64__)
    if (clock == StampClock::cycles) [[likely]] {
        __builtin_ia32_lfence(); // not before what this thread has read
        return __builtin_ia32_rdtsc();
    }
#elif !defined(__aarch64__)
    std::atomic_thread_fence(std::memory_order_seq_cst); // what this thread has read, all others can read by now
#endif
    return static_cast<std::uint64_t>(core::monotonic_ns());
}

// Now, and what this thread reads from here on is read later: what was published before is there.
inline std::uint64_t stamp_before_reading(StampClock clock) noexcept
{
    const std::uint64_t now = stamp_now(clock);
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return now;
}

// The one to use on this machine: the counter, where the kernel itself keeps time by it.
StampClock stamp_clock() noexcept;

} // namespace vma::local
