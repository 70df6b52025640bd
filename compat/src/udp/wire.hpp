// SPDX-License-Identifier: BSD-2-Clause
// What stands before the bytes of a datagram in the memory of two processes: for whom it is, and what the kernel would
// know of it (addresses, TTL, TOS). Nothing that is read here is believed before it was copied and checked.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock::udp {

inline constexpr std::uint32_t kMostInterface = 0x7fffffff; // an index is an int of the kernel's

// What is known of a datagram besides its bytes. Addresses of IPv4 are v4-mapped.
struct About {
    in6_addr source;
    in6_addr destination;
    std::uint16_t source_port; // network byte order
    std::uint8_t tos;
    std::uint8_t ttl;
    std::uint32_t interface : 31;   // index of the one it came by
    std::uint32_t after_kernel : 1; // earlier ones of the same sender came by the kernel
    union {                         // 64 bytes with the length, as it stands in a queue
        std::uint32_t
            lost; // before it arrives: datagrams of this sender to this socket that found no room, since the last one
        std::int64_t hardware_ns; // from then on: the device's clock, 0: it has not stamped it
    };
    std::int64_t arrived_ns = 0; // CLOCK_REALTIME, 0 unless the socket asks for it
};

// The receiving socket, in the CQ data: index in its process's pool, cookie, and flags.
inline constexpr std::uint64_t kToIpv6 = UINT64_C(1) << 52;
inline constexpr std::uint64_t kToAfterKernel = UINT64_C(1) << 53;
inline constexpr std::uint64_t kToGroup = UINT64_C(1) << 54; // for all sockets of the process that are in the group

inline constexpr std::uint64_t make_to(std::uint32_t index, std::uint32_t cookie)
{
    return std::uint64_t{cookie} | std::uint64_t{index & 0xfffff} << 32;
}
inline constexpr std::uint32_t index_of(std::uint64_t to)
{
    return static_cast<std::uint32_t>(to >> 32) & 0xfffff;
}
inline constexpr std::uint32_t cookie_of(std::uint64_t to)
{
    return static_cast<std::uint32_t>(to);
}

struct HeaderStart {
    std::uint16_t source_port;
    std::uint8_t tos;
    std::uint8_t ttl;
    std::uint32_t interface;
    std::uint32_t lost;
};
inline constexpr std::size_t kIpv4Header =
    sizeof(HeaderStart) + 2 * sizeof(in_addr); // 20: 28 bytes more fit into a line
inline constexpr std::size_t kIpv6Header = sizeof(HeaderStart) + 2 * sizeof(in6_addr);

// Writes a header; returns its length. `out` has room for kIpv6Header.
inline std::size_t write_header(const About &about, bool ipv6, std::uint8_t *out)
{
    const HeaderStart start = {about.source_port, about.tos, about.ttl, about.interface, about.lost};
    std::memcpy(out, &start, sizeof start);
    out += sizeof start;
    const std::size_t skip = ipv6 ? 0 : 12;
    const std::size_t length = sizeof(in6_addr) - skip;
    std::memcpy(out, &about.source.s6_addr[skip], length);
    std::memcpy(out + length, &about.destination.s6_addr[skip], length);
    return ipv6 ? kIpv6Header : kIpv4Header;
}

// The length of the header that `in` begins with, which is copied out; 0: it is too short for one.
inline std::size_t read_header(std::uint64_t to, const void *in, std::size_t length, About &about)
{
    const bool ipv6 = (to & kToIpv6) != 0;
    const std::size_t size = ipv6 ? kIpv6Header : kIpv4Header;
    if (length < size)
        return 0;
    HeaderStart start;
    const auto *bytes = static_cast<const std::uint8_t *>(in);
    std::memcpy(&start, bytes, sizeof start);
    bytes += sizeof start;
    if (ipv6) {
        std::memcpy(&about.source, bytes, sizeof about.source);
        std::memcpy(&about.destination, bytes + sizeof about.source, sizeof about.destination);
    } else {
        in_addr pair[2];
        std::memcpy(pair, bytes, sizeof pair);
        about.source = mapped(pair[0]);
        about.destination = mapped(pair[1]);
    }
    about.source_port = start.source_port;
    about.tos = start.tos;
    about.ttl = start.ttl;
    about.interface = start.interface & kMostInterface;
    about.lost = start.lost;
    about.after_kernel = (to & kToAfterKernel) != 0;
    about.arrived_ns = 0;
    return size;
}

} // namespace vma::sock::udp
