// SPDX-License-Identifier: BSD-2-Clause
// Questions to the kernel: which socket would get a datagram, and from which address would one leave. The answers are the
// kernel's own lookups, so that ports, wildcards, connected sockets and SO_REUSEPORT groups are as it sees them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "compat/src/socket/udp/names.hpp"

namespace vma::sock::udp {

// A datagram's way. Addresses of IPv4 are v4-mapped.
struct Flow {
    sockaddr_in6 source;
    sockaddr_in6 destination;
};

enum class Answer { kFound, kNobody, kUnknown };

// Who of this user gets what goes this way through the loopback interface. kNobody: none, or somebody else. kUnknown: the kernel
// doesn't tell (said once in the log), or `fd` is in another network namespace than this process.
Answer find_receiver(int fd, const Flow &flow, Identity &out);

// The address that a datagram to `destination` leaves from if its socket has none. False: there is no way.
bool find_source(const sockaddr_in6 &destination, sockaddr_in6 &source);

void diag_after_fork_in_child();

} // namespace vma::sock::udp
