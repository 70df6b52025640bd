// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/nic_clock.hpp"

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "verbs/clock.hpp"

namespace vma::verbs {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000; // in ns

// Without a product of 128 bits: kHz are ticks of a millisecond.
std::uint64_t to_ticks(std::uint64_t ns, std::uint64_t khz) noexcept
{
    return ns / kMillisecond * khz + ns % kMillisecond * khz / kMillisecond;
}

std::uint64_t to_ns(std::uint64_t ticks, std::uint64_t khz) noexcept
{
    return ticks / khz * kMillisecond + ticks % khz * kMillisecond / khz;
}

} // namespace

// Who is interrupted between two looks at the host's clock learns little: of a few tries the shortest counts.
int NicClock::read(Reading &reading) const noexcept
{
    constexpr int kTries = 5;
    reading.within = UINT64_MAX;
    for (int i = 0; i < kTries; ++i) {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        const std::uint64_t before = now_ns();
        const int error = ibv_query_rt_values_ex(context_, &values);
        const std::uint64_t after = now_ns();
        if (error != 0)
            return -error;
        if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0)
            return -FI_EOPNOTSUPP;
        const std::uint64_t within = (after - before + 1) / 2;
        if (within < reading.within) // the field holds ticks in tv_nsec, whatever their length
            reading = {static_cast<std::uint64_t>(values.raw_clock.tv_nsec), before + (after - before) / 2, within};
    }
    return 0;
}

void NicClock::start(ibv_context *context, const Nic &nic) noexcept
{
    if (nic.clock_khz == 0 || nic.clock_mask == 0)
        return;
    context_ = context;
    if (const int error = read(start_)) {
        VMA_INFO(domain, "RDMA device %s does not tell its clock (%d): completions have no times", nic.name, -error);
        return;
    }
    khz_ = nic.clock_khz;
    mask_ = nic.clock_mask;
}

// How many turns the counter has made is what the host's clock says; they agree well enough for years.
std::uint64_t NicClock::time_of(std::uint64_t stamp, std::uint64_t now) const noexcept
{
    const std::uint64_t expected = start_.ticks + to_ticks(now - start_.when, khz_);
    std::uint64_t ahead = (stamp - expected) & mask_;
    if (ahead > mask_ / 2)
        ahead |= ~mask_; // behind: a negative number of 64 bits
    return to_ns(expected + ahead, khz_);
}

int NicClock::compare(fi_vma_clocks &clocks) const noexcept
{
    Reading reading;
    if (const int error = read(reading))
        return error;
    clocks = {time_of(reading.ticks, reading.when), reading.when, reading.within};
    return 0;
}

} // namespace vma::verbs
