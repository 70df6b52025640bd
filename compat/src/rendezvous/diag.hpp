// SPDX-License-Identifier: BSD-2-Clause
// Questions to the kernel: which socket would get a datagram, and from which address would one leave. The answers are
// the kernel's own lookups, so that ports, wildcards, connected sockets and SO_REUSEPORT groups are as it sees them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "compat/src/rendezvous/names.hpp"
#include "compat/src/rendezvous/peer.hpp"

namespace vma::sock::udp {

// A datagram's way. Addresses of IPv4 are v4-mapped.
struct Flow {
    sockaddr_in6 source;
    sockaddr_in6 destination;
};

enum class Answer { kFound, kNobody, kUnknown };

// Who of this user gets what goes this way through the loopback interface, and how many bytes of the kernel's memory
// hold what it has not read. kNobody: none, or somebody else. kUnknown: the kernel doesn't tell (said once in the log),
// or `fd` is in another network namespace than this process.
Answer find_receiver(int fd, const Flow &flow, Identity &out, std::uint32_t *unread = nullptr);

// All sockets of this host, whose ever, that the kernel may give a datagram to a group when it comes by this interface;
// which of them have joined, and from whom they want it, is not looked at; a source that is any stands for all. False:
// it doesn't tell.
bool list_receivers(int fd, const Flow &flow, std::uint32_t interface, std::vector<Identity> &out);

// Who has the other end of a connected TCP socket. Asked of both ends, the kernel's look-up has no second answer.
PeerAnswer find_other_end(const Addresses &addresses, Peer &out);

bool is_any(const in6_addr &a); // of both families

// The address that a datagram to `destination` leaves from if its socket has none. False: there is no way.
bool find_source(const sockaddr_in6 &destination, sockaddr_in6 &source);

std::uint64_t network_of(int fd);  // the namespace of a socket's; 0 of all where the kernel doesn't tell
std::uint64_t network_of_thread(); // that sockets which the caller makes are in

void diag_after_fork_in_child();

} // namespace vma::sock::udp
