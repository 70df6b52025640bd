// SPDX-License-Identifier: BSD-2-Clause
// One receive of a tracked socket as the extra API makes it: loans where the bytes came by a device that lends, else a
// copy.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "compat/src/udp/state.hpp"

namespace vma::extra {

struct Arrival {
    std::size_t most = 1;              // loans that are wanted
    std::size_t most_bytes = SIZE_MAX; // of one loan of a stream
    std::size_t copied = 0;            // by glance(): datagrams of so few bytes are copied
    std::size_t count = 0;             // 0: nothing was lent, the bytes are in the message's parts
    sock::Loan loans[2];               // the two ends of a ring
    sock::udp::About about = {};       // of a lent datagram
};

// As recvmsg(), which it also is where `arrival.count` is 0 afterwards. `force`: EIO, and nothing is taken, where it
// would be a copy.
ssize_t receive(sock::Socket &s, int fd, msghdr &message, int flags, bool force, Arrival &arrival);

// Whom a stream is connected to, where the message has a place for the name.
void name_peer(const sock::Socket &s, msghdr &message);

// One look at what has come by the endpoint: -EAGAIN where that is nothing, or another negative errno. The kernel is
// not asked.
ssize_t glance(sock::Socket &s, int fd, msghdr &message, Arrival &arrival);

} // namespace vma::extra
