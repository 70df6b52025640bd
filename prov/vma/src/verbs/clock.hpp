// SPDX-License-Identifier: BSD-2-Clause
// The clock of all that the verbs device does by time. Tests put one in its place that they turn themselves.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.hpp"

namespace vma::verbs {

using ClockFunction = std::uint64_t (*)() noexcept;

// A test's, without a lock.
inline constinit std::atomic<ClockFunction> g_test_clock{nullptr};

// nullptr: CLOCK_MONOTONIC again. Before a fabric is opened.
inline void use_clock(ClockFunction clock) noexcept
{
    g_test_clock.store(clock, std::memory_order_relaxed);
}

// In ns. Thread-safe.
inline std::uint64_t now_ns() noexcept
{
    if (const ClockFunction clock = g_test_clock.load(std::memory_order_relaxed)) [[unlikely]]
        return clock();
    return core::monotonic_ns();
}

} // namespace vma::verbs
