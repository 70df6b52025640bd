// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: each network interface has a PTP clock, which is ahead of the system's clock by as many seconds as SIM_PTP_AHEAD says.
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/ptp_clock.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

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

// The provider's way to the kernel.
extern "C" [[gnu::visibility("default")]] long syscall(long number, ...) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::syscall)>(::dlsym(RTLD_NEXT, "syscall"));
    va_list list;
    va_start(list, number);
    long a[6];
    for (long &argument : a)
        argument = va_arg(list, long);
    va_end(list);
    if (auto *const argument = reinterpret_cast<void *>(a[2]);
        number == SYS_ioctl && is_about_clocks(static_cast<unsigned long>(a[1]), argument))
        return tell(static_cast<unsigned long>(a[1]), argument);
    if (number == SYS_openat && std::strcmp(reinterpret_cast<const char *>(a[1]), kPath) == 0)
        a[1] = reinterpret_cast<long>("/dev/null");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
