// SPDX-License-Identifier: BSD-2-Clause
// The ring in which one endpoint writes to one other, as both see it in shared memory. The sender makes it, so it can
// fill it before the receiver knows of it; the receiver takes no word in it for true before it has copied and checked
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "local/layout.hpp"
#include "local/ring/kept_part.hpp"

namespace vma::local {

inline constexpr std::size_t kMaxDatagram = 65507 + 64; // max_msg_size, and what a program puts before it
// Sizes of records, powers of two. The ring stays in the caches; what a receiver that is behind leaves no room for
// there goes to the spill, of which no memory is taken before.
inline constexpr std::size_t kRingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kSpillBytes = std::size_t{8} << 20;
inline constexpr std::size_t kRecordAlign = 64;
// From here on claim_low() goes back to the ring's start when it can: so much stays in the first levels of the cache.
inline constexpr std::size_t kLowBytes = std::size_t{32} << 10;

enum class RingState : std::uint32_t {
    watching = 0, // "I look at it myself", also as long as the receiver has not got it yet
    ring = 1,     // "set my bit, and wake my queue if it sleeps"
    closed = 2,   // the receiver is gone
};

// Each group of words has one writer, but for `starves`, and lines of its own.
struct RingControl {
    alignas(128) std::atomic<std::uint32_t> state;     // the receiver's
    alignas(128) std::atomic<std::uint64_t> head;      // the receiver's: bytes of the ring consumed since the beginning
    alignas(64) std::atomic<std::uint64_t> spill_head; // and of the spill
    alignas(128) std::atomic<std::uint64_t> dropped;   // the sender's: datagrams that found no room
    alignas(128) std::atomic<std::uint32_t> keeps;     // the receiver's: 1 once it has set bits in the two arrays
    alignas(64) std::atomic<
        std::uint32_t> starves; // 1: the sender sleeps until there is room; the receiver makes it 0, and tells it
    std::byte unused[60];
};
static_assert(sizeof(RingControl) == kControlSize);

static_assert(kRecordAlign == kLineBytes);
inline constexpr std::size_t kRingWords = kRingBytes / kRecordAlign / kLinesPerWord;
inline constexpr std::size_t kSpillWords = kSpillBytes / kRecordAlign / kLinesPerWord;

struct RingMemory {
    RingControl control;
    alignas(4096) std::byte data[kRingBytes];
    std::byte spill[kSpillBytes];
    alignas(4096) KeptWord kept[kRingWords];
    KeptWord kept_spill[kSpillWords];
};
static_assert(sizeof(RingMemory) == kRingBytes + kSpillBytes + std::size_t{6} * 4096); // whole pages

// Each record begins at a multiple of kRecordAlign. `word` is 0 until the record is there, so that no payload of
// earlier is ever taken for a header: the reader clears the words of records that it has taken, and the writer, before
// it publishes a record, the place of the next one where payload may stand. Small datagrams leave none, and cost one
// line each.
struct alignas(16) Record {
    std::atomic<std::uint64_t> word; // length | flags << 32; stored last
    std::uint64_t data;
};

inline constexpr std::uint64_t kRecordValid = UINT64_C(1) << 32;
inline constexpr std::uint64_t kRecordData = UINT64_C(1) << 33; // `data` is FI_REMOTE_CQ_DATA
// No datagrams, but marks, with an offset in place of the length. Wrap: the next record is there, in this lap if that
// is farther on, else in the next. Turn: it is in the other part, ring or spill, there, or that one's next if its
// reader is there.
inline constexpr std::uint64_t kRecordWrap = UINT64_C(1) << 34;
inline constexpr std::uint64_t kRecordTurn = UINT64_C(1) << 35;

constexpr std::size_t record_bytes(std::size_t length) noexcept
{
    return (sizeof(Record) + length + kRecordAlign - 1) & ~(kRecordAlign - 1);
}

constexpr std::uint64_t round_up(std::uint64_t position, std::size_t bytes) noexcept
{
    return (position + bytes - 1) & ~static_cast<std::uint64_t>(bytes - 1);
}

} // namespace vma::local
