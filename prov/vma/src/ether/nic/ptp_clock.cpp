// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/ptp_clock.hpp"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/ptp_clock.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/kernel.hpp"

namespace vma::ether {
namespace {

constexpr unsigned kLooks = 5; // the shortest counts: who is interrupted in between learns little
constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t to_ns(const ptp_clock_time &time) noexcept
{
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(time.sec) * kSecond + time.nsec);
}

// Takes one look if it is better than the one before. A system clock that was set back in between tells nothing.
void consider(const ptp_clock_time &before, const ptp_clock_time &clock, const ptp_clock_time &after,
              ClockReading &best) noexcept
{
    const std::int64_t from = to_ns(before);
    const std::int64_t length = to_ns(after) - from;
    if (length < 0 || (length + 1) / 2 >= best.within)
        return;
    best = {to_ns(clock), from + length / 2, (length + 1) / 2};
}

int call_ioctl(int fd, unsigned long request, void *argument) noexcept
{
    return core::kernel::ioctl(fd, request, argument);
}

// The number of the clock; negative errno.
int index_of_clock(const char *interface) noexcept
{
    ifreq request{};
    if (std::strlen(interface) >= sizeof request.ifr_name)
        return -ENODEV;
    std::memcpy(request.ifr_name, interface, std::strlen(interface));
    ethtool_ts_info info{};
    info.cmd = ETHTOOL_GET_TS_INFO;
    info.phc_index = -1;
    request.ifr_data = reinterpret_cast<char *>(&info);
    const core::UniqueFd socket =
        core::make_fd([] { return core::kernel::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    if (!socket || core::kernel::ioctl(socket.get(), SIOCETHTOOL, &request) != 0)
        return errno == EOPNOTSUPP ? -ENODEV : -errno;
    return info.phc_index >= 0 ? info.phc_index : -ENODEV;
}

} // namespace

int PtpClock::open(const char *interface, PtpClock &opened) noexcept
{
    const int index = index_of_clock(interface);
    if (index < 0)
        return index;
    char path[32];
    std::snprintf(path, sizeof path, "/dev/ptp%d", index);
    core::UniqueFd fd =
        core::make_fd([&path] { return core::kernel::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); });
    if (!fd)
        return -errno;
    opened = PtpClock(std::move(fd), call_ioctl);
    return 0;
}

int PtpClock::read(ClockReading &reading) noexcept
{
    if (!is_open())
        return -ENODEV;
    reading.within = INT64_MAX;
    int error = plain_ ? -EOPNOTSUPP : read_extended(reading);
    if (error == -EOPNOTSUPP || error == -ENOTTY || error == -EINVAL) {
        plain_ = true;
        error = read_plain(reading);
    }
    return error == 0 && reading.within == INT64_MAX ? -EAGAIN : error;
}

int PtpClock::read_extended(ClockReading &reading) const noexcept
{
    ptp_sys_offset_extended looks{};
    looks.n_samples = kLooks;
    if (control_(fd_.get(), PTP_SYS_OFFSET_EXTENDED, &looks) != 0)
        return -errno;
    for (unsigned i = 0; i < kLooks; ++i)
        consider(looks.ts[i][0], looks.ts[i][1], looks.ts[i][2], reading);
    return 0;
}

// The system's time and the clock's in turn.
int PtpClock::read_plain(ClockReading &reading) const noexcept
{
    ptp_sys_offset looks{};
    looks.n_samples = kLooks;
    if (control_(fd_.get(), PTP_SYS_OFFSET, &looks) != 0)
        return -errno;
    for (std::size_t i = 0; i < kLooks; ++i)
        consider(looks.ts[2 * i], looks.ts[2 * i + 1], looks.ts[2 * i + 2], reading);
    return 0;
}

} // namespace vma::ether
