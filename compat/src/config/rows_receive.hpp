// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: what is received, and the waits of select(), poll() and epoll_wait().
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kTimeConversion[] = {
    {"0", 0, "Disabled"}, {"1", 1, "Raw-HW time"}, {"2", 2, "Best-effort"}, {"3", 3, "Sync"}, {"4", 4, "PTP"},
};

inline constexpr Parameter kReceiveRows[] = {
    {.name = "VMA_HW_TS_CONVERSION",
     .label = "HW TS Conversion",
     .field = &Params::hw_ts_conversion,
     .fallback = 3,
     .choices = kTimeConversion,
     .text = "By which clock UDP sockets that ask for a device's time stamps (SO_TIMESTAMPING with "
             "SOF_TIMESTAMPING_RAW_HARDWARE) are told them by Ethernet ports. 0: disabled. 1: raw hardware time, only "
             "converted to seconds and nanoseconds. 2: best possible, the system's time, else raw hardware time. 3: "
             "the system's time, comparable to the software's time stamps, or disabled where the hardware can't. 4: "
             "the interface's PTP clock, else as 3. What one device can't, none does; those without time stamps don't "
             "count. Where it is disabled such sockets stay with the kernel, whose datagrams have the kernel's time "
             "stamps in any case. If it is set, and not to 0, ports are opened as by FI_VMA_ETHERNET_STAMPS=hardware, "
             "where that is not set."},
    {.name = "VMA_RX_BUFS",
     .label = "Rx Mem Bufs",
     .field = &Params::rx_bufs,
     .fallback = 200000,
     .max = kMostNumber,
     .overrides = {{{Spec::kUltraLatency, 1024}, {Spec::k7750, 204800}}},
     .idle = true,
     .text = "No effect here: there is no pool of buffers; a connection has VMA_STREAM_RING or its SO_RCVBUF, a UDP "
             "socket its SO_RCVBUF, a port the frames of its rings."},
    {.name = "VMA_RX_WRE",
     .label = "Rx QP WRE",
     .field = &Params::rx_wre,
     .fallback = 16000,
     .min = 1,
     .max = kMostNumber,
     .overrides = {{{Spec::kLatency, 256}, {Spec::kUltraLatency, 256}}},
     .text = "Messages that an RDMA device takes at a time for a connection before it holds its sender up; at least "
             "16, at most 4096 and what the device has; the default stands for 256."},
    {.name = "VMA_RX_WRE_BATCHING",
     .label = "Rx QP WRE Batching",
     .field = &Params::rx_wre_batching,
     .fallback = 64,
     .min = 1,
     .max = 1024,
     .overrides = {{{Spec::kLatency, 4}, {Spec::kUltraLatency, 4}}},
     .idle = true,
     .text = "No effect here: a buffer is given back to its device as soon as it has been read."},
    {.name = "VMA_RX_BYTES_MIN",
     .label = "Rx Byte Min Limit",
     .field = &Params::rx_bytes_min,
     .fallback = 65536,
     .max = 1 << 30,
     .text = "The least bytes of datagrams that wait for a UDP socket's reader, where its SO_RCVBUF says less."},
    {.name = "VMA_RX_POLL",
     .label = "Rx Poll Loops",
     .field = &Params::rx_poll,
     .fallback = 100000,
     .min = -1,
     .max = 100 * kSecond,
     .overrides = {{{Spec::kLatency, -1},
                    {Spec::kUltraLatency, -1},
                    {Spec::kMultiRing, -1},
                    {Spec::k29West, 0},
                    {Spec::kWombat, 0},
                    {Spec::kMemcachedIrq, 0},
                    {Spec::kRti, -1},
                    {Spec::k7750, -1}}},
     .text = "How many times a blocking receive polls before it sleeps, as VMA counts: each stands for 50 nanoseconds, "
             "so that 10000 are half a millisecond; -1: it never sleeps, 0: it looks once. Where neither this nor "
             "VMA_SPEC is set: 50 microseconds at most, and while that brings something."},
    {.name = "VMA_RX_POLL_INIT",
     .label = "Rx Poll Init Loops",
     .field = &Params::rx_poll_init,
     .min = -1,
     .max = 100 * kSecond,
     .text = "How many times, counted as for VMA_RX_POLL, a blocking receive polls a UDP socket that no sender is "
             "accelerated to, before it sleeps; -1: it never sleeps, 0: it sleeps at once."},
    {.name = "VMA_RX_UDP_POLL_OS_RATIO",
     .label = "Rx UDP Poll OS Ratio",
     .field = &Params::rx_udp_poll_os_ratio,
     .fallback = 100,
     .max = 1000000,
     .overrides = {{{Spec::kUltraLatency, 0}, {Spec::k29West, 100}, {Spec::kWombat, 100}}},
     .text =
         "A receive that waits on a UDP socket looks for datagrams that came by the kernel once in so many polls, and "
         "before it sleeps; 0: rarely, once in 1024."},
    {.name = "VMA_RX_POLL_YIELD",
     .label = "Rx Poll Yield",
     .field = &Params::rx_poll_yield,
     .max = kMostNumber,
     .text = "After how many polls each a waiting receive lets another thread run; 0: only when it has waited for 20 "
             "microseconds, from then on after every poll."},
    {.name = "VMA_RX_PREFETCH_BYTES",
     .label = "Rx Prefetch Bytes",
     .field = &Params::rx_prefetch_bytes,
     .fallback = 256,
     .min = 32,
     .max = 2044,
     .idle = true,
     .text = "No effect here: what comes is copied in order, and the processor fetches it by itself."},
    {.name = "VMA_RX_PREFETCH_BYTES_BEFORE_POLL",
     .label = "Rx Prefetch Bytes Before Poll",
     .field = &Params::rx_prefetch_before_poll,
     .min = 32,
     .max = 2044,
     .or_zero = true,
     .overrides = {{{Spec::kLatency, 256}, {Spec::kUltraLatency, 256}}},
     .idle = true,
     .text = "No effect here, as VMA_RX_PREFETCH_BYTES."},
    {.name = "VMA_RX_CQ_DRAIN_RATE_NSEC",
     .label = "Rx CQ Drain Rate (nsec)",
     .label_if_off = "Rx CQ Drain Rate",
     .field = &Params::rx_cq_drain_rate_nsec,
     .max = kMostNumber,
     .text = "A receive that finds bytes of an accelerated connection waiting looks for more that has come if the last "
             "such look is so many nanoseconds ago; 0: it takes what is there."},
    {.name = "VMA_RX_POLL_ON_TX_TCP",
     .label = "Polling Rx on Tx TCP",
     .field = &Params::rx_poll_on_tx_tcp,
     .overrides = {{{Spec::kMultiRing, 1}}},
     .text = "Whether each send on an accelerated TCP connection also takes what has come, so that acknowledgements "
             "are seen early."},
    {.name = "VMA_GRO_STREAMS_MAX",
     .label = "GRO max streams",
     .field = &Params::gro_streams_max,
     .fallback = 32,
     .max = kMostNumber,
     .overrides = {{{Spec::kLatency, 0}, {Spec::kUltraLatency, 0}}},
     .text = "Connections of an Ethernet port whose segments are merged at a time (generic receive offload): those "
             "that came together and continue one another cost the TCP of this library little more than one. Nothing "
             "waits for more to come. 0 for none; more than 32, the frames that are taken at a time, are as 32."},
    {.name = "VMA_TCP_3T_RULES",
     .label = "TCP 3T rules",
     .field = &Params::tcp_3t_rules,
     .overrides = {{{Spec::k7750, 1}}},
     .idle = true,
     .text = "No effect here: connections on Ethernet ports are steered by both addresses and ports, as their listener "
             "stays in the kernel."},
    {.name = "VMA_UDP_3T_RULES",
     .label = "UDP 3T rules",
     .field = &Params::udp_3t_rules,
     .fallback = 1,
     .idle = true,
     .text = "No effect here: on Ethernet ports connected UDP sockets are steered by both addresses and ports, as what "
             "others send to them is the kernel's to refuse; all others by their own."},
    {.name = "VMA_ETH_MC_L2_ONLY_RULES",
     .label = "ETH MC L2 only rules",
     .field = &Params::eth_mc_l2_only_rules,
     .idle = true,
     .text = "No effect here: a port takes a group's datagrams by address and port, so that other programs' groups "
             "with the same Ethernet address stay the kernel's."},
    {.name = "VMA_MC_FORCE_FLOWTAG",
     .label = "Force Flowtag for MC",
     .field = &Params::mc_force_flowtag,
     .idle = true,
     .text = "No effect here: no device marks what it receives with a socket's tag."},
    {.name = "VMA_SELECT_POLL",
     .label = "Select Poll (usec)",
     .field = &Params::select_poll,
     .fallback = 100000,
     .min = -1,
     .max = 100 * kSecond,
     .overrides = {{{Spec::kLatency, -1},
                    {Spec::kUltraLatency, -1},
                    {Spec::kMultiRing, -1},
                    {Spec::k29West, 100000},
                    {Spec::kWombat, 0},
                    {Spec::kMemcachedIrq, 0},
                    {Spec::k7750, -1}}},
     .text = "How many microseconds select(), poll() and epoll_wait() poll before they sleep; -1: they never sleep, "
             "0: they look once. Where neither this nor VMA_SPEC is set: 50 at most, and while that brings something."},
    {.name = "VMA_SELECT_POLL_OS_RATIO",
     .label = "Select Poll OS Ratio",
     .field = &Params::select_poll_os_ratio,
     .fallback = 10,
     .max = 1000000,
     .overrides = {{{Spec::kLatency, 1},
                    {Spec::kUltraLatency, 0},
                    {Spec::kMultiRing, 0},
                    {Spec::k29West, 100},
                    {Spec::k7750, 0}}},
     .text = "select(), poll() and epoll_wait() look at the descriptors that are not accelerated once in so many "
             "polls, and before they sleep; 0: rarely, once in 1024."},
    {.name = "VMA_SELECT_SKIP_OS",
     .label = "Select Skip OS",
     .field = &Params::select_skip_os,
     .fallback = 4,
     .max = 10000,
     .overrides = {{{Spec::kLatency, 1},
                    {Spec::kUltraLatency, 0},
                    {Spec::kMultiRing, 0},
                    {Spec::k29West, 50},
                    {Spec::kWombat, 20}}},
     .text = "select(), poll() and epoll_wait() look at the descriptors that are not accelerated first in every n-th "
             "call, even "
             "if an accelerated one is ready; 0: rarely."},
};

} // namespace vma::config
