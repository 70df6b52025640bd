// SPDX-License-Identifier: BSD-2-Clause
// Streams on an Ethernet port: TCP of our own to any peer. The kernel opens and closes the connection, the port carries both
// directions whole in between (doc/wire-sockets.md), so none of the spans of doc/stream-protocol.md is needed. Private to
// compat/src/socket.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/socket/loan.hpp"

struct fi_cq_data_entry;

struct fi_vma_tcp_state;

namespace vma::sock {

class Socket;
struct Device;

// tx.ring of a stream on a port, whose numbers are not bytes: far more than there can be entries.
inline constexpr std::uint64_t kPortRing = std::uint64_t{1} << 62;

// Helper thread, lift lock held. Finds the port that leads to the peer, opens it if it is the first time. The socket is lifted
// by one of its next calls; false: there is none, or it can't be used (said in the log where that is news), and it stays on the kernel.
bool find_port(Socket &s);

// Lift lock held, no other lock. The connection leaves the kernel, unless somebody is in a call on it: another call tries again.
void lift_to_port(Socket &s, int fd);

// Lift, tx, rx and poll lock held. The connection is the kernel's again, as the peer left it. The endpoint is still open.
void land(Socket &s);

// What the port's queue says of a stream. Poll lock held.
void handle_port_entry(Socket &s, const fi_cq_data_entry &entry);

// No lock held. An entry may be read after its bytes were: true is what is left of them.
bool is_port_readable(Socket &s);

// tx_lock held. Bytes taken, or -EAGAIN. An end of the connection is -EAGAIN with over() set: tear_down() gives it to the kernel,
// which says how it ended.
ssize_t port_send(Socket &s, const void *bytes, std::size_t len, bool more);
ssize_t port_transmit(Socket &s, const msghdr *msg, std::size_t skip, int flags);

// rx_lock held. As above; MSG_PEEK and MSG_TRUNC as recv(2) has them.
ssize_t port_receive(Socket &s, void *out, std::size_t len);
ssize_t port_consume(Socket &s, msghdr *msg, std::size_t skip, int flags);
// rx_lock held. Up to `most` bytes, in one piece. No lender: nothing is there, it can't be lent, or the stream is at its end.
Loan port_lend(Socket &s, std::size_t most);

// Settings and state of a stream that is on a port; no lock held.
void settle_port(Socket &s, int fd); // after an option was set in the kernel
int set_keepalive(Socket &s, int fd, const void *value,
                  socklen_t len);                             // SO_KEEPALIVE, which the kernel must not do meanwhile
void overlay_tcp_info(Socket &s, void *value, socklen_t len); // over what the kernel says
bool read_port_state(Socket &s, fi_vma_tcp_state &state);     // false: it isn't on a port any more
bool is_port_urgent(Socket &s); // the peer has sent urgent data, and nothing is taken any more
bool count_port(Socket &s, std::uint32_t *readable, std::uint32_t *unacknowledged, std::uint32_t *unsent);

} // namespace vma::sock
