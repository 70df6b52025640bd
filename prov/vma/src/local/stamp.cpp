// SPDX-License-Identifier: BSD-2-Clause
#include "local/stamp.hpp"

#include <atomic>
#include <cstring>

#include "core/fd.hpp"
#include "core/kernel.hpp"

namespace vma::local {

namespace {

constexpr const char *kClockSource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

StampClock find_clock() noexcept
{
    char text[4] = {};
    const core::UniqueFd file(core::kernel::open(kClockSource, O_RDONLY | O_CLOEXEC));
    const bool counter = file && core::kernel::read(file.get(), text, sizeof text) == sizeof text &&
                         std::memcmp(text, "tsc\n", sizeof text) == 0;
    return counter ? StampClock::cycles : StampClock::nanoseconds;
}

// The process's, without a lock: any thread may find it out, and each finds the same.
constinit std::atomic<StampClock> g_clock{StampClock::none};

} // namespace

StampClock stamp_clock() noexcept
{
    StampClock clock = g_clock.load(std::memory_order_relaxed);
    if (clock == StampClock::none) {
        clock = find_clock();
        g_clock.store(clock, std::memory_order_relaxed);
    }
    return clock;
}

} // namespace vma::local
