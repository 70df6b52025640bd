// SPDX-License-Identifier: BSD-2-Clause
// How many datagrams this process has given the kernel for each destination, whichever of its sockets sent them: who
// sends the next one there by an endpoint lets those go first. Thread-safe; a child begins with its parent's counts.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

namespace vma::sock::udp {

// Destinations that share a place wait for each other's in vain, no more.
inline constexpr std::uint32_t kSentPlaces = 4096; // power of two
using SentPlace = std::uint16_t;
inline constexpr SentPlace kNoPlace = 0xffff;
inline constexpr SentPlace kUnnamed = 0xfffe; // of a peer that the kernel does not name: one with the port 0

// Of a destination: by port and the last four bytes, so that an IPv4 address has one place, mapped or not. To no
// address is to the loopback one. kNoPlace: no internet address.
inline SentPlace sent_place(const void *address, std::size_t length)
{
    constexpr std::size_t kPort = 2, kV4 = 4, kV6Tail = 20;
    sa_family_t family = AF_UNSPEC;
    std::uint16_t port = 0;
    std::uint32_t tail = 0;
    const auto *const bytes = static_cast<const std::uint8_t *>(address);
    if (length >= sizeof family)
        std::memcpy(&family, bytes, sizeof family);
    if (!(family == AF_INET && length >= kV4 + sizeof tail) && !(family == AF_INET6 && length >= kV6Tail + sizeof tail))
        return kNoPlace;
    std::memcpy(&port, bytes + kPort, sizeof port);
    std::memcpy(&tail, bytes + (family == AF_INET6 ? kV6Tail : kV4), sizeof tail);
    if (tail == 0)
        tail = htonl(family == AF_INET6 ? 1 : INADDR_LOOPBACK);
    const std::uint64_t mixed = (std::uint64_t{tail} << 16 | port) * UINT64_C(0x9e3779b97f4a7c15);
    return static_cast<SentPlace>(mixed >> 52); // 12 bits
}
static_assert(kSentPlaces == 1U << 12);

} // namespace vma::sock::udp
