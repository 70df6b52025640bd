// SPDX-License-Identifier: BSD-2-Clause
// The one clock of the tool, CLOCK_MONOTONIC, which the vdso reads without a system call; and the request to stop.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace vma::lat {

inline std::uint64_t now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000000000 + static_cast<std::uint64_t>(t.tv_nsec);
}

inline constexpr std::uint64_t kMillisecond = 1000000;
inline constexpr std::uint64_t kSecond = 1000 * kMillisecond;

// No wait is longer, so that signals and the control connection are looked at in between.
inline constexpr int kTickMs = 50;

// What one reading costs: the median of many pairs.
double clock_cost_ns();

// Set by SIGINT and SIGTERM, which also end a wait. A second signal kills.
inline std::atomic<bool> g_stop{false};
inline bool stopped()
{
    return g_stop.load(std::memory_order_relaxed);
}
void catch_signals();

} // namespace vma::lat
