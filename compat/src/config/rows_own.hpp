// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: what VMA does not have.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Parameter kOwnRows[] = {
    {.name = "VMA_LIFT_AFTER",
     .label = "Lift After (calls)",
     .field = &Params::lift_after,
     .fallback = 32,
     .min = 1,
     .max = 1000000000,
     .overrides = {{{Spec::kLatency, 1}, {Spec::kUltraLatency, 1}, {Spec::kMultiRing, 1}}},
     .text =
         "After how many sends and receives a connection leaves the kernel. Where nobody says it, and connections of a "
         "process have ended lately before that was worth it, later ones wait longer, up to 16 times as long; where "
         "they went on between processes that had met before, a quarter as long."},
    {.name = "VMA_LIFT_AT_CONNECT",
     .label = "Lift At Connect (usec)",
     .field = &Params::lift_at_connect,
     .fallback = 0,
     .min = 0,
     .max = 60000000,
     .overrides = {{{Spec::kLatency, 1000}, {Spec::kUltraLatency, 1000}}},
     .text = "Connections within the host, of processes that both have it, are accelerated before their first byte: "
             "their first call waits for that, or connect() where the server speaks first, at most so long. 0: no call "
             "waits, and the first messages go by the kernel. It is 0 where RLIMIT_NOFILE is less than 256, and where "
             "VMA_LIFT_AFTER alone is set. Where nobody says either, a process does so with those connections that "
             "would have gained by it lately, and at most for a millisecond."},
    {.name = "VMA_IDLE_STREAMS",
     .label = "Idle Streams",
     .field = &Params::idle_streams,
     .fallback = 512,
     .min = 0,
     .max = 1000000000,
     .text = "Where more connections of this host than this are accelerated, those that carry nothing go back to the "
             "kernel until they are used again."},
    {.name = "VMA_IDLE_MSEC",
     .label = "Idle Time (msec)",
     .field = &Params::idle_msec,
     .fallback = 10000,
     .min = 1,
     .max = 1000000000,
     .text = "How long such a connection has carried nothing by then."},
    {.name = "VMA_STREAM_RING",
     .label = "Stream Ring (bytes)",
     .field = &Params::stream_ring,
     .fallback = 256 << 10,
     .min = kLeastStreamRing,
     .max = 16 << 20,
     .power_of_two = true,
     .text =
         "Receive buffer of an accelerated connection; a smaller one, of 65536 bytes at least, where the program has "
         "made SO_RCVBUF smaller."},
    {.name = "VMA_OTHER_USERS",
     .label = "Other Users",
     .field = &Params::other_users,
     .fallback = 1,
     .text = "Whether connections within this host are accelerated whose other end is another user's. What each can "
             "then do to the other is in doc/trust.md."},
    {.name = "VMA_REMOTE_STREAMS",
     .label = "Remote Streams",
     .field = &Params::remote_streams,
     .text = "Whether connections to other hosts are accelerated too, over RDMA devices. Only where all users of both "
             "hosts are trusted: see LIMITS."},
    {.name = "VMA_ETHERNET",
     .label = "Ethernet Ports",
     .field = &Params::ethernet,
     .text = "Interfaces, with commas between, or * for all: TCP connections and UDP sockets whose peers are reached "
             "by one of them leave "
             "the kernel for the interface itself, whoever the peer is. Needs rights; empty for none. See \"Ethernet "
             "ports\"."},
    {.name = "VMA_BROKER",
     .label = "Broker",
     .field = &Params::broker,
     .fallback_text = "/run/vma/broker",
     .text = "Where vmad introduces the two ends of a connection that are in different network namespaces; empty for "
             "nobody. See \"Other network namespaces\"."},
    {.name = "VMA_SHM_DIR",
     .label = "Shared Memory Directory",
     .field = &Params::shm_dir,
     .text = "Where the user's processes find each other; empty for the default."},
    {.name = "VMA_PROVIDER",
     .label = "Provider Library",
     .field = &Params::provider,
     .text = "Full path of libvma-fi.so; empty to look for it beside libvma.so."},
};

} // namespace vma::config
