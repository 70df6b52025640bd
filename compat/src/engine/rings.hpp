// SPDX-License-Identifier: BSD-2-Clause
// Rings besides the engine's own one: completion queues of the local device, each with a poll lock of its own, and the
// connections and UDP sockets that are bound to it. VMA_RING_ALLOCATION_LOGIC_RX says who shares one. A ring that was
// opened stays open, and goes to another key when nobody uses it any more. doc/rings.md
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <cstdint>

#include "compat/src/engine/engine.hpp"

namespace vma::sock {

class Socket;
class Stream;

inline constexpr unsigned kMostRings = 32; // the engine's own among them

// ---- for the engine: as its functions of those names, and only about the rings that are open and in `rings`
// Without the engine's own. Written with the offload lock held, read without.
struct MoreRings {
    std::atomic<RingMask> open{0};
    std::atomic<int> all_fd{-1}; // an epoll set of all queues' descriptors
};
unsigned poll_more_rings(RingMask rings, udp::Direct *direct = nullptr);
unsigned drain_more_rings(RingMask rings, unsigned most);
bool arm_more_rings(RingMask rings);
void count_sleepers(RingMask rings, bool more);
void leave_more_rings(RingMask rings);
void exclude_polling_of_more(RingMask rings, bool exclude);
Looks looks_at_more_rings();
// Helper thread: those that the program has not polled since the last call, or `all`.
void drain_unpolled_rings(unsigned most, bool all);
int more_rings_fd(unsigned ring);
// VMA_INTERNAL_THREAD_ARM_CQ: readable with any queue; `first` is the engine's own. -1: not to be had.
int fd_of_all_rings(int first);
void rings_after_fork_in_child();

// ---- for offloading; offload lock held
// By the thread of the program that uses the socket, before there is an endpoint: whose it is.
void claim_ring(Socket &s);
void claim_ring_for_guests(Socket &s); // where the peer is another user's
// The ring for a new endpoint of the local device. It counts as used until leave_ring().
unsigned enter_ring(Socket &s);
void leave_ring(Socket &s);
// The ring for what a UDP socket gets, and the port of that ring's endpoint. engine_start_datagrams() has been true.
// Likewise until leave_ring().
void enter_datagram_ring(Socket &s);
std::uint16_t datagram_port_of(const Socket &s);
struct Objects;
fid_cq *queue_of_ring(const Objects &objects, unsigned ring);
// Helper thread: back to the kernel, if another thread's ring would be the right one. The next offload takes that one.
void move_if_due(Stream &s);
const char *name_of_ring(unsigned ring);
const char *name_of_ring(const Socket &s); // for the counters: "local", "local ring 3"

// ---- for receiving calls: somebody reads. `Socket::counts_access` says whether it is worth it.
void note_access(Socket &s);

} // namespace vma::sock
