// SPDX-License-Identifier: BSD-2-Clause
// The ring in which one datagram endpoint writes to one other, seen from its two ends. The sender makes it, so it can fill
// it before the receiver knows of it; the receiver takes no word in it for true before it has copied and checked it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/spinlock.hpp"
#include "local/layout.hpp"

namespace vma::local {

inline constexpr std::size_t kMaxDatagram = 65507 + 64;         // max_msg_size, and what a program puts before it
inline constexpr std::size_t kRingBytes = std::size_t{1} << 20; // of records; a power of two
inline constexpr std::size_t kRecordAlign = 64;

enum class RingState : std::uint32_t {
    watching = 0, // "I look at it myself", also as long as the receiver has not got it yet
    ring = 1,     // "set my bit, and wake my queue if it sleeps"
    closed = 2,   // the receiver is gone
};

// Each group of words has one writer and lines of its own.
struct RingControl {
    alignas(128) std::atomic<std::uint32_t> state;   // the receiver's
    alignas(128) std::atomic<std::uint64_t> head;    // the receiver's: bytes consumed since the beginning
    alignas(128) std::atomic<std::uint64_t> dropped; // the sender's: datagrams that found no room
    alignas(128) std::byte unused[128];
};
static_assert(sizeof(RingControl) == kControlSize);

struct RingMemory {
    RingControl control;
    alignas(4096) std::byte data[kRingBytes];
};
static_assert(sizeof(RingMemory) == 4096 + kRingBytes); // whole pages

// Each record begins at a multiple of kRecordAlign. `word` is 0 until the record is there, so that no payload of earlier is
// ever taken for a header: the reader clears the words of records that it has taken, and the writer, before it publishes a
// record, the place of the next one where payload may stand. Small datagrams leave none, and cost one line each.
struct alignas(16) Record {
    std::atomic<std::uint64_t> word; // length | flags << 32; stored last
    std::uint64_t data;
};

inline constexpr std::uint64_t kRecordValid = UINT64_C(1) << 32;
inline constexpr std::uint64_t kRecordData = UINT64_C(1) << 33; // `data` is FI_REMOTE_CQ_DATA
inline constexpr std::uint64_t kRecordWrap = UINT64_C(1) << 34; // no datagram; the next record is at the start

constexpr std::size_t record_bytes(std::size_t length) noexcept
{
    return (sizeof(Record) + length + kRecordAlign - 1) & ~(kRecordAlign - 1);
}

class RingWriter
{
public:
    void attach(RingMemory *memory) noexcept
    {
        memory_ = memory;
        next_ = freed_ = 0;
        payload_.fill(0);
    }

    // Where the payload of the next datagram goes; nullptr where it has no room.
    std::byte *claim(std::size_t length) noexcept
    {
        const std::size_t need = record_bytes(length);
        const std::size_t left = kRingBytes - (next_ & (kRingBytes - 1));
        const std::size_t gap = need > left ? left : 0;
        if (next_ + gap + need + kRecordAlign - freed_ > kRingBytes) [[unlikely]] {
            if (!refresh() || next_ + gap + need + kRecordAlign - freed_ > kRingBytes)
                return nullptr;
        }
        if (gap != 0) [[unlikely]] {
            clear(0);
            at(next_).word.store(kRecordValid | kRecordWrap, std::memory_order_release);
            next_ += gap;
        }
        clear(next_ + need);
        return reinterpret_cast<std::byte *>(&at(next_)) + sizeof(Record);
    }

    // What claim() returned becomes the reader's.
    void publish(std::size_t length, bool has_data, std::uint64_t data) noexcept
    {
        Record &record = at(next_);
        record.data = data;
        const std::uint64_t end = next_ + record_bytes(length);
        for (std::uint64_t line = next_ + kRecordAlign; line != end; line += kRecordAlign)
            payload_[word_of(line)] |= mask_of(line);
        next_ = end;
        record.word.store(length | kRecordValid | (has_data ? kRecordData : 0), std::memory_order_release);
        // For the next one but one: on its way here while the program does something else.
        __builtin_prefetch(&at(next_ + kRecordAlign), 1);
    }

    // After publish(): what the reader wants.
    RingState state() const noexcept
    {
        core::full_fence();
        return static_cast<RingState>(memory_->control.state.load(std::memory_order_relaxed));
    }

    void count_drop() noexcept
    {
        std::atomic<std::uint64_t> &count = memory_->control.dropped;
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

private:
    // False where the reader's word can't be true: then everything counts as full.
    bool refresh() noexcept
    {
        const std::uint64_t head = memory_->control.head.load(std::memory_order_acquire);
        if (head - freed_ > next_ - freed_)
            return false;
        freed_ = head;
        return true;
    }
    void clear(std::uint64_t position) noexcept
    {
        if ((payload_[word_of(position)] & mask_of(position)) != 0) [[unlikely]] {
            payload_[word_of(position)] &= ~mask_of(position);
            at(position).word.store(0, std::memory_order_relaxed);
        }
    }
    static std::size_t word_of(std::uint64_t position) noexcept
    {
        return static_cast<std::size_t>((position & (kRingBytes - 1)) / kRecordAlign / 64);
    }
    static std::uint64_t mask_of(std::uint64_t position) noexcept
    {
        return UINT64_C(1) << (position / kRecordAlign % 64);
    }
    Record &at(std::uint64_t position) const noexcept
    {
        return *reinterpret_cast<Record *>(memory_->data + (position & (kRingBytes - 1)));
    }

    RingMemory *memory_ = nullptr;
    std::uint64_t next_ = 0;                                              // bytes published since the beginning
    std::uint64_t freed_ = 0;                                             // bytes known to be consumed
    std::array<std::uint64_t, kRingBytes / kRecordAlign / 64> payload_{}; // one bit a line: it may begin with payload
};

// A datagram in the ring, its header copied out of shared memory once.
struct Arrived {
    const std::byte *payload;
    std::size_t length;
    bool has_data;
    std::uint64_t data;
};

class RingReader
{
public:
    enum class Peek { nothing, datagram, lie };

    void attach(RingMemory *memory) noexcept { memory_ = memory; }

    bool ready() const noexcept { return at(next_).word.load(std::memory_order_relaxed) != 0; }

    // What stands in front, checked to lie inside of the ring.
    Peek peek(Arrived &arrived) noexcept
    {
        std::uint64_t word = at(next_).word.load(std::memory_order_acquire);
        if (word == 0)
            return Peek::nothing;
        if (word == (kRecordValid | kRecordWrap) && (next_ & (kRingBytes - 1)) != 0) [[unlikely]] {
            at(next_).word.store(0, std::memory_order_relaxed);
            next_ = (next_ | (kRingBytes - 1)) + 1;
            word = at(next_).word.load(std::memory_order_acquire);
            if (word == 0)
                return Peek::nothing;
        }
        const std::size_t offset = next_ & (kRingBytes - 1);
        const auto length = static_cast<std::uint32_t>(word);
        if ((word & ~(kRecordData | UINT32_MAX)) != kRecordValid || length > kMaxDatagram ||
            record_bytes(length) > kRingBytes - offset)
            return Peek::lie;
        const Record &record = at(next_);
        arrived = {memory_->data + offset + sizeof(Record), length, (word & kRecordData) != 0, record.data};
        return Peek::datagram;
    }
    void consume(const Arrived &arrived) noexcept
    {
        at(next_).word.store(0, std::memory_order_relaxed);
        next_ += record_bytes(arrived.length);
    }

    // Gives back what was consumed.
    void publish() noexcept
    {
        if (next_ != published_)
            memory_->control.head.store(published_ = next_, std::memory_order_release);
    }

    // After RingState::ring look at ready() once more.
    void set_state(RingState state) noexcept
    {
        memory_->control.state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
        if (state != RingState::watching)
            core::full_fence();
    }
    std::uint64_t dropped() const noexcept { return memory_->control.dropped.load(std::memory_order_relaxed); }

private:
    Record &at(std::uint64_t position) const noexcept
    {
        return *reinterpret_cast<Record *>(memory_->data + (position & (kRingBytes - 1)));
    }

    RingMemory *memory_ = nullptr;
    std::uint64_t next_ = 0;
    std::uint64_t published_ = 0;
};

} // namespace vma::local
