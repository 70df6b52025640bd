// SPDX-License-Identifier: BSD-2-Clause
// The Ethernet header with at most one VLAN tag (IEEE 802.1Q): its constants, and how one is written. Reading it is
// frame.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kVlanTag = 4;
inline constexpr std::size_t kMaxEthernetHeader = kEthernetHeader + kVlanTag; // that is sent
inline constexpr std::uint16_t kVlanIdMask = 0x0fff;

inline constexpr std::uint16_t kEtherIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherVlan = 0x8100;
inline constexpr std::uint16_t kEtherIpv6 = 0x86dd;
inline constexpr std::uint16_t kEtherServiceVlan = 0x88a8; // 802.1ad

// Where a frame goes on its link: what a neighbour entry and a route say.
struct L2 {
    Mac target;
    Mac source;
    std::uint16_t vlan = 0; // id, 0: untagged
};

inline std::size_t ethernet_header_size(std::uint16_t vlan)
{
    return vlan ? kEthernetHeader + kVlanTag : kEthernetHeader;
}

inline std::uint16_t ethertype_of(const IpAddress &target)
{
    return target.is_v4() ? kEtherIpv4 : kEtherIpv6;
}

// Writes ethernet_header_size(vlan) bytes and returns how many. `vlan`: 1 to 4094, 0: no tag.
inline std::size_t write_ethernet(std::uint8_t *out, const Mac &target, const Mac &source, std::uint16_t vlan,
                                  std::uint16_t ethertype)
{
    memcpy(out, target.bytes.data(), 6);
    memcpy(out + 6, source.bytes.data(), 6);
    if (!vlan) {
        store16(out + 12, ethertype);
        return kEthernetHeader;
    }
    store16(out + 12, kEtherVlan);
    store16(out + 14, vlan & kVlanIdMask);
    store16(out + 16, ethertype);
    return kEthernetHeader + kVlanTag;
}

// Ethernet and IP header of one packet; returns their bytes, after which `payload` bytes follow.
inline std::size_t write_headers(std::uint8_t *out, const L2 &l2, const IpOut &ip, std::size_t payload)
{
    const std::size_t at = write_ethernet(out, l2.target, l2.source, l2.vlan, ethertype_of(ip.target));
    return at + write_ip_header(out + at, ip, payload);
}

} // namespace vma::inet
