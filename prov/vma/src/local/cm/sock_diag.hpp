// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says of sockets that others hold (NETLINK_SOCK_DIAG, sock_diag(7)): which one stands at the other end
// of a TCP connection or of a UNIX-domain one. It tells that to any user, of the sockets of one network namespace. A
// question takes some 4 us.
#pragma once

#include <cstdint>

#include <netinet/in.h>

#include "core/fd.hpp"

namespace vma::local {

// Inode numbers of sockets: no two that live have the same, but for a counter of 32 bits that has gone all the way
// round.
using SocketInode = std::uint32_t;

// Both ends of an established TCP connection as one of them sees it. Addresses of IPv4 are v4-mapped.
struct TcpAddresses {
    sockaddr_in6 local;
    sockaddr_in6 peer;
    std::uint64_t network; // SO_NETNS_COOKIE: the namespace in which they mean anything
};

// 0, or a negative fi_errno: it is none, or not connected.
int read_tcp_addresses(int socket, TcpAddresses &out) noexcept;

class SockDiag
{
public:
    // 0, or a negative fi_errno: -FI_ENOENT where there is no such socket (any more), or none that a process holds;
    // another one where the kernel doesn't tell, or the sockets are not of the network namespace of the calling thread.
    // `owner`: the user whom the socket is of, as this process sees users.
    int other_end_of_tcp(const TcpAddresses &addresses, SocketInode &out, uid_t &owner) noexcept;
    int other_end_of_unix(int socket, SocketInode &out) noexcept;

private:
    int open_in(std::uint64_t network) noexcept;
    int ask(const void *question, std::size_t length, void *answer, std::size_t room, std::size_t &filled) noexcept;

    core::UniqueFd netlink_;
    std::uint64_t network_ = 0; // the namespace that it asks, which stays
};

// Of a socket that the caller has. 0: it is none.
SocketInode inode_of(int socket) noexcept;
std::uint64_t network_of(int socket) noexcept; // 0 where the kernel doesn't tell

} // namespace vma::local
