// SPDX-License-Identifier: BSD-2-Clause
// What lies in shared memory: the one block of definitions that two processes must agree on (kOfferVersion names it). A
// segment is made by the endpoint that receives: control words, the ring of slots, bounce ring, region. Nothing here is
// a method.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vma::local {

inline constexpr std::uint32_t kSlotCount = 60;
inline constexpr std::size_t kSlotPayload = 96;
inline constexpr std::size_t kControlSize = 512;
inline constexpr std::size_t kSlotsSize = 8192; // control words and slots
inline constexpr std::size_t kBounceSize = std::size_t{64} * 1024;
inline constexpr std::size_t kRegionOffset = kSlotsSize + kBounceSize;
inline constexpr std::size_t kBounceChunk = std::size_t{16} * 1024; // most bytes of one slot's share of the bounce ring
inline constexpr unsigned kIovLimit = 4;

enum class RxState : std::uint32_t {
    watching = 0, // "I look at your slots myself"
    wake = 1,     // "set my bit, and wake my queue if it sleeps"
    closed = 2,   // "look at `cut` whether I took that one"
};

// Where the slots end that a receiver takes: `kCutAt | number of slots, modulo 2^32`. It is decided once, by a
// compare-and-swap from kCutOpen of either side, and by whoever comes first, so neither waits for the other.
inline constexpr std::uint64_t kCutOpen = 0;
inline constexpr std::uint64_t kCutAt = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kCutClaimed = std::uint64_t{2} << 32; // by the sender, which reads back what it wrote

// Each group of words but `cut` has one writer and lines of its own.
struct Control {
    // The receiver's, read by the sender after each slot.
    alignas(128) std::atomic<std::uint32_t> rx_state;
    std::atomic<std::uint32_t> mr_generation; // goes up when an access that was granted ends
    std::atomic<std::uint32_t> rma_notify;    // 1: writes and reads done without a slot want a note in one
    std::atomic<std::uint32_t> stamps;        // a StampClock: of slots published from now on
    // The receiver's: slots consumed since the beginning, modulo 2^32.
    alignas(128) std::atomic<std::uint32_t> head;
    // The sender's.
    alignas(128) std::atomic<std::uint32_t> want_space; // 1: "wake me when a slot is free again"
    std::atomic<std::uint32_t> rma_inside;              // 1: it accesses the receiver's memory right now
    std::atomic<std::uint32_t> revoked;                 // 1: its own memory is no longer to be pulled from
    alignas(128) std::atomic<std::uint64_t> cut;        // of both sides
};
static_assert(sizeof(Control) == kControlSize);

enum class SlotOp : std::uint8_t {
    none = 0,
    send_inline,   // payload: message
    send_bounce,   // Bounce
    send_segment,  // MessagePart
    send_pull,     // Pull: the receiver copies out of the sender's memory
    region_inline, // payload: bytes for region + addr
    region_direct, // Direct: the bytes are in the region already, at addr
    write_inline,  // key, then the bytes; addr as the registration counts
    write_bounce,  // RmaBounce
    write_note,    // RmaBounce without bytes: the sender has written registered memory itself
    read_bounce,   // RmaBounce: the receiver fills the share of the bounce ring
    read_note,     // RmaBounce without bytes: the sender has read registered memory itself
    key_query,     // KeyQuery, answered in its place by KeyReply
    count
};

enum SlotFlag : std::uint8_t {
    kSlotData = 1,    // `data` is FI_REMOTE_CQ_DATA
    kSlotWantAck = 2, // wake the sender when this slot is consumed; Result stands in the payload then
    kSlotLast = 4,    // of a message's segments
    kSlotFlagsAll = 7,
};

// word: sequence number (slot's position in the stream of slots, plus 1) << 32 | length << 16 | flags << 8 | op. Stored
// last.
struct alignas(128) Slot {
    std::atomic<std::uint64_t> word;
    std::uint64_t data;
    std::uint64_t addr;
    std::uint64_t stamp; // when it was published: slots of one queue's endpoints are consumed in this order
    std::byte payload[kSlotPayload];
};
static_assert(sizeof(Slot) == 128);
static_assert(sizeof(Control) + kSlotCount * sizeof(Slot) == kSlotsSize);

// Payloads of the operations. All are copied out before they are looked at.
struct Bounce {
    std::uint32_t offset; // in the bounce ring
    std::uint32_t length;
};
struct MessagePart {
    std::uint64_t total;    // of the message
    std::uint64_t position; // of this piece in the message
    std::uint32_t offset;
    std::uint32_t length;
};
struct Piece {
    std::uint64_t address;
    std::uint64_t length;
};
struct Pull {
    std::uint64_t total;
    std::uint32_t count;
    std::uint32_t unused;
    Piece pieces[kIovLimit];
};
struct Direct {
    std::uint64_t length;
};
struct RmaBounce {
    std::uint64_t key;
    std::uint64_t total;  // bytes of the whole operation
    std::uint32_t offset; // in the bounce ring
    std::uint32_t length; // of this slot's part
};
struct KeyQuery {
    std::uint64_t key;
};
struct Result {
    std::int32_t error; // 0 or a positive fi_errno
};
struct KeyReply {
    std::int32_t error;
    std::uint32_t generation;
    std::uint64_t access;
    std::uint64_t base; // what addresses count from: 0, or the first byte's with FI_MR_VIRT_ADDR
    std::uint32_t count;
    std::uint32_t unused;
    Piece pieces[kIovLimit];
};
inline constexpr std::size_t kWriteInline = kSlotPayload - sizeof(std::uint64_t);
static_assert(sizeof(Pull) <= kSlotPayload && sizeof(KeyReply) <= kSlotPayload);

// The doorbell of a completion queue: a page of words of its own, and a bitmap that peers set bits in.
inline constexpr std::uint32_t kDoorbellBits = 64 * 1024;
inline constexpr std::uint32_t kDoorbellWords = kDoorbellBits / 64;
inline constexpr std::uint32_t kDoorbellSummary = kDoorbellWords / 64;

// Where threads of the queue's process sleep by futex(2), each at the place of what it waits for (FI_VMA_PLACES):
// whoever has something for that place wakes them there, and nobody else.
inline constexpr std::uint32_t kPlaces = 256;
struct Place {
    std::atomic<std::uint64_t> asleep; // upper half: sleeps begun; lower: threads that sleep, or are about to
    std::atomic<std::uint32_t> turn;   // what they sleep on. Who wakes them adds 1 first
    std::uint32_t unused;
};

struct DoorbellPage {
    // The owner's alone: the number of the sleep that it is in or about to begin, 0 while it is awake. Each process
    // that rings meanwhile writes the eventfd, once a sleep.
    alignas(128) std::atomic<std::uint64_t> sleeping;
    std::atomic<std::uint64_t> wakes; // writes of 1 to the eventfd, each counted before it is done
    alignas(128) std::atomic<std::uint64_t> summary[kDoorbellSummary]; // one bit a word below
    alignas(4096) Place places[kPlaces];
    std::atomic<std::uint64_t> words[kDoorbellWords];
};
static_assert(sizeof(DoorbellPage) == 4096 + sizeof(Place) * kPlaces + kDoorbellBits / 8);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

} // namespace vma::local
