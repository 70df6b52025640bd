// SPDX-License-Identifier: BSD-2-Clause
// ICMP errors that concern a TCP connection or a UDP socket: whose packet they quote, what a program is told, and the
// path MTU. Nothing is answered or sent here: echo, neighbour discovery, redirects and IGMP are the kernel's.
#pragma once

#include <cstdint>
#include <span>

#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

// What became of an ICMP message; all but the first two are reasons of dropping it, to be counted.
enum class IcmpParsed : std::uint8_t {
    kError,     // `out` is filled
    kNotError,  // another type, or one that hosts ignore: source quench (RFC 6633), unknown codes
    kTruncated, // it or the packet in it ends within a header
    kBadChecksum,
    kBadQuote, // the packet in it was not sent by the host that is told, or isn't one
    kNoPorts,  // the packet in it is not the first fragment, or neither TCP nor UDP
    kBadMtu,   // too big, it says, while the packet in it is not, or impossible
};
inline constexpr unsigned kIcmpParsedKinds = static_cast<unsigned>(IcmpParsed::kBadMtu) + 1;

// Paths that claim less are taken for these: Linux's min_pmtu, and RFC 8200, 5.
inline constexpr std::uint32_t kMinPathMtu4 = 552;
inline constexpr std::uint32_t kMinPathMtu6 = 1280;

// Anybody can forge one. TCP believes it only if `sequence` is in flight (RFC 5927, 4.1); `hard` is what Linux tells a
// UDP socket at once, while in TCP no error ends a synchronized connection (RFC 5461, 2; RFC 1122, 4.2.3.9).
struct IcmpError {
    Flow flow;             // of the packet quoted: `local` sent it
    Protocol protocol{};   // kTcp or kUdp
    bool hard = false;     // a repetition will not help
    std::uint8_t type = 0; // as on the wire, for IP_RECVERR
    std::uint8_t code = 0;
    int error = 0;                        // errno, positive; EMSGSIZE: too big for the path
    std::uint32_t mtu = 0;                // with EMSGSIZE: of the path, in bytes with the IP header; 0 with others
    std::uint32_t sequence = 0;           // TCP's of the packet quoted
    IpAddress reporter;                   // who says so
    std::span<const std::uint8_t> quoted; // from the transport's header on, 8 bytes at least; lives as the packet does
};

// `packet`: of protocol kIcmp or kIcmp6. Its checksum is computed, as NICs don't look at ICMP's.
IcmpParsed parse_icmp(const Packet &packet, IcmpError &out);

} // namespace vma::inet
