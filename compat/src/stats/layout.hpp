// SPDX-License-Identifier: BSD-2-Clause
// The file <VMA_STATS_SHMEM_DIR>/vmastat.<pid>: what a process counts, where it counts it. The process maps the file
// and adds to the numbers in place; a reader copies the file, whether the process runs, is stopped or is dead. Host
// byte order.
//
// A reader must take the whole file for hostile: sizes and offsets are checked before they are used, texts may lack
// their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace vma::stats {

inline constexpr std::uint64_t kMagic = 0x3154415453414d56; // "VMASTAT1"
inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::size_t kLine = 64; // of the processor's cache
inline constexpr std::uint32_t kMostSlots = 1024;
inline constexpr std::uint32_t kEpollSets = 32;
inline constexpr std::uint32_t kThreadGroups = 16; // that count select() and poll() apart; a reader adds them up
inline constexpr std::uint32_t kMostRings = 40;
inline constexpr std::uint32_t kMostPools = 2;
inline constexpr std::uint32_t kMostGroups = 16; // of a socket

// ---- counters: written by who holds the lock that is named, with plain stores; 64 bits, they never wrap -------------

struct alignas(kLine) Received { // the socket's rx_lock
    std::uint64_t packets;       // by a device: datagrams, pieces of streams that calls took
    std::uint64_t bytes;         // of them, taken by the program
    std::uint64_t poll_hit;      // waits that ended while they polled
    std::uint64_t poll_miss;     // that went to sleep
    std::uint64_t poll_os_hit;   // ended by what the kernel had
    std::uint64_t errors;
    std::uint64_t eagain;
    std::uint32_t thread; // one that received a little ago
    std::uint32_t zcopy;  // buffers the program holds
    // by the kernel: next to a system call, added to atomically
    std::uint64_t os_packets;
    std::uint64_t os_bytes;
    std::uint64_t os_errors;
    std::uint64_t os_eagain;
    std::uint64_t migrations; // from the kernel to a device, or back
};

struct alignas(kLine) Arrived { // the engine's poll lock: what comes to the socket, read or not
    std::uint64_t packets;
    std::uint64_t bytes;
    std::uint64_t most_packets; // that waited at a time
    std::uint64_t most_bytes;
    std::uint64_t dropped_packets;
    std::uint64_t dropped_bytes;
};

struct alignas(kLine) Sent { // the socket's tx_lock
    std::uint64_t packets;
    std::uint64_t bytes;
    std::uint64_t errors;
    std::uint64_t eagain;
    std::uint64_t retransmits; // of TCP on an Ethernet port
    std::uint64_t dummies;     // sends that only warm the way
    std::uint64_t waiting;     // bytes sent and not acknowledged, where that is known
    std::uint32_t thread;
    std::uint32_t reserved;
    std::uint64_t os_packets;
    std::uint64_t os_bytes;
    std::uint64_t os_errors;
    std::uint64_t os_eagain;
    std::uint64_t migrations;
    std::uint64_t held;        // times that a send had to wait for its turn (SO_MAX_PACING_RATE)
    std::uint64_t held_ns;     // how long, all together
    std::uint64_t paced_bytes; // of `bytes`: under limits that are over by now; see Facts::paced_from
};

struct Counters {
    Received rx;
    Arrived in;
    Sent tx;
};

// ---- a socket -------------------------------------------------------------------------------------------------------

enum class Way : std::uint8_t {
    kKernel, // so far: it may be accelerated yet
    kPinned, // the kernel's for good; `reason` says why
    kLocal,  // shared memory with a process of this host
    kRdma,
    kPort, // an Ethernet port
};

struct Group {
    std::uint8_t address[16]; // IPv4 as ::ffff:a.b.c.d, as all addresses here
    std::uint32_t interface;
};

enum Flag : std::uint32_t {
    kNonblocking = 1,
    kMulticastLoop = 2,
    kHasLocal = 4, // `local` is known
    kHasPeer = 8,
    kHasInterface = 16, // `interface_address`
    kCandidate = 32,    // connected or accepted, and looked at
    kOtherUser = 64,    // the other end is `peer_user`'s, not this process's user's
    kByVmad = 128,      // this network namespace doesn't know the other end, and vmad is asked for it
};

inline constexpr std::size_t kReasonSize = 104;
inline constexpr std::size_t kDeviceSize = 32;

struct alignas(kLine) Facts {           // change rarely
    std::uint32_t use;                  // numbers the sockets that had this record; written last
    std::int32_t fd;                    // -1: the record is free
    std::uint64_t inode;                // 0: not known
    std::uint8_t protocol;              // IPPROTO_TCP, IPPROTO_UDP
    std::uint8_t family;                // 4, 6
    std::uint8_t tcp_state;             // of the kernel's numbers, 0: not known
    Way way;                            //
    std::uint32_t flags;                // Flag
    std::uint8_t local[16];             // in6_addr
    std::uint8_t peer[16];              //
    std::uint8_t interface_address[16]; // IP_MULTICAST_IF
    std::uint16_t local_port;           // host byte order, as peer_port
    std::uint16_t peer_port;            //
    std::uint32_t group_count;          // may be more than `groups` has
    std::uint32_t ring;                 // one more than the place of its device's ring, 0: none
    std::uint32_t peer_user;            // with kOtherUser
    std::uint32_t reserved;             //
    std::uint64_t receive_limit;        // bytes
    std::uint64_t since_ns;             // CLOCK_BOOTTIME when the socket was made
    std::uint64_t pacing_rate;          // bytes a second that a device sends for it at most, 0: no limit
    std::uint64_t paced_from;           // what Sent::bytes was when that limit was set
    char device[kDeviceSize];
    char reason[kReasonSize]; // why it is not accelerated
    Group groups[kMostGroups];
};

struct alignas(kLine) Slot {
    Facts facts;
    Counters now;
    Counters zero; // what readers take off: --zero writes it, and who takes the record
};

// ---- select, poll, epoll --------------------------------------------------------------------------------------------

struct MuxCounters {
    std::uint64_t poll_hit;
    std::uint64_t poll_miss;
    std::uint64_t timeouts;
    std::uint64_t errors;
    std::uint64_t ready; // descriptors, by a device
    std::uint64_t os_ready;
};

struct alignas(kLine) Mux {
    MuxCounters now;
    std::uint32_t thread;  // the last one that waited
    std::uint32_t polling; // per cent of the time, VMA_CPU_USAGE_STATS
    std::int32_t fd;       // of an epoll set, -1: unused
    std::uint32_t reserved;
    MuxCounters zero;
    std::uint64_t busy_ticks;   // the owner's own, for `polling`
    std::uint64_t window_ticks; // likewise
};

// ---- devices --------------------------------------------------------------------------------------------------------

enum class RingKind : std::uint32_t { kNone, kEthernet, kDirect, kTap, kLocal, kRdma };

// What sockets that are closed, or have gone to another ring, have counted by it; a reader adds what those count whose
// `ring` it is, modulo 2^64: one that came from another ring has taken off what it had by then. 0 in a field: it isn't
// known.
struct alignas(kLine) Ring {
    RingKind kind;
    std::uint32_t moderation_frames;
    std::uint32_t moderation_usec;
    std::uint32_t device_memory; // bytes
    std::uint64_t master;
    std::uint64_t rx_packets;
    std::uint64_t rx_bytes;
    std::uint64_t tx_packets;
    std::uint64_t tx_bytes;
    std::uint64_t retransmits;
    std::uint64_t interrupts_asked;
    std::uint64_t interrupts;
    std::uint64_t memory_packets;
    std::uint64_t memory_bytes;
    std::uint64_t memory_oob;
    std::int32_t tap_fd;
    std::uint32_t tap_buffers;
    std::uint32_t plugouts;
    std::uint32_t reserved;
    char name[kDeviceSize];
};

struct alignas(kLine) Queue {   // a completion queue; of a port: its rings together
    std::uint32_t used;         //
    std::uint32_t reserved;     //
    std::uint64_t dropped;      // frames
    std::uint64_t length;       // frames that wait
    std::uint64_t most_drained; // at a look
    std::uint64_t pool;         // frames to receive into that are free; this and what follows: of ports
    std::uint64_t frames;       // to receive into
    std::uint64_t lent;         // of these: to the program
    std::uint64_t shortage;     // times that none was free
    std::uint64_t send_frames;
    std::uint64_t send_free;
    std::uint64_t send_shortage;
    std::uint64_t blocks; // of the TCP stack's memory
    std::uint64_t blocks_free;
    std::uint64_t block_shortage;
    char name[kDeviceSize];
    std::uint64_t polls;     // looks at it
    std::uint64_t poll_hits; // of these: that found something
    std::uint64_t unused[4]; // 0
};
static_assert(sizeof(Queue) == 3 * kLine);

struct Pool { // the frames of all ports
    std::uint32_t is_rx;
    std::uint32_t is_tx;
    std::uint64_t size; // free ones
    std::uint64_t no_buffers;
};

// ---- totals of the process ------------------------------------------------------------------------------------------

// What records that are free by now have counted: with what those that are in use have, all of the process, which never
// falls. Not zeroed by --zero.
struct alignas(kLine) Closed { // the region's lock
    std::uint32_t turn;        // odd while counts move here from a record: a reader looks before and after
    std::uint32_t reserved;
    std::uint64_t tcp_sockets;
    std::uint64_t udp_sockets;
    MuxCounters epoll;
    Counters tcp;
    Counters udp;
};

// ---- the file -------------------------------------------------------------------------------------------------------

enum class State : std::uint32_t {
    kRunning = 1,
    kReplaced = 2, // by exec: another program has the process id
};

struct alignas(kLine) Requests { // by vma_stats
    std::uint32_t count;         // added to after a request was written
    std::int32_t log_level;      // kKeep, or a level of the log's own numbers
    std::int32_t log_details;    // kKeep, or 0..3
    std::int32_t dump_fd;        // kKeep, 0 all
    std::int32_t dump_level;
    static constexpr std::int32_t kKeep = -100;
};

// What vma_dump asks for, and the answer (capture_layout.hpp). It adds to Requests::count afterwards.
struct alignas(kLine) CaptureWords {
    std::uint32_t number;    // of the wish, not 0; written after what it asks for
    std::uint32_t ring_size; // bytes
    std::uint32_t most;      // of a message's bytes
    std::uint32_t answered;  // number of the wish that the rest answers; written last
    std::int32_t fd;         // of the ring, in the process
    std::int32_t error;      // an errno, 0: none
};

struct alignas(kLine) Header {
    std::uint64_t magic; // written last
    std::uint32_t version;
    std::uint32_t header_size; // of this struct, and what follows: a reader takes no other
    std::uint32_t slot_size;
    std::uint32_t slot_count;
    std::uint32_t pid;
    std::uint32_t uid;
    State state;
    std::uint32_t lift_after;   // VMA_LIFT_AFTER
    std::uint64_t made_boot_ns; // CLOCK_BOOTTIME: a process that started later only has the same id
    std::uint64_t made_ns;      // CLOCK_REALTIME
    std::uint64_t pid_space;    // inode of /proc/self/ns/pid
    char program[64];
    char library[32];                        // version
    alignas(kLine) std::uint32_t slots_used; // those behind were never used
    Requests requests;
    Mux select[kThreadGroups];
    Mux poll[kThreadGroups];
    Mux epoll[kEpollSets];
    Ring rings[kMostRings];
    Queue queues[kMostRings];
    Pool pools[kMostPools];
    Closed closed;
    CaptureWords capture;
};

static_assert(std::is_trivially_copyable_v<Slot> && std::is_trivially_copyable_v<Header>);
static_assert(sizeof(Received) == 2 * kLine && sizeof(Arrived) == kLine && sizeof(Sent) == 2 * kLine);

// What a reader has before him. Whoever makes the file writes `magic` behind all else.
inline void write_sizes(Header &h, std::uint32_t slots)
{
    h.version = kVersion;
    h.header_size = sizeof(Header);
    h.slot_size = sizeof(Slot);
    h.slot_count = slots;
}

inline constexpr std::size_t file_size(std::uint32_t slots)
{
    return sizeof(Header) + slots * sizeof(Slot);
}

} // namespace vma::stats
