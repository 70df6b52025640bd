// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: each network interface has a PTP clock, which is ahead of the system's clock by as many seconds as SIM_PTP_AHEAD says.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/ptp_clock.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

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

} // namespace

extern "C" [[gnu::visibility("default")]] int ioctl(int fd, unsigned long request, ...) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::ioctl)>(::dlsym(RTLD_NEXT, "ioctl"));
    va_list list;
    va_start(list, request);
    void *const argument = va_arg(list, void *);
    va_end(list);
    if (request == PTP_SYS_OFFSET_EXTENDED)
        return tell_offsets(*static_cast<ptp_sys_offset_extended *>(argument));
    std::uint32_t command = 0;
    if (request == SIOCETHTOOL)
        std::memcpy(&command, static_cast<ifreq *>(argument)->ifr_data, sizeof command);
    if (command != ETHTOOL_GET_TS_INFO)
        return real(fd, request, argument);
    auto *const info = reinterpret_cast<ethtool_ts_info *>(static_cast<ifreq *>(argument)->ifr_data);
    *info = {};
    info->cmd = ETHTOOL_GET_TS_INFO;
    info->phc_index = kIndex;
    return 0;
}

extern "C" [[gnu::visibility("default")]] int open(const char *path, int flags, ...)
{
    static const auto real = reinterpret_cast<decltype(&::open)>(::dlsym(RTLD_NEXT, "open"));
    va_list list;
    va_start(list, flags);
    const auto mode = static_cast<mode_t>((flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, int) : 0);
    va_end(list);
    return real(std::strcmp(path, kPath) == 0 ? "/dev/null" : path, flags, mode);
}
