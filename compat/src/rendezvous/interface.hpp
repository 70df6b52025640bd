// SPDX-License-Identifier: BSD-2-Clause
// Which interface a datagram to a multicast group leaves by, as the kernel's routing decides (rtnetlink(7)).
#pragma once

#include <netinet/in.h>

#include <cstdint>

namespace vma::sock::udp {

inline constexpr std::uint32_t kLoopbackInterface = 1; // its index in each network namespace

struct GroupRoute {
    std::uint32_t interface;
    in6_addr source;  // that of a socket that is bound to none; v4-mapped
    bool is_loopback; // nothing that goes there leaves the host
    bool has_members; // somebody of this host has joined the group on it (IPv4; true for IPv6)
};

// `from`: the sender's address, which members may want or not; any: not known. `through`: the interface of
// IP_MULTICAST_IF, 0 none. False: there is no way.
bool find_group_route(const in6_addr &group, const in6_addr &from, std::uint32_t through, GroupRoute &out);

// A routing daemon of this host gets what leaves by the interface (mc_forwarding); true if the kernel doesn't answer.
bool is_multicast_router(std::uint32_t interface, bool v4);

// That IP_MULTICAST_IF or IPV6_MULTICAST_IF would choose with this value; 0: none.
std::uint32_t chosen_interface(int level, const void *value, socklen_t len);

} // namespace vma::sock::udp
