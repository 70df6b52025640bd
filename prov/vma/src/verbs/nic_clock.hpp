// SPDX-License-Identifier: BSD-2-Clause
// The clock that an RDMA device stamps completions with, in ns: what its ticks are worth, and what the host's clock
// says at the same moment. It is never set and never corrected, so times keep their order and their distances.
#pragma once

#include <cstdint>

#include "rdma/fi_ext_vma.h"
#include "verbs/nic.hpp"

namespace vma::verbs {

class NicClock
{
public:
    // Once, before everything else. Where the device stamps nothing, or does not tell its clock, nothing runs.
    void start(ibv_context *context, const Nic &nic) noexcept;
    bool runs() const noexcept { return khz_ != 0; }

    // Thread-safe, with a clock that runs.

    // The time in ns of a stamp that is from about `now`, in ns of now_ns(): half a turn of the device's clock earlier
    // or later at most, which is days.
    std::uint64_t time_of(std::uint64_t stamp, std::uint64_t now) const noexcept;
    // 0 or a negative fi_errno.
    int compare(fi_vma_clocks &clocks) const noexcept;

private:
    struct Reading {
        std::uint64_t ticks;
        std::uint64_t when;   // ns of now_ns()
        std::uint64_t within; // ns: `when` is no farther off
    };
    int read(Reading &reading) const noexcept;

    ibv_context *context_ = nullptr;
    std::uint64_t khz_ = 0;
    std::uint64_t mask_ = 0; // the bits of the device's counter
    Reading start_{};
};

} // namespace vma::verbs
