// SPDX-License-Identifier: BSD-2-Clause
// A frame's bytes, checked once and read into a Packet: Ethernet, VLAN tags, IPv4 with options, IPv6 with extension
// headers. Everything that a frame claims of itself is checked here and nowhere behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

// What became of a frame; all but the first two are reasons of dropping it, to be counted.
enum class Parsed : std::uint8_t {
    kPacket,            // whole: `out` is filled
    kFragment,          // `out` and `fragment` are filled, for reassembly.hpp
    kNotIp,             // not for this stack: another ethertype, or a service provider's VLAN
    kTruncated,         // it ends within a header
    kBadVersion,        // the ethertype says another than the header
    kBadHeaderChecksum, // IPv4's
    kBadLength,         // lengths that contradict each other or the frame's
    kBadOptions,        // IPv4 options or IPv6 extension headers that run out of their bounds, or are out of order
    kSourceRouted,      // loose or strict source route, IPv6 routing header with segments left or of type 0 (RFC 5095)
    kUnsupportedExtension, // an option or header that says: drop me if you don't know me
    kJumbogram,            // RFC 2675, which needs links that no one has
    kMartian,              // a source that can't be answered (RFC 1122, 3.2.1.3), or TCP to a group (RFC 9293, 3.10.7)
};
inline constexpr unsigned kParsedKinds = static_cast<unsigned>(Parsed::kMartian) + 1;

struct FragmentInfo {
    std::uint32_t id = 0;     // IPv4: 16 bits
    std::uint16_t offset = 0; // in bytes, a multiple of 8
    bool more = false;
};

// At most this many extension headers, or options within one (RFC 8504, 5.3 asks for 8 at least).
inline constexpr unsigned kMaxExtensions = 8;

// `out` is filled for kPacket and kFragment only, with a payload that points into `frame`. IPv4's header checksum isn't
// computed when `info` says it is good; the transports' are always theirs to check. A fragment that holds all of an
// IPv6 packet is a packet (RFC 6946). packet.protocol can be any number: a fragment's may be that of an IPv6 extension
// header.
Parsed parse_frame(std::span<const std::uint8_t> frame, const FrameInfo &info, Packet &out, FragmentInfo &fragment);

// Steps over the IPv6 extension headers at the start of packet.payload, the first of which packet.protocol names. Says
// kPacket when a transport is there, kFragment when a fragment's data is. For what reassembly has put together as well,
// where a further fragment header is an error: `fragment` null.
Parsed walk_extensions(Packet &packet, FragmentInfo *fragment);

} // namespace vma::inet
