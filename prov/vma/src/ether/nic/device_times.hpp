// SPDX-License-Identifier: BSD-2-Clause
// The clock that a NIC's frames are stamped with, the PTP clock of its interface and the system's, read at one moment:
// what it takes to say a stamp by another clock. By AF_XDP the first two are the same; raw packets have the NIC's
// free-running counter.
#pragma once

#include <cstdint>

#include <rdma/fi_ext_vma.h>

#include "core/spinlock.hpp"
#include "ether/nic/ptp_clock.hpp"
#include "ether/nic/raw_clock.hpp"
#include "verbs/table.hpp"

namespace vma::ether {

// The counter of an RDMA device. 0 or negative errno: -EOPNOTSUPP where it doesn't tell.
[[nodiscard]] int read_counter(ibv_context *context, std::uint64_t &ticks) noexcept;

class DeviceTimes
{
public:
    // Once, before frames come. `context`, which has to live as long: of raw packets, with the clock that their stamps
    // are made with; nullptr: of AF_XDP.
    void open(const char *interface, ibv_context *context, const RawClock &counter) noexcept;
    void open(PtpClock clock, ibv_context *context, const RawClock &counter) noexcept; // of a test

    // 0 or negative errno: -EOPNOTSUPP: the device tells nothing; what reading a clock says. Thread-safe; some
    // microseconds, system calls.
    [[nodiscard]] int read(fi_vma_times &times) noexcept;

private:
    int read_stamping(ClockReading &reading) noexcept;

    core::SpinLock lock_;
    PtpClock ptp_;
    ibv_context *context_ = nullptr;
    RawClock counter_; // goes on by itself from where that of the queue began
};

} // namespace vma::ether
