// SPDX-License-Identifier: BSD-2-Clause
// The UDP header (RFC 768): read and checked, and written, as a whole frame or for inet/wire/fragment.hpp. Sockets are
// table.hpp's.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "prov/vma/src/inet/wire/ethernet.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

inline constexpr std::size_t kUdpHeader = 8;

// The longest data of a datagram.
inline std::size_t max_udp_data(const IpAddress &target)
{
    return kMaxIpPayload - kUdpHeader - (target.is_v4() ? kIpv4Header : 0);
}

// What became of a packet; all but the first are reasons of dropping it, to be counted.
enum class UdpParsed : std::uint8_t {
    kDatagram,
    kTruncated,
    kBadLength, // less than a header, or more than the packet
    kBadChecksum,
    kNoChecksum, // over IPv6, where there must be one (RFC 8200, 8.1)
    kNoPort,     // target port 0
};
inline constexpr unsigned kUdpParsedKinds = static_cast<unsigned>(UdpParsed::kNoPort) + 1;

struct UdpDatagram {
    std::uint16_t source_port = 0; // 0: no answer is wanted
    std::uint16_t target_port = 0;
    Bytes data; // lives as the packet's payload does
};

// The checksum isn't computed when packet.info says that the NIC has done so.
UdpParsed parse_udp(const Packet &packet, UdpDatagram &out);

struct UdpPorts {
    std::uint16_t source = 0;
    std::uint16_t target = 0;
};

// A header for data that follows in parts, at most max_udp_data in all. The first part of those given to Fragmenter.
std::array<std::uint8_t, kUdpHeader> udp_header(const IpOut &ip, UdpPorts ports, std::span<const Bytes> data);

// The same for a device that computes the checksum.
std::array<std::uint8_t, kUdpHeader> unsummed_udp_header(const IpOut &ip, UdpPorts ports, std::span<const Bytes> data);

} // namespace vma::inet
