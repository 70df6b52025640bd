// SPDX-License-Identifier: BSD-2-Clause
// What the two transports that are rings have in common: writing and reading the ring, and taking turns with the kernel
// in spans (doc/stream-protocol.md). The locks are those of the table's entries (transport.hpp). Private to them and to
// the protocol.
#pragma once

#include "compat/src/table/stream.hpp"
#include "compat/src/transport/loans.hpp"

namespace vma::sock {

// transmit.cpp
std::size_t ring_send_small(Stream &s, const void *bytes, std::size_t len);
ssize_t ring_send(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags);
bool ring_has_room(const Stream &s);
ssize_t post_tag(Stream &s, Tag type, std::uint64_t value); // 0, -FI_EAGAIN: no slot, or -FI_ENOTCONN
void heed_last_return(Stream &s);

inline std::uint64_t ring_room_mark(const Stream &s)
{
    return s.tx.credit.load(std::memory_order_acquire);
}

// consume.cpp
ssize_t ring_receive_small(Stream &s, void *out, std::size_t len);
ssize_t ring_receive(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags);
// What the program asks for from `skip` on, out of the ring, whatever comes before that. MSG_TRUNC throws bytes away,
// MSG_PEEK leaves them. Bytes, or -EFAULT. rx_lock held.
ssize_t consume_endpoint(Stream &s, const msghdr *msg, std::size_t skip, int flags);
// The program's vectors from `skip` on, limited to `limit` bytes. How many there are.
std::size_t clip(const msghdr *msg, std::size_t skip, std::uint64_t limit, iovec *out, std::size_t max);
bool kernel_ended(const Stream &s, int fd); // its bytes are read, and no more will come
bool shared_ring_peer_is_gone(Stream &s, int fd);

// peek.cpp: of a peek that has told the `done` bytes that come first, how many there are in all. rx_lock held.
ssize_t peek_on(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, ssize_t done);
ssize_t peek_behind_shared(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, ssize_t done);

// events.cpp
void return_receiver(Stream &s); // asks the peer for what it has written and the program has not read. rx_lock held
void shared_ring_start_leaving(Stream &s, Heir heir);
void shared_ring_give_up_waiting(Stream &s);

// endpoint_news.cpp
void ring_went_down(Stream &s, const char *why);

// The entries of both tables that are the same: the bytes, and the kernel's socket has the options.
consteval Transport ring_entries()
{
    Transport t = {};
    t.spans = true;
    t.send_small = ring_send_small;
    t.send = ring_send;
    t.send_nothing = [](Stream &) { return false; };
    t.receive_small = ring_receive_small;
    t.receive = ring_receive;
    t.lend = ring_lend;
    t.has_input = ring_has_input;
    t.has_room = ring_has_room;
    t.confirm_input = [](Stream &) { return true; };
    t.room_mark = ring_room_mark;
    t.count = [](Stream &, QueuedBytes &) { return false; };
    t.set_option = [](Stream &, int, int, int, const void *, socklen_t, int &) { return false; };
    t.option_was_set = [](Stream &, int, int, int, const void *) {};
    t.correct_option = [](Stream &, int, int, void *, socklen_t) {};
    return t;
}

} // namespace vma::sock
