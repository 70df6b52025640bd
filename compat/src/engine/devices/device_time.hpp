// SPDX-License-Identifier: BSD-2-Clause
// By which clock programs are told when a device has received a datagram: VMA_HW_TS_CONVERSION, for all ports of the
// process alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compat/src/base/time_line.hpp"

namespace vma::sock {

struct Device;

enum class TimeBy : std::uint8_t {
    kNothing, // they are not told
    kDevice,  // as the device stamps
    kSystem,  // CLOCK_REALTIME
    kPtp,     // the PTP clock of the interface
};

// What a port's device can.
struct TimeSkills {
    bool stamps = false;
    bool system = false; // tells its clock beside the system's
    bool ptp = false;    // and a PTP clock beside it
};

// What the parameter's value comes to with these devices, of which those that stamp nothing don't count. Pure.
TimeBy choose_time(int wanted, const TimeSkills *devices, std::size_t count);

struct DeviceTime {
    // offload lock
    bool asked = false; // what it can is known
    TimeSkills can;
    TimeLine followed;
    std::int64_t next_ns = 0; // CLOCK_MONOTONIC of the next look
    std::uint32_t looks = 0;
    // read with the poll lock held, written with both
    TimeBy by = TimeBy::kNothing;
    Line line;
};

// Helper thread, or where a socket begins to ask for such times; offload lock held. Looks at the clocks that are due,
// which takes some microseconds a second and device, and decides anew where there are other devices than before.
void follow_device_times();

// Poll lock held. A stamp of the port with this interface, not 0, as the program is told; 0: it isn't.
std::int64_t time_of_device(std::uint32_t interface, std::int64_t stamp);

// Offload lock held. Whether sockets that ask for the device's times get them by this port.
bool tells_device_times(const Device &d);

} // namespace vma::sock
