// SPDX-License-Identifier: BSD-2-Clause
// A simulated RDMA NIC behind the provider's table of rdma-core's functions, and what tests do to it: choose devices
// and limits, turn the clock, cut the wire, make calls and messages fail, count. See doc/simulated-nic.md.
//
// Every function here is thread-safe but reset(). Devices are named by their place in Config::devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/table.hpp"

namespace vma::sim {

using Ns = std::chrono::nanoseconds;

struct DeviceConfig {
    std::string name{};                   // empty: simN
    std::uint64_t guid = 0;               // 0: made from its place
    std::vector<std::string> addresses{}; // IPv4 or IPv6; each is an entry of the GID table, in this order
    ibv_mtu mtu = IBV_MTU_4096;           // what the port has, and the largest path MTU of a QP
    std::uint32_t max_inline = 256;       // bytes; QPs that want more are not created
    int max_sge = 16;                     // of a work request, and of an SRQ's
    int max_qp_wr = 1024;                 // of one queue
    int max_cqe = 4096;
    int max_srq_wr = 4096;
    int max_qp = 4096;
    int max_mr = 4096;
    int max_rd_atomic = 16;                       // RDMA reads on their way, either direction
    std::uint32_t max_message = 1U << 30;         // bytes
    std::size_t dm_size = std::size_t{128} << 10; // bytes of device memory; 0: the device has none
    std::uint32_t rate_min = 1;                   // kbit/s
    std::uint32_t rate_max = 100'000'000;         // kbit/s; 0: no packet pacing
    std::uint32_t clock_khz = 1'000'000;          // of the clock that stamps completions; 0: nothing does
    unsigned clock_bits = 64;                     // of it, 1 to 64: after the last it is 0 again
    bool raw_packets = true;                      // it has RAW_PACKET QPs
    bool moderation = true;         // its queues take a moderation of interrupts, which is written down only
    bool ip_csum = true;            // it writes and verifies checksums of their frames
    std::uint32_t max_tso = 262144; // bytes of a TCP segment that it cuts for them; 0: it cuts none
    std::size_t max_flows = 65536;  // flow rules
    std::size_t max_frame = 9234;   // bytes
    // A real wire for RAW_PACKET QPs, with Clock::real: packet sockets (packet(7), bound to one interface each, without
    // its outgoing frames), which stay the caller's and live until the next reset(). What comes from `wire` and no rule
    // takes goes to `host`, and what comes from there to `wire`. -1: there is none.
    int wire = -1;
    int host = -1;
};

enum class Clock {
    real,   // CLOCK_MONOTONIC; what is due is done by a thread of the simulation
    manual, // stands still until advance(); nothing happens behind the caller's back
};

struct Config {
    std::vector<DeviceConfig> devices;
    Clock clock = Clock::real;
    Ns cm_timeout = std::chrono::seconds(60); // until a request or a reply that nobody answers is given up
    Ns timewait = std::chrono::seconds(4);    // from the end of a connection to TIMEWAIT_EXIT
    // Destroying waits until all events are acknowledged, as rdma-core does; after this much real time it is taken for
    // a fault of the caller, and the process is aborted with a message.
    std::chrono::seconds ack_patience{10};
};

// What a test hands to verbs::use_table(). It stays for ever, across reset().
const verbs::Table *table() noexcept;

// A new world: frees everything that is left of the one before (see Stats::live first), forgets all injected faults and
// counters. Without devices there are none. No other thread may be in any call.
void reset(const Config &config);

// ---------------------------------------------------------------- clock
Ns now();
// Manual clock only: does, in order, all that is due until then.
void advance(Ns by);
// When the next thing is due, or Ns::max(). With a manual clock, advance(next_due() - now()) does it.
Ns next_due();

// ---------------------------------------------------------------- wire
// No message, and nothing of the CM, gets from one device to the other; what is sent is retried until its time-out.
void cut(unsigned device, unsigned other);
void join(unsigned device, unsigned other);
// So many of 10,000 frames of RAW_PACKET QPs get lost, the same ones in each run.
void lose_frames(unsigned share);
// The port's state and its async event. A port that is down loses all messages, its own to itself too.
void port_down(unsigned device);
void port_up(unsigned device);
// Another interface has the addresses of the peers now: UNREACHABLE to each id that is connected, as Linux 6.0 and
// later say when a neighbour's link address changes. Messages are not lost by it.
void replace_peers(unsigned device);
// As if it was pulled out: DEVICE_FATAL to each context, DEVICE_REMOVAL to each id on it, its QPs flushed. Objects on
// it can only be destroyed.
void remove_device(unsigned device);

// ---------------------------------------------------------------- faults
// The QP's next completion, of either queue, gets lost.
void drop_completion(std::uint32_t qp_num);
// The QP breaks: ERR, everything outstanding flushed, async event QP_FATAL.
void break_qp(std::uint32_t qp_num);
// The QP says "receiver not ready" to the next `times` messages that need a receive, whatever is posted.
void force_rnr(std::uint32_t qp_num, unsigned times);
// The QP's next ibv_post_send() fails with this errno at its first request.
void fail_post(std::uint32_t qp_num, int error);
// The n-th call from now (1: the next) of this function fails with this errno. `function` is a member of verbs::Table,
// or one of alloc_dm, reg_dm_mr, create_cq_ex, create_qp_ex, modify_qp_rate_limit, create_flow, query_device_ex,
// query_rt_values, req_notify_cq, modify_cq, post_recv, post_srq_recv. One fault for each function at a time. False: no
// such name.
bool fail_call(std::string_view function, unsigned n, int error);
// resolve_route() to this address ends in ROUTE_ERROR with this (negative) status; 0: no longer.
void fail_route(const std::string &address, int status);

// ---------------------------------------------------------------- counts
struct Live {
    unsigned contexts, pds, mrs, dms, comp_channels, cqs, srqs, qps, ahs, flows, event_channels, ids;
    unsigned unacked; // events that were given out and not acknowledged: CM's, CQs', async
    unsigned total() const;
};

struct Stats {
    std::uint64_t doorbells;        // calls of post_send
    std::uint64_t sends;            // work requests in them
    std::uint64_t longest_chain;    // of one call
    std::uint64_t inlined;          // of the sends
    std::uint64_t signaled;         // of the sends
    std::uint64_t receives;         // work requests posted to QPs and SRQs
    std::uint64_t messages;         // that arrived at a QP, RDMA included
    std::uint64_t bytes;            // of their payload
    std::uint64_t packets;          // it took at the path MTU
    std::uint64_t from_dm;          // messages with at least one byte out of device memory
    std::uint64_t completions;      // put into CQs
    std::uint64_t dropped;          // completions lost by drop_completion() or an overrun
    std::uint64_t rnr_naks;         // "receiver not ready" on the wire
    std::uint64_t lost;             // messages that found no way, each attempt; frames that a rule took and no receive
    std::uint64_t cut;              // frames that were made of longer TCP segments
    std::uint64_t unsteered;        // frames that no rule of a device took, each device
    std::uint64_t paced;            // messages that had to wait for their time
    std::uint64_t cq_events;        // completion events raised
    std::uint64_t moderations;      // of CQs, that were set
    std::uint16_t held_completions; // by the last of them
    std::uint16_t held_us;          // likewise
    Live live;
};
Stats stats();

// The flow rules of a device, oldest first: each the bytes of its ibv_flow_attr with the specs behind it.
std::vector<std::vector<std::byte>> flows(unsigned device);

} // namespace vma::sim
