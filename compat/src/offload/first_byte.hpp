// SPDX-License-Identifier: BSD-2-Clause
// Accelerates connections within the host before their first byte (VMA_LIFT_AT_CONNECT, or as the habit says): the
// acceptor leaves an offer in accept(), and the connector looks for it in the first call that moves bytes
// (doc/rendezvous.md).
#pragma once

#include <netinet/in.h>

namespace vma::sock {

class Stream;

// Who leaves the offer that the other one looks for: the connector, but for what is here.
enum class Offerer { kConnector, kAcceptor };

// No lock of ours may be held. False: another thread is at it, or forks. Keeps errno where it does nothing.
[[nodiscard]] bool try_offload(Stream &s, int fd, Offerer offerer);

// Each does nothing where VMA_LIFT_AT_CONNECT is 0, and the habit doesn't say so. No lock held; errno may change.
void begin_listening(int fd);                              // after listen(); the habit says nothing of that
void begin_connecting();                                   // before connect(); keeps errno
void attach_in_connect(Stream &s, int fd, in_port_t port); // connect() has begun, to that port (network order)
void offer_at_accept(Stream &s, int fd);

} // namespace vma::sock
