// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/device_times.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace vma::ether {
namespace {

constexpr int kLooks = 5; // the shortest counts

std::int64_t system_ns() noexcept
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1'000'000'000) + now.tv_nsec;
}

} // namespace

int read_counter(ibv_context *context, std::uint64_t &ticks) noexcept
{
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    if (const int error = ::ibv_query_rt_values_ex(context, &values))
        return -error;
    if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0)
        return -EOPNOTSUPP;
    ticks = static_cast<std::uint64_t>(values.raw_clock.tv_nsec); // the field holds ticks, whatever their length
    return 0;
}

void DeviceTimes::open(const char *interface, ibv_context *context, const RawClock &counter) noexcept
{
    PtpClock clock;
    if (const int error = PtpClock::open(interface, clock))
        VMA_INFO(domain, "%s: no PTP clock: %s", interface, std::strerror(-error));
    open(std::move(clock), context, counter);
}

void DeviceTimes::open(PtpClock clock, ibv_context *context, const RawClock &counter) noexcept
{
    ptp_ = std::move(clock);
    context_ = context;
    counter_ = counter;
}

// Lock held.
int DeviceTimes::read_stamping(ClockReading &reading) noexcept
{
    if (context_ == nullptr)
        return ptp_.is_open() ? ptp_.read(reading) : -EOPNOTSUPP;
    if (!counter_.runs())
        return -EOPNOTSUPP;
    reading.within = INT64_MAX;
    std::uint64_t best = 0;
    for (int i = 0; i < kLooks; ++i) {
        std::uint64_t ticks = 0;
        const std::int64_t before = system_ns();
        const int error = read_counter(context_, ticks);
        const std::int64_t length = system_ns() - before;
        if (error != 0)
            return error;
        if (length < 0 || (length + 1) / 2 >= reading.within) // negative: the system's was set
            continue;
        best = ticks;
        reading.system = before + length / 2;
        reading.within = (length + 1) / 2;
    }
    if (reading.within == INT64_MAX)
        return -EAGAIN;
    reading.clock = static_cast<std::int64_t>(counter_.time_of(best, core::monotonic_ns()));
    return 0;
}

int DeviceTimes::read(fi_vma_times &times) noexcept
{
    const core::SpinGuard guard(lock_);
    ClockReading device;
    times = {};
    if (const int error = read_stamping(device))
        return error;
    times.device_ns = device.clock;
    times.system_ns = device.system;
    times.system_within_ns = device.within;
    ClockReading ptp = device;
    if (context_ != nullptr && (!ptp_.is_open() || ptp_.read(ptp) != 0))
        return 0;
    times.has_ptp = 1;
    times.ptp_ns = ptp.clock - (ptp.system - device.system); // a little later: both clocks go equally fast meanwhile
    times.ptp_within_ns = context_ != nullptr ? device.within + ptp.within : 0;
    return 0;
}

} // namespace vma::ether
