// SPDX-License-Identifier: BSD-2-Clause
// io_uring(7): a process with a ring can send and receive on any of its sockets without a function of libc. Which one
// it hands to the ring is written into memory that we don't see, so from the first ring on all its sockets are the
// kernel's. What is seen of rings, and what can't be, is in doc/multiplexing.md.
#pragma once

#include <atomic>

#include "compat/src/base/process_words.hpp"

namespace vma::sock {

// This process has had a ring: its sockets stay on the kernel, for good.
inline bool ring_in_use()
{
    return g_process.uring.in_use.load(std::memory_order_relaxed);
}

// A ring was set up, or is used; `how` it was seen is for the log. All sockets are back on the kernel when it returns.
// No lock is held.
void ring_seen(const char *how);

// Is an io_uring among this process's descriptors? Some system calls for each descriptor; uses no memory of the heap.
bool finds_ring();

// Just before a stream is accelerated, once each: looks for rings that were set up past libc, now and then (the first
// eight times, then ever more rarely). True: ring_seen() is due.
bool meets_ring();

// Before a UDP socket is accelerated: looks for rings that were set up past libc, now and then (the first eight times,
// then ever more rarely). False: there is one, and the socket is not to be accelerated. No lock is held.
bool may_offload_beside_rings();

} // namespace vma::sock
