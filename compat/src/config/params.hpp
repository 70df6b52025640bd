// SPDX-License-Identifier: BSD-2-Clause
// The values of all parameters, after VMA_SPEC and the single variables were read. The table that says what exists,
// with types, ranges, defaults and texts, is table.cpp.
#pragma once

#include <cstdint>

namespace vma::config {

struct Params {
    std::int32_t trace_level;           // VMA_TRACELEVEL: a Level of log.hpp
    std::int32_t log_details;           // VMA_LOG_DETAILS: 0 nothing, 1 thread, 2 and process, 3 and time
    bool log_colors;                    // VMA_LOG_COLORS
    const char *log_file;               // VMA_LOG_FILE, as the variable says it; nullptr for stderr
    std::int32_t spec;                  // VMA_SPEC: a Spec of table.hpp
    std::int64_t rx_poll;               // VMA_RX_POLL: us a blocking receive spins, -1 for ever
    std::uint32_t rx_udp_poll_os_ratio; // VMA_RX_UDP_POLL_OS_RATIO: every n-th look of a UDP socket is at the kernel
    std::uint32_t rx_bytes_min;         // VMA_RX_BYTES_MIN: least receive buffer of a UDP socket
    bool tx_mc_loopback;                // VMA_TX_MC_LOOPBACK: IP_MULTICAST_LOOP of a new socket
    std::int64_t rx_poll_init;          // VMA_RX_POLL_INIT: us a receive polls a UDP socket that is the kernel's alone
    std::uint32_t select_skip_os;       // VMA_SELECT_SKIP_OS: every n-th wait looks at the kernel first
    bool tx_nonblocked_eagains;         // VMA_TX_NONBLOCKED_EAGAINS: a lost datagram is EAGAIN
    std::int64_t select_poll;           // VMA_SELECT_POLL: us select/poll/epoll spin, -1 for ever, 0 never
    std::uint32_t select_poll_os_ratio; // VMA_SELECT_POLL_OS_RATIO: every n-th spin looks at the kernel, 0 never
    bool offloaded_sockets;             // VMA_OFFLOADED_SOCKETS
    bool socketxtreme;                  // VMA_SOCKETXTREME: socketxtreme_poll() serves sockets
    std::int32_t hw_ts_conversion;      // VMA_HW_TS_CONVERSION: no effect
    std::int32_t thread_mode;           // VMA_THREAD_MODE
    const char *internal_thread_affinity; // VMA_INTERNAL_THREAD_AFFINITY, as the variable says it; nullptr for none
    const char *internal_thread_cpuset;   // VMA_INTERNAL_THREAD_CPUSET, as the variable says it; nullptr for none
    bool spec_latency;                    // follows from `spec`
    std::uint32_t lift_after;             // VMA_LIFT_AFTER: sends and receives before a stream leaves the kernel
    std::uint32_t stream_ring;            // VMA_STREAM_RING: bytes of receive ring a stream, power of two
    bool remote_streams;                  // VMA_REMOTE_STREAMS: to other hosts, over RDMA devices
    const char *ethernet;                 // VMA_ETHERNET: ports that streams may leave the kernel by, nullptr for none
    bool tcp_nodelay;                     // VMA_TCP_NODELAY, and those below: of streams on Ethernet ports
    bool tcp_quickack;                    // VMA_TCP_QUICKACK
    std::uint32_t tcp_quickack_threshold; // VMA_TCP_QUICKACK_THRESHOLD: bytes of a segment, 0 none
    std::uint32_t tcp_max_syn_rate;       // VMA_TCP_MAX_SYN_RATE: no effect, and those below
    std::int32_t tcp_timestamp_option;    // VMA_TCP_TIMESTAMP_OPTION
    std::int32_t tcp_timer_resolution_msec; // VMA_TCP_TIMER_RESOLUTION_MSEC
    std::int32_t tcp_ctl_thread;            // VMA_TCP_CTL_THREAD
    std::int32_t tcp_cc_algo;               // VMA_TCP_CC_ALGO: 0 Reno, 1 CUBIC, kCcOfSocket
    std::uint32_t mtu;                      // VMA_MTU: bytes, 0 as the path has it
    std::uint32_t mss;                      // VMA_MSS: bytes, 0 as the MTU allows
    std::uint32_t gro_streams_max;          // VMA_GRO_STREAMS_MAX: streams of a port, 0 none
    bool tcp_3t_rules;                      // VMA_TCP_3T_RULES: asked for; rules are as wide as they are
    bool udp_3t_rules;                      // VMA_UDP_3T_RULES: likewise
    std::uint32_t ring_dev_mem_tx; // VMA_RING_DEV_MEM_TX: bytes of the NIC's memory a stream sends from, 0 none
    const char *shm_dir;           // VMA_SHM_DIR: nullptr for the default
    const char *provider;          // VMA_PROVIDER: nullptr to look for it

    bool operator==(const Params &) const = default; // texts are the same if their addresses are
};

inline constexpr std::int32_t kCcOfSocket = 2; // what TCP_CONGESTION says

extern Params g_params; // the defaults until load_params()

// Final from the library's constructor on.
inline const Params &params()
{
    return g_params;
}

// Reads the environment, opens the log and prints the start-up header; later calls do nothing. Called by our
// constructor, or by the first socket() if that comes from a constructor that runs before.
void load_params();

// What load_params() does but for log and header; returns the number of variables that were wrong. For tests.
unsigned read_environment(Params &into);

const char *provider_path(); // file name of libvma-fi.so, found beside this library; nullptr if there is none

} // namespace vma::config
