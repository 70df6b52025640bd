// SPDX-License-Identifier: BSD-2-Clause
// The PTP hardware clock of a network interface (/dev/ptpN, linux/ptp_clock.h): its time beside the system's. It is
// never set here: that is ptp4l's and phc2sys's.
#pragma once

#include <cstdint>

#include "core/fd.hpp"

namespace vma::ether {

// What a clock said when the system's said something.
struct ClockReading {
    std::int64_t clock = 0;  // ns
    std::int64_t system = 0; // CLOCK_REALTIME, ns
    std::int64_t within = 0; // ns: `system` is no farther off than this, if it was not set in between
};

class PtpClock
{
public:
    using Control = int (*)(int fd, unsigned long request, void *argument) noexcept; // ioctl(2)

    PtpClock() noexcept = default;
    PtpClock(core::UniqueFd fd, Control control) noexcept : fd_(std::move(fd)), control_(control) {} // of a test

    // 0 or negative errno: -ENODEV: the interface has no such clock; those of ioctl(2) and open(2), as -EACCES.
    [[nodiscard]] static int open(const char *interface, PtpClock &opened) noexcept;

    bool is_open() const noexcept { return static_cast<bool>(fd_); }
    // The best of a few looks, one system call, some microseconds. 0 or negative errno, as -ENODEV when the device is
    // gone. Not thread-safe.
    [[nodiscard]] int read(ClockReading &reading) noexcept;

private:
    int read_extended(ClockReading &reading) const noexcept;
    int read_plain(ClockReading &reading) const noexcept;

    core::UniqueFd fd_;
    Control control_ = nullptr;
    bool plain_ = false; // the driver or the kernel (before 5.0) has no PTP_SYS_OFFSET_EXTENDED
};

} // namespace vma::ether
