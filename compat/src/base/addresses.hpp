// SPDX-License-Identifier: BSD-2-Clause
// Internet addresses of kernel sockets, all as IPv6 addresses: those of IPv4 in their v4-mapped form.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

// The two ends of a connection; v4 addresses in their v4-mapped form.
struct Addresses {
    sockaddr_in6 local;
    sockaddr_in6 peer;
    std::uint64_t network =
        0; // the namespace that they are of: a program may change its own (setns(2)) and has sockets of both then
};

// Of a sockaddr_in or sockaddr_in6, in that form. False: it is neither.
bool to_v6(const void *address, sockaddr_in6 &out);
in6_addr mapped(const in_addr &v4);
bool is_loopback(const in6_addr &a);

enum class Side : std::uint8_t { kLocal, kPeer };
// Of a kernel socket. False: it has none, or not an internet address.
bool read_address(int fd, Side side, sockaddr_in6 &out);

inline constexpr std::size_t kAddressText = 64;
const char *print_address(const sockaddr_in6 &a, char (&out)[kAddressText]); // "127.0.0.1:80", "[::1]:80"

} // namespace vma::sock
