// SPDX-License-Identifier: BSD-2-Clause
// A packet between the wire's layers and the transports: what the frame's headers said, and the transport's bytes.
#pragma once

#include <span>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

using Bytes = std::span<const std::uint8_t>;

inline constexpr std::uint8_t kEcnMask = 3; // of the traffic class: RFC 3168, 5
inline constexpr std::uint8_t kEcnNotCapable = 0;
inline constexpr std::uint8_t kEcnCapable1 = 1;
inline constexpr std::uint8_t kEcnCapable0 = 2;
inline constexpr std::uint8_t kEcnExperienced = 3;

// Whether the transport's checksum may be missing, because the kernel that sent the frame left it to a device, or put
// the frame together and had verified its parts. The field holds the sum of the pseudo-header then.
enum class PartialSums : std::uint8_t {
    kNone,
    // of TCP only: the frame is longer than the link's, so if it is UDP's, it is several datagrams and nobody says how
    // long
    kTcp,
    kAny,
};

// What the device says of a frame beside its bytes.
struct FrameInfo {
    bool checksums_good = false; // the NIC has verified those of IP and the transport
    Nanos arrived = 0;           // CLOCK_MONOTONIC, when the driver had it; 0: not known
    Nanos hardware = 0;          // the device's time stamp, in whatever clock it has; 0: none
    PartialSums partial_sums = PartialSums::kNone;
};

// A received packet. The payload points into the caller's frame, or into a reassembly buffer, and lives as long as
// that.
struct Packet {
    IpAddress source;
    IpAddress target;
    Protocol protocol{};
    std::uint8_t traffic_class = 0; // IPv4: type of service
    std::uint8_t hop_limit = 0;     // IPv4: time to live
    std::uint16_t vlan = 0;         // VLAN id, 0: none
    Mac source_mac;
    std::span<const std::uint8_t> payload; // from the transport's header on; padding of the frame is cut off
    FrameInfo info;
};

} // namespace vma::inet
