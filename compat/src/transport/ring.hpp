// SPDX-License-Identifier: BSD-2-Clause
// What the two transports that are rings have in common: writing and reading the ring, and taking turns with the kernel in
// spans (doc/stream-protocol.md). The locks are those of the table's entries (transport.hpp). Private to them and to the
// protocol.
#pragma once

#include "compat/src/table/stream.hpp"
#include "compat/src/transport/loans.hpp"

namespace vma::sock {

// transmit.cpp
std::size_t ring_send_small(Socket &s, const void *bytes, std::size_t len);
ssize_t ring_send(Socket &s, int fd, const msghdr *msg, std::size_t skip, int flags);
bool ring_has_room(const Socket &s);
ssize_t post_tag(Socket &s, Tag type, std::uint64_t value); // 0, -FI_EAGAIN: no slot, or -FI_ENOTCONN
void heed_last_return(Socket &s);

inline std::uint64_t ring_room_mark(const Socket &s)
{
    return s.tx.credit.load(std::memory_order_acquire);
}

// consume.cpp
ssize_t ring_receive_small(Socket &s, void *out, std::size_t len);
ssize_t ring_receive(Socket &s, int fd, msghdr *msg, std::size_t skip, int flags);
bool kernel_ended(const Socket &s, int fd); // its bytes are read, and no more will come
bool shared_ring_peer_is_gone(Socket &s, int fd);

// events.cpp
void ring_handle_entry(Socket &s, const fi_cq_data_entry &entry);
void return_receiver(Socket &s); // asks the peer for what it has written and the program has not read. rx_lock held
void shared_ring_start_leaving(Socket &s, Heir heir);
void shared_ring_give_up_waiting(Socket &s);

// endpoint_news.cpp
void ring_went_down(Socket &s, const char *why);

} // namespace vma::sock
