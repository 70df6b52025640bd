// SPDX-License-Identifier: BSD-2-Clause
// The values of all parameters, after VMA_SPEC and the single variables were read. The table that says what exists,
// with types, ranges, defaults and texts, is table.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vma::config {

inline constexpr std::uint32_t kLeastStreamRing = 64 << 10; // bytes

struct Params {
    std::int32_t trace_level;           // VMA_TRACELEVEL: a Level of log.hpp
    std::int32_t log_details;           // VMA_LOG_DETAILS: 0 nothing, 1 thread, 2 and process, 3 and time
    bool log_colors;                    // VMA_LOG_COLORS
    const char *log_file;               // VMA_LOG_FILE, as the variable says it; nullptr for stderr
    std::int32_t spec;                  // VMA_SPEC: a Spec of table.hpp
    std::int64_t rx_poll;               // VMA_RX_POLL: loops a blocking receive spins, -1 for ever
    std::uint32_t rx_udp_poll_os_ratio; // VMA_RX_UDP_POLL_OS_RATIO: every n-th look of a UDP socket is at the kernel
    std::uint32_t rx_bytes_min;         // VMA_RX_BYTES_MIN: least receive buffer of a UDP socket
    bool tx_mc_loopback;                // VMA_TX_MC_LOOPBACK: IP_MULTICAST_LOOP of a new socket
    std::int64_t rx_poll_init;    // VMA_RX_POLL_INIT: loops of a receive of a UDP socket that is the kernel's alone
    std::uint32_t select_skip_os; // VMA_SELECT_SKIP_OS: every n-th wait looks at the kernel first
    bool tx_nonblocked_eagains;   // VMA_TX_NONBLOCKED_EAGAINS: a lost datagram is EAGAIN
    std::int64_t select_poll;     // VMA_SELECT_POLL: us select/poll/epoll spin, -1 for ever, 0 never
    std::uint32_t select_poll_os_ratio;   // VMA_SELECT_POLL_OS_RATIO: every n-th spin looks at the kernel, 0 never
    bool offloaded_sockets;               // VMA_OFFLOADED_SOCKETS
    bool socketxtreme;                    // VMA_SOCKETXTREME: socketxtreme_poll() serves sockets
    std::int32_t hw_ts_conversion;        // VMA_HW_TS_CONVERSION: by which clock devices' times are told
    std::int32_t thread_mode;             // VMA_THREAD_MODE
    const char *internal_thread_affinity; // VMA_INTERNAL_THREAD_AFFINITY, as the variable says it; nullptr for none
    const char *internal_thread_cpuset;   // VMA_INTERNAL_THREAD_CPUSET, as the variable says it; nullptr for none
    bool spec_latency;                    // follows from `spec`
    bool rx_poll_learns;                  // nobody has said `rx_poll`: what spins bring decides
    bool select_poll_learns;              // likewise
    bool rx_poll_gives_way;     // `rx_poll` is for ever by a profile: not where others take much of the thread's time
    bool select_poll_gives_way; // likewise
    bool ring_per_set;          // likewise of `ring_logic_rx`: each epoll set has one
    bool offload_learns;        // likewise of `lift_after`: how long connections live decides
    bool first_learns;          // and whether they are accelerated before their first byte
    bool opens_early;           // likewise of the next two: connect() and accept() open the provider, and no send
    std::uint32_t lift_at_connect;        // VMA_LIFT_AT_CONNECT: microseconds that a first call waits; 0: none does
    std::uint32_t lift_after;             // VMA_LIFT_AFTER: sends and receives before a stream leaves the kernel
    std::uint32_t idle_streams;           // VMA_IDLE_STREAMS: accelerated connections beyond which idle ones are let go
    std::uint32_t idle_msec;              // VMA_IDLE_MSEC: how long one has carried nothing by then
    std::uint32_t stream_ring;            // VMA_STREAM_RING: bytes of receive ring a stream, power of two
    bool other_users;                     // VMA_OTHER_USERS
    bool remote_streams;                  // VMA_REMOTE_STREAMS: to other hosts, over RDMA devices
    const char *ethernet;                 // VMA_ETHERNET: ports that streams may leave the kernel by, nullptr for none
    bool tcp_nodelay;                     // VMA_TCP_NODELAY, and those below: of streams on Ethernet ports
    bool tcp_quickack;                    // VMA_TCP_QUICKACK
    std::uint32_t tcp_quickack_threshold; // VMA_TCP_QUICKACK_THRESHOLD: bytes of a segment, 0 none
    std::uint32_t tcp_max_syn_rate;       // VMA_TCP_MAX_SYN_RATE: no effect, and those below
    std::int32_t tcp_timestamp_option;    // VMA_TCP_TIMESTAMP_OPTION
    std::uint32_t tcp_timer_resolution_msec; // VMA_TCP_TIMER_RESOLUTION_MSEC
    std::int32_t tcp_ctl_thread;             // VMA_TCP_CTL_THREAD
    std::int32_t tcp_cc_algo;                // VMA_TCP_CC_ALGO: 0 Reno, 1 CUBIC, kCcOfSocket
    std::uint32_t mtu;                       // VMA_MTU: bytes, 0 as the path has it
    std::uint32_t mss;                       // VMA_MSS: bytes, 0 as the MTU allows
    std::uint32_t gro_streams_max;           // VMA_GRO_STREAMS_MAX: streams of a port, 0 none
    bool tcp_3t_rules;                       // VMA_TCP_3T_RULES: asked for; rules are as wide as they are
    bool udp_3t_rules;                       // VMA_UDP_3T_RULES: likewise
    std::uint32_t ring_dev_mem_tx;   // VMA_RING_DEV_MEM_TX: bytes of the NIC's memory a stream sends from, 0 none
    const char *config_file;         // VMA_CONFIG_FILE: the rules
    const char *application_id;      // VMA_APPLICATION_ID
    const char *stats_file;          // VMA_STATS_FILE: nullptr for none
    const char *stats_shmem_dir;     // VMA_STATS_SHMEM_DIR
    std::uint32_t stats_fd_num;      // VMA_STATS_FD_NUM: sockets that vma_stats sees
    bool cpu_usage_stats;            // VMA_CPU_USAGE_STATS
    const char *broker;              // VMA_BROKER: empty for none
    const char *shm_dir;             // VMA_SHM_DIR: nullptr for the default
    const char *provider;            // VMA_PROVIDER: nullptr to look for it
    bool handle_sigintr;             // VMA_HANDLE_SIGINTR
    bool handle_sigsegv;             // VMA_HANDLE_SIGSEGV
    std::int32_t exception_handling; // VMA_EXCEPTION_HANDLING: -2..3, see transport/exception.hpp
    std::uint32_t tx_wre;            // VMA_TX_WRE: sends in work of an RDMA connection
    std::uint32_t rx_wre;            // VMA_RX_WRE: receives of an RDMA connection
    std::uint32_t rx_poll_yield;     // VMA_RX_POLL_YIELD: polls between two sched_yield(), 0 none
    std::uint32_t
        rx_cq_drain_rate_nsec;       // VMA_RX_CQ_DRAIN_RATE_NSEC: ns between looks of a receive that has bytes, 0 none
    bool rx_poll_on_tx_tcp;          // VMA_RX_POLL_ON_TX_TCP
    std::uint32_t progress_interval; // VMA_PROGRESS_ENGINE_INTERVAL: ms
    std::uint32_t progress_most;     // VMA_PROGRESS_ENGINE_WCE_MAX: completions
    std::uint32_t cq_poll_batch_max; // VMA_CQ_POLL_BATCH_MAX: completions of a poll
    std::uint32_t timer_resolution_msec; // VMA_TIMER_RESOLUTION_MSEC
    bool internal_thread_arm_cq;         // VMA_INTERNAL_THREAD_ARM_CQ
    bool allow_privileged_sock_opt;      // VMA_ALLOW_PRIVILEGED_SOCK_OPT
    std::uint32_t wait_after_join_msec;  // VMA_WAIT_AFTER_JOIN_MSEC
    std::int32_t mem_alloc_type;         // VMA_MEM_ALLOC_TYPE: 0 ordinary, 1 large where the kernel likes, 2 huge

    // Known and of no effect, in the order of the table; their texts say why.
    std::uint32_t spec_param1;
    std::uint32_t spec_param2;
    const char *vmad_notify_dir;
    std::int32_t ring_logic_tx;
    std::int32_t ring_logic_rx;
    std::int32_t ring_migration_tx;
    std::int32_t ring_migration_rx;
    std::uint32_t ring_limit;
    std::uint32_t tx_segs_tcp;
    std::uint32_t tx_bufs;
    std::uint32_t tx_wre_batching;
    std::uint32_t tx_max_inline;
    std::uint32_t tx_prefetch_bytes;
    std::uint32_t rx_bufs;
    std::uint32_t rx_wre_batching;
    std::uint32_t rx_prefetch_bytes;
    std::uint32_t rx_prefetch_before_poll;
    bool eth_mc_l2_only_rules;
    bool mc_force_flowtag;
    bool cq_moderation;
    std::uint32_t cq_moderation_count;
    std::uint32_t cq_moderation_period_usec;
    std::uint32_t cq_aim_max_count;
    std::uint32_t cq_aim_max_period_usec;
    std::uint32_t cq_aim_interval_msec;
    std::uint32_t cq_aim_interrupts_rate;
    bool cq_keep_qp_full;
    std::uint32_t qp_compensation_level;
    bool avoid_sys_calls;
    bool dummy_send_getsockname;
    std::int32_t buffer_batching_mode;
    bool fork_support;
    bool close_on_dup2;
    bool deferred_close;
    bool blue_flame;
    std::uint32_t netlink_timer;
    std::uint32_t neigh_uc_arp_quata;
    std::uint32_t neigh_uc_arp_delay_msec;
    std::uint32_t neigh_num_err_retries;
    std::uint32_t time_measure_num_samples;
    const char *time_measure_dump_file;
    std::uint32_t dbg_send_mcpkt_counter;
    const char *dbg_send_mcpkt_mcgroup;

    bool operator==(const Params &) const = default; // texts are the same if their addresses are
};

inline constexpr std::int32_t kCcOfSocket = 2; // what TCP_CONGESTION says
inline constexpr std::int32_t kCcNone = 3;     // asked for

extern Params g_params; // the defaults until load_params(), which writes it once

// Final from the library's constructor on.
inline const Params &params()
{
    return g_params;
}

// Reads the environment, opens the log and prints the start-up header; later calls do nothing. Called by our
// constructor, or early by the first socket() if that comes from a constructor that runs before.
void load_params();
void load_params_early();

// What load_params() does but for log and header; returns the number of variables that were wrong. For tests.
unsigned read_environment(Params &into);

// The text with the process's id in place of the first %d; nothing else in it is a format. False: it was cut to `size`
// bytes.
bool expand_process_id(const char *text, char *out, std::size_t size);

const char *provider_path(); // file name of libvma-fi.so, found beside this library; nullptr if there is none

} // namespace vma::config
