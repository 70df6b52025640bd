// SPDX-License-Identifier: BSD-2-Clause
// What datagram endpoints ask of the machine beside frames: next hops to peers and groups, membership, the kernel's own
// socket.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <sys/socket.h>

#include "ether/net_if.hpp"

namespace vma::ether {

// The address that fi_mc_addr() gives for a group, and which of an endpoint's groups it is.
inline constexpr fi_addr_t kGroupBit = fi_addr_t{1} << 62;
inline bool is_group_address(fi_addr_t address) noexcept
{
    return (address & kGroupBit) != 0 && address != FI_ADDR_UNSPEC;
}
inline std::size_t group_number(fi_addr_t address) noexcept
{
    return address & ~kGroupBit;
}

// A next hop to a peer or a group, to be released, and the address of ours that is sent from: `local`, or where that is
// any, the route's. 0 or a negative errno.
int find_next_hop_to(NetIf &net_if, const inet::IpAddress &local, const inet::IpAddress &remote,
                     inet::IpAddress &source, inet::NextHopIndex &next_hop) noexcept;

// The kernel's socket joins a group on the NIC's interface until it is closed: it is the kernel that tells routers. 0
// or a negative errno.
int join_in_kernel(int socket, unsigned interface, const inet::IpAddress &group) noexcept;

// recvmsg(2) without waiting: the datagram's whole length, or a negative errno.
std::int64_t receive_from_kernel(int socket, msghdr &message) noexcept;

} // namespace vma::ether
