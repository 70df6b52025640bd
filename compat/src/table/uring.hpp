// SPDX-License-Identifier: BSD-2-Clause
// io_uring(7): a process with a ring can send and receive on any of its sockets without a function of libc. Where what
// it hands to the ring can't be read in time (read_urings.hpp), all its sockets are the kernel's from then on. What is
// seen of rings, and what can't be, is in doc/multiplexing.md.
#pragma once

#include <atomic>

#include "compat/src/base/process_words.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

// This process has had a ring that can't be read: its sockets stay on the kernel, for good.
inline bool ring_in_use()
{
    return g_process.uring.in_use.load(std::memory_order_relaxed);
}

// No socket becomes accelerated now: there is such a ring, or one of which it is not known yet.
inline bool rings_forbid()
{
    return ring_in_use() || g_process.uring.unproven.load(std::memory_order_relaxed) != 0;
}

// The same, of a socket that would be accelerated now. Where it is for the latter alone, the log and vma_stats say so
// until that is over. The offload lock may be held.
bool rings_keep(Socket &s);

// Such a ring was set up, or is used; `how` it was seen is for the log. All sockets are back on the kernel when it
// returns, whichever thread was the first to see one. No lock is held.
void ring_seen(const char *how);

// A ring was set up of which it is not known yet whether it will be entered where it is seen: what is accelerated now,
// or is about to be, goes back. No lock is held.
void return_before_ring();

// For as long as one lives a ring may be among the descriptors that is being set up and will be read, or was read and
// is about to be closed by liburing: what is found then need not be another one. One that is jumped over costs later
// looks their certainty, and in the end the sockets their acceleration.
class RingComesOrGoes
{
public:
    RingComesOrGoes() { g_process.uring.begun.fetch_add(1, std::memory_order_seq_cst); }
    ~RingComesOrGoes() { g_process.uring.ended.fetch_add(1, std::memory_order_seq_cst); }
    RingComesOrGoes(const RingComesOrGoes &) = delete;
    RingComesOrGoes &operator=(const RingComesOrGoes &) = delete;
};

// Is such an io_uring among this process's descriptors? Some system calls for each descriptor; uses no memory of the
// heap.
bool finds_ring();

// Just before a stream is accelerated, once each: looks for rings that were set up past libc, now and then (the first
// eight times, then ever more rarely). True: ring_seen() is due.
bool meets_ring();

// Before a UDP socket is accelerated: looks for rings that were set up past libc, now and then (the first eight times,
// then ever more rarely). False: there is one, and the socket is not to be accelerated. No lock is held.
bool may_offload_beside_rings(Socket &s);

} // namespace vma::sock
