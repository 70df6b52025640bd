// SPDX-License-Identifier: BSD-2-Clause
// The clock of an RDMA device that stamps completions: ticks of a counter that may begin anew, as nanoseconds that go
// on. Its zero is the device's own, and it is neither set nor slewed.
#pragma once

#include <cstdint>

namespace vma::ether {

class RawClock
{
public:
    // ibv_device_attr_ex::completion_timestamp_mask and hca_core_clock; 0: it has none.
    RawClock(std::uint64_t mask, std::uint64_t khz) noexcept : mask_(mask), khz_(khz) {}
    RawClock() noexcept = default;

    bool runs() const noexcept { return mask_ != 0 && khz_ != 0; }

    // Of stamps in their order. `now`: of the host, CLOCK_MONOTONIC in ns, from when the stamp was read: it says how
    // many turns the counter has made since the last one. Never 0.
    std::uint64_t time_of(std::uint64_t ticks, std::uint64_t now) noexcept
    {
        std::uint64_t passed = (ticks - ticks_) & mask_;
        if (mask_ != ~std::uint64_t{0} && read_at_ != 0) {
            const std::uint64_t expected = scale(now - read_at_, khz_, kMega);
            if (expected > passed) // to the nearest turn: stamps wait in the queue before they are read
                passed += (expected - passed + mask_ / 2) / (mask_ + 1) * (mask_ + 1);
        }
        ticks_ += passed;
        read_at_ = now;
        const std::uint64_t time = scale(ticks_, kMega, khz_);
        return time != 0 ? time : 1;
    }

private:
    static constexpr std::uint64_t kMega = 1'000'000; // kHz of nanoseconds

    // value * by / of, where that fits.
    static std::uint64_t scale(std::uint64_t value, std::uint64_t by, std::uint64_t of) noexcept
    {
        return value / of * by + value % of * by / of;
    }

    std::uint64_t mask_ = 0;
    std::uint64_t khz_ = 0;
    std::uint64_t ticks_ = 0; // of the last stamp, with all turns
    std::uint64_t read_at_ = 0;
};

} // namespace vma::ether
