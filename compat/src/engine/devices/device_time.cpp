// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/devices/device_time.hpp"
#include "compat/src/engine/engine.hpp"

#include <string.h>

#include <algorithm>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kSoonNs = 45'000'000; // at first, until the rate is known well: each look of the helper thread
constexpr std::uint32_t kSoonLooks = 20;
constexpr std::int64_t kLaterNs = 1'000'000'000;

enum Wanted : int { kDisabled, kRaw, kBest, kSync, kPtpSync }; // the manual's numbers

bool can_read_times(const Device &d)
{
    return d.udp != nullptr && d.udp->size > offsetof(fi_ops_vma_udp, read_times); // VMA_PROVIDER may name an older one
}

void ask_skills(Device &d)
{
    DeviceTime &t = d.time;
    t.asked = true;
    t.can = {};
    t.can.stamps = (d.udp->stamps(d.domain) & FI_VMA_STAMPS_HARDWARE) != 0;
    fi_vma_times times = {};
    if (!t.can.stamps || !can_read_times(d))
        return;
    const int error = d.udp->read_times(d.domain, &times);
    t.can.system = error == 0;
    t.can.ptp = error == 0 && times.has_ptp != 0;
    VMA_LOG(kDebug, "port %s: its device stamps datagrams%s%s", d.name,
            t.can.system ? ", tells its clock beside the system's" : ", and does not tell its clock: ",
            t.can.system ? (t.can.ptp ? " and a PTP clock" : ", has no PTP clock") : strerror(-error));
}

// Somebody has asked for such times: ports have none by themselves.
void complain(const char *name, const char *what, config::Level level = config::Level::kWarn)
{
    if (config::log_enabled(level))
        config::log_line(level, "VMA_HW_TS_CONVERSION=%d: port %s %s", config::params().hw_ts_conversion, name, what);
}

// One line for the first device that can't do what is wanted.
void explain(int wanted, TimeBy by)
{
    bool said = false;
    each_remote_device([&](const Device &d) {
        const TimeSkills &can = d.time.can;
        if (said || d.udp == nullptr || !can.stamps)
            return;
        said = true;
        if (wanted == kPtpSync && by == TimeBy::kSystem && !can.ptp)
            complain(d.name, "has no PTP clock: times of devices are told in the system's time, as by 3");
        else if (wanted >= kSync && by == TimeBy::kNothing && !can.system)
            complain(d.name, "does not tell its clock beside the system's: times of devices are disabled, and sockets "
                             "that ask for them stay with the kernel");
        else if (wanted == kBest && by == TimeBy::kDevice && !can.system)
            complain(d.name,
                     "does not tell its clock beside the system's: times of devices are those of their own "
                     "clocks, as by 1",
                     config::Level::kInfo);
        else
            said = false;
    });
}

bool read_clocks(Device &d, TimeBy by, std::int64_t now)
{
    DeviceTime &t = d.time;
    if (by < TimeBy::kSystem || now < t.next_ns)
        return false;
    t.next_ns = now + (++t.looks < kSoonLooks ? kSoonNs : kLaterNs);
    fi_vma_times times = {};
    if (d.udp->read_times(d.domain, &times) != 0 || (by == TimeBy::kPtp && times.has_ptp == 0))
        return false; // it goes on as it did
    return by == TimeBy::kPtp ? t.followed.add({times.device_ns, times.ptp_ns, times.ptp_within_ns})
                              : t.followed.add({times.device_ns, times.system_ns, times.system_within_ns});
}

void follow(Device &d, TimeBy by, std::int64_t now)
{
    DeviceTime &t = d.time;
    const bool changes = t.by != by;
    if (changes) {
        t.followed = {};
        t.next_ns = 0;
        t.looks = 0;
    }
    if (!read_clocks(d, by, now) && !changes)
        return;
    engine_exclude_polling(true);
    t.by = by < TimeBy::kSystem || t.followed.is_known() ? by : TimeBy::kNothing;
    t.line = t.followed.line();
    engine_exclude_polling(false);
}

} // namespace

TimeBy choose_time(int wanted, const TimeSkills *devices, std::size_t count)
{
    const TimeSkills *const end = devices + count;
    const bool system = std::all_of(devices, end, [](const TimeSkills &d) { return !d.stamps || d.system; });
    const bool ptp = std::all_of(devices, end, [](const TimeSkills &d) { return !d.stamps || d.ptp; });
    switch (wanted) {
    case kRaw:
        return TimeBy::kDevice;
    case kBest:
        return system ? TimeBy::kSystem : TimeBy::kDevice;
    case kSync:
        return system ? TimeBy::kSystem : TimeBy::kNothing;
    case kPtpSync:
        return ptp ? TimeBy::kPtp : system ? TimeBy::kSystem : TimeBy::kNothing;
    default:
        return TimeBy::kNothing;
    }
}

void follow_device_times()
{
    TimeSkills skills[kMostDevices];
    std::size_t count = 0;
    bool others = false;
    each_remote_device([&](Device &d) {
        if (d.udp == nullptr)
            return;
        if (!d.time.asked) {
            ask_skills(d);
            others = others || d.time.can.stamps;
        }
        if (d.time.can.stamps)
            skills[count++] = d.time.can;
    });
    if (count == 0)
        return;
    const int wanted = config::params().hw_ts_conversion;
    const TimeBy by = choose_time(wanted, skills, count);
    if (others)
        explain(wanted, by);
    const std::int64_t now = now_ns();
    each_remote_device([by, now](Device &d) {
        if (d.udp != nullptr && d.time.can.stamps)
            follow(d, by, now);
    });
}

std::int64_t time_of_device(std::uint32_t interface, std::int64_t stamp)
{
    std::int64_t told = 0;
    each_remote_device([&](const Device &d) {
        if (d.udp == nullptr || d.interface != interface)
            return;
        if (d.time.by == TimeBy::kDevice)
            told = stamp;
        else if (d.time.by != TimeBy::kNothing)
            told = d.time.line.at(stamp);
    });
    return told;
}

bool tells_device_times(const Device &d)
{
    return d.time.can.stamps && d.time.by != TimeBy::kNothing;
}

} // namespace vma::sock
