// SPDX-License-Identifier: BSD-2-Clause
// One receiving call on a UDP socket, and what it may take its datagram from besides the queue: the kernel, and what
// other processes may read as well.
#pragma once

#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

// One receiving call: where it wants the datagram, and what came of it.
struct Receive {
    Socket &s;
    int fd;
    msghdr &msg;
    int flags;
    std::uint32_t turns = 0;
    bool sure = false;         // after a look: nothing was there, nor with others
    RingMask ring = kMainRing; // that was looked at
    ssize_t result = 0;
    bool force = false;     // what the kernel has is not taken: EIO
    std::size_t copied = 0; // bytes that are no loan in any case
    Loan *loan = nullptr;   // instead of the bytes, where that can be
    About *about = nullptr;
};

// The bytes are where they belong: the rest of what recvmsg() returns.
void finish(Receive &call, const About &about, std::size_t length);

// receive_kernel.cpp, rx_lock may be held.
inline constexpr int kKernelOnly = MSG_ERRQUEUE; // MSG_OOB means nothing to UDP
bool only_by_kernel(const Socket &s, int flags);
bool kernel_has_one(Receive &call);   // without taking it. False: it has nothing, or there is an error to tell
bool take_from_kernel(Receive &call); // false: it has nothing. rx_lock held where the socket tells losses
// No lock held: the kernel's own call, of a socket that takes datagrams by it alone. What was lost here in a better
// time stands in the message.
ssize_t receive_by_kernel(Socket &s, int fd, msghdr *msg, int flags);
// A socket that takes datagrams by the kernel alone has losses that the kernel does not know, and tells them.
inline bool has_told_losses(const Socket &s, int fd)
{
    return state_of(s).losses.all() != 0 && is_on(fd, SOL_SOCKET, SO_RXQ_OVFL);
}

// receive_shared.cpp: the first of those that other processes may read as well; they came before all that the kernel
// has. rx_lock held. False: there is none.
bool take_shared(Receive &call);
inline constexpr ssize_t kBehindAll = -1000;  // its result: a peek at a place behind all that is there
ssize_t wait_behind_all(const Receive &call); // no lock held

} // namespace vma::sock::udp
