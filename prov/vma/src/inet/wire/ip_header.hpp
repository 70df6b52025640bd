// SPDX-License-Identifier: BSD-2-Clause
// IPv4 and IPv6 headers: where their fields stand, and how one is written. Reading them is frame.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

inline constexpr std::size_t kIpv4Header = 20; // without options
inline constexpr std::size_t kIpv6Header = 40;
inline constexpr std::size_t kIpv6FragmentHeader = 8;
inline constexpr std::size_t kMaxIpPayload = 65535; // IPv4's is less by its header

inline constexpr std::uint16_t kDontFragment = 0x4000; // of IPv4's field of flags and fragment offset
inline constexpr std::uint16_t kMoreFragments = 0x2000;
inline constexpr std::uint16_t kFragmentOffset = 0x1fff; // in units of 8 bytes

inline constexpr std::uint8_t kHopByHop = 0; // IPv6's next headers that are no transports (RFC 8200, 4)
inline constexpr std::uint8_t kRouting = 43;
inline constexpr std::uint8_t kFragmentHeader = 44;
inline constexpr std::uint8_t kAuthentication = 51;
inline constexpr std::uint8_t kNoNextHeader = 59;
inline constexpr std::uint8_t kDestinationOptions = 60;

// What is said in the header of a packet to be sent; source and target are of one family.
struct IpOut {
    IpAddress source;
    IpAddress target;
    Protocol protocol{};
    std::uint8_t traffic_class = 0; // IPv4: type of service
    std::uint8_t hop_limit = 64;    // IPv4: time to live
    std::uint16_t id = 0;           // IPv4 only; may be 0 when it can't be fragmented (RFC 6864, 4)
    bool dont_fragment = true;      // IPv4 only
    std::uint32_t flow_label = 0;   // IPv6 only, 20 bits
};

inline std::size_t ip_header_size(const IpAddress &target)
{
    return target.is_v4() ? kIpv4Header : kIpv6Header;
}

// Writes ip_header_size(target) bytes, IPv4's checksum included, and returns how many. `payload`: bytes that follow, at
// most 65,535 with IPv4's header. `fragment`: IPv4's more-fragments flag and offset, for fragment.hpp.
std::size_t write_ip_header(std::uint8_t *out, const IpOut &, std::size_t payload, std::uint16_t fragment = 0);

} // namespace vma::inet
