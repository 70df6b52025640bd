// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: each network interface has a PTP clock, which is ahead of the system's clock by as many seconds as
// SIM_PTP_AHEAD says.
#include <linux/ethtool.h>
#include <linux/ptp_clock.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "fabtests/ether/programs/kernel_wrapper.hpp"

namespace {

constexpr int kIndex = 4242;
constexpr const char *kPath = "/dev/ptp4242";

ptp_clock_time now(long ahead)
{
    timespec system{};
    ::clock_gettime(CLOCK_REALTIME, &system);
    ptp_clock_time time{};
    time.sec = system.tv_sec + ahead;
    time.nsec = static_cast<std::uint32_t>(system.tv_nsec);
    return time;
}

int tell_offsets(ptp_sys_offset_extended &looks)
{
    const char *const ahead = std::getenv("SIM_PTP_AHEAD");
    for (unsigned i = 0; i < looks.n_samples && i < PTP_MAX_SAMPLES; ++i) {
        looks.ts[i][0] = now(0);
        looks.ts[i][1] = now(ahead != nullptr ? std::atol(ahead) : 0);
        looks.ts[i][2] = now(0);
    }
    return 0;
}

bool is_about_clocks(unsigned long request, void *argument)
{
    if (request != SIOCETHTOOL)
        return request == PTP_SYS_OFFSET_EXTENDED;
    std::uint32_t command = 0;
    std::memcpy(&command, static_cast<ifreq *>(argument)->ifr_data, sizeof command);
    return command == ETHTOOL_GET_TS_INFO;
}

int tell(unsigned long request, void *argument)
{
    if (request == PTP_SYS_OFFSET_EXTENDED)
        return tell_offsets(*static_cast<ptp_sys_offset_extended *>(argument));
    auto *const info = reinterpret_cast<ethtool_ts_info *>(static_cast<ifreq *>(argument)->ifr_data);
    *info = {};
    info->cmd = ETHTOOL_GET_TS_INFO;
    info->phc_index = kIndex;
    return 0;
}

} // namespace

bool answers(long number, long (&arguments)[6], long &result)
{
    const auto request = static_cast<unsigned long>(arguments[1]);
    if (auto *const argument = reinterpret_cast<void *>(arguments[2]);
        number == SYS_ioctl && is_about_clocks(request, argument)) {
        result = tell(request, argument);
        return true;
    }
    if (number == SYS_openat && std::strcmp(reinterpret_cast<const char *>(arguments[1]), kPath) == 0)
        arguments[1] = reinterpret_cast<long>("/dev/null");
    return false;
}
