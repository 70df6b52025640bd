// SPDX-License-Identifier: BSD-2-Clause
// Proof that the process at the other end of a link holds the other end of a TCP connection, without a privilege and
// without a gift: what is shown lets nobody read, write or keep open anything (doc/rendezvous.md).
#pragma once

#include "local/cm/sock_diag.hpp"

namespace vma::local {

// A TCP connection of ours, and whose word on its other end counts. Looked up once: as long as our end lives no other
// socket takes that place.
struct TcpEnd {
    int socket;            // the program's: it stays open until the connection has come about
    SocketInode own_end;   // it was this one
    SocketInode other_end; // as the kernel names it
    std::uint64_t device;  // of all sockets' inodes
    uid_t other_owner;     // the user whom the other end is of

    // 0, or a negative fi_errno: see SockDiag; -FI_ENOSYS where /proc can't tell what is in an epoll set.
    // `known`: its addresses, or nullptr, then the kernel is asked. Who doesn't know them well finds nobody.
    int assign(int tcp_socket, const TcpAddresses *known, SockDiag &kernel) noexcept;
};

// "Who has this TCP socket is at this end of the link". Empty with errno.
core::UniqueFd make_voucher(int tcp_socket, SocketInode own_end_of_link) noexcept;

// Whether it says so of that end of a link. -FI_EACCES where it doesn't; -FI_ENOTCONN where it says nothing (any more),
// as when the socket has been closed since.
int check_voucher(int voucher, const TcpEnd &tcp, SocketInode peers_end_of_link) noexcept;

// For a guest, whose epoll set could keep who looks at it waiting: "I have this TCP socket", a descriptor that opens
// nothing. Who has seen one can show it again, so it counts only beside SocketOwner. Empty with errno.
core::UniqueFd make_token(int tcp_socket) noexcept;

// Whether it says so, and `user`, whose process shows it, is the user of the other end. 0 or -FI_EACCES.
int check_token(int token, const TcpEnd &tcp, uid_t user) noexcept;

} // namespace vma::local
