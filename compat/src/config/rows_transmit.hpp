// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: rings, and what is sent.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kRingLogic[] = {
    {"0", 0, "0 (Ring per interface)"}, {"1", 1, "1 (Ring per ip)"},
    {"10", 10, "10 (Ring per socket)"}, {"20", 20, "20 (Ring per thread)"},
    {"30", 30, "30 (Ring per core)"},   {"31", 31, "31 (Ring per core - attach threads)"},
};

inline constexpr Parameter kTransmitRows[] = {
    {.name = "VMA_RING_ALLOCATION_LOGIC_TX",
     .label = "Ring allocation logic TX",
     .field = &Params::ring_logic_tx,
     .choices = kRingLogic,
     .overrides = {{{Spec::kMultiRing, 20}, {Spec::kMemcached, 31}, {Spec::kMemcachedIrq, 31}}},
     .idle = true,
     .text = "No effect here: what is sent goes straight to the peer's memory or to the device and completes without a "
             "queue; a connection's ring is that of VMA_RING_ALLOCATION_LOGIC_RX."},
    {.name = "VMA_RING_ALLOCATION_LOGIC_RX",
     .label = "Ring allocation logic RX",
     .field = &Params::ring_logic_rx,
     .choices = kRingLogic,
     .overrides = {{{Spec::kMultiRing, 20}, {Spec::kMemcached, 31}, {Spec::kMemcachedIrq, 31}}},
     .text =
         "Which TCP connections within the host share a ring, that is a completion queue with a lock of its own, when "
         "they leave the kernel: 0 all; 1 those of a local address; 10 none; 20 those of a thread, the one that used "
         "the connection last; 30 those of a processor, likewise; 31 likewise, and the thread stays on the processor "
         "from then on. Worth it where several threads poll each for connections of their own. A socket's "
         "SO_VMA_RING_ALLOC_LOGIC comes before it. Where neither says it, the connections and UDP sockets that are in "
         "an epoll set when they leave the kernel have that set's ring, those that a thread has in a poll() or "
         "select() with others have that thread's, and all others one, which the first set and the first such thread "
         "have too. "
         "RDMA devices and Ethernet ports have one ring a device whatever this says."},
    {.name = "VMA_RING_MIGRATION_RATIO_TX",
     .label = "Ring migration ratio TX",
     .field = &Params::ring_migration_tx,
     .fallback = 100,
     .min = -1,
     .max = kMostNumber,
     .idle = true,
     .text = "No effect here, as VMA_RING_ALLOCATION_LOGIC_TX."},
    {.name = "VMA_RING_MIGRATION_RATIO_RX",
     .label = "Ring migration ratio RX",
     .field = &Params::ring_migration_rx,
     .fallback = 100,
     .min = -1,
     .max = kMostNumber,
     .text =
         "With VMA_RING_ALLOCATION_LOGIC_RX 20, 30 or 31: a connection that is received from more often than this in "
         "turn by one thread, or on one processor, that is not its ring's moves to that one's ring, by way of the "
         "kernel. -1: never."},
    {.name = "VMA_RING_LIMIT_PER_INTERFACE",
     .label = "Ring limit per interface",
     .field = &Params::ring_limit,
     .max = kMostNumber,
     .text =
         "How many rings there are at the most (VMA_RING_ALLOCATION_LOGIC_RX); who would need one more shares the one "
         "that the fewest use. 0 and more than 32 are as 32."},
    {.name = "VMA_RING_DEV_MEM_TX",
     .label = "Ring On Device Memory TX",
     .field = &Params::ring_dev_mem_tx,
     .max = 256 << 10,
     .overrides = {{{Spec::kLatency, 16384}, {Spec::kUltraLatency, 16384}}},
     .text =
         "Bytes of an RDMA device's own memory that each connection to another host sends from what is too long to go "
         "inline; 0 for none. A device that has none, or none left, sends from the host's memory."},
    {.name = "VMA_TX_SEGS_TCP",
     .label = "Tx Mem Segs TCP",
     .field = &Params::tx_segs_tcp,
     .fallback = 1000000,
     .max = kMostNumber,
     .overrides = {{{Spec::kUltraLatency, 512}}},
     .idle = true,
     .text = "No effect here: there is no pool of segments; each connection has room for what its SO_SNDBUF admits."},
    {.name = "VMA_TX_BUFS",
     .label = "Tx Mem Bufs",
     .field = &Params::tx_bufs,
     .fallback = 200000,
     .max = kMostNumber,
     .overrides = {{{Spec::kUltraLatency, 512}, {Spec::k7750, 8192}}},
     .idle = true,
     .text = "No effect here: there is no pool of buffers; what is sent lies in the peer's ring, in that of its device "
             "or in that of the port."},
    {.name = "VMA_TX_WRE",
     .label = "Tx QP WRE",
     .field = &Params::tx_wre,
     .fallback = 2048,
     .min = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::kLatency, 256}, {Spec::kUltraLatency, 256}}},
     .text = "Operations that wait to be sent at a time on a connection's endpoint of an RDMA device; at least 16, at "
             "most 4096 and what the device has; the default stands for 256."},
    {.name = "VMA_TX_WRE_BATCHING",
     .label = "Tx QP WRE Batching",
     .field = &Params::tx_wre_batching,
     .fallback = 64,
     .min = 1,
     .max = 64,
     .overrides = {{{Spec::kLatency, 4}, {Spec::kUltraLatency, 4}}},
     .idle = true,
     .text = "No effect here: the provider itself decides which of its operations a device reports."},
    {.name = "VMA_TX_MAX_INLINE",
     .label = "Tx Max QP INLINE",
     .field = &Params::tx_max_inline,
     .fallback = 204,
     .max = 884,
     .text =
         "Bytes that a connection's endpoint of an RDMA device sends inline at the most, 0 for none of the program's; "
         "never more than the device can. The default stands for what it can."},
    {.name = "VMA_TX_MC_LOOPBACK",
     .label = "Tx MC Loopback",
     .field = &Params::tx_mc_loopback,
     .fallback = 1,
     .text = "IP_MULTICAST_LOOP and IPV6_MULTICAST_LOOP of a new UDP socket, until the program sets them."},
    {.name = "VMA_TX_NONBLOCKED_EAGAINS",
     .label = "Tx non-blocked eagains",
     .field = &Params::tx_nonblocked_eagains,
     .text = "Whether a send that doesn't wait ends with EAGAIN when its datagram is lost because the receiver, or "
             "every member of a group, has no room; else it succeeds, as in the kernel."},
    {.name = "VMA_TX_PREFETCH_BYTES",
     .label = "Tx Prefetch Bytes",
     .field = &Params::tx_prefetch_bytes,
     .fallback = 256,
     .max = 65535,
     .idle = true,
     .text = "No effect here: what is sent is copied at once, into memory that the processor fetches by itself."},
};

} // namespace vma::config
