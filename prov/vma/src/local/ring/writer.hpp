// SPDX-License-Identifier: BSD-2-Clause
// The sender's end of a ring.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "core/barrier.hpp"
#include "core/spinlock.hpp"
#include "local/ring/memory.hpp"

namespace vma::local {

// Writes one of the two parts. There is always room for one more mark after what was claimed.
class PartWriter
{
public:
    // `payload`: a bit a line, which may begin with payload; all 0.
    void attach(std::byte *data, std::size_t bytes, const std::atomic<std::uint64_t> &head, std::uint64_t *payload,
                const KeptWord *kept, const std::atomic<std::uint32_t> &keeps) noexcept
    {
        data_ = data;
        bytes_ = bytes;
        head_ = &head;
        payload_ = payload;
        kept_ = kept;
        keeps_ = &keeps;
        any_kept_ = false;
        next_ = freed_ = 0;
        look_at_ = kLowBytes;
    }
    bool attached() const noexcept { return data_ != nullptr; }

    // Where the payload of the next datagram goes; nullptr where it has no room.
    std::byte *claim(std::size_t length) noexcept
    {
        std::size_t gap = 0;
        if (!find(length, gap))
            return nullptr;
        if (gap != 0) [[unlikely]]
            wrap(gap);
        return place(length, gap);
    }
    // The same, but back at the part's start where it would be kLowBytes or more from there and the reader has taken
    // everything.
    std::byte *claim_low(std::size_t length) noexcept
    {
        if (next_ >= look_at_) [[unlikely]] {
            if (std::byte *place = claim_start(length))
                return place;
        }
        return claim(length);
    }
    // The same where the reader comes from the other part: it is told of the place there.
    std::byte *claim_first(std::size_t length) noexcept
    {
        std::size_t gap = 0;
        if (!find(length, gap))
            return nullptr;
        clear(next_ + gap);
        return place(length, gap);
    }
    std::uint64_t offset() const noexcept { return offset_of(next_); }

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
        // For the next ones, likely as long: on their way here while the program does something else.
        __builtin_prefetch(&at(next_ + kRecordAlign), 1);
        const std::uint64_t ahead = next_ + std::min(record_bytes(length), kPrefetch);
        for (std::uint64_t line = next_ + 2 * kRecordAlign; line < ahead; line += kRecordAlign)
            __builtin_prefetch(&at(line), 1);
    }

    bool any_kept() const noexcept { return keeps_->load(std::memory_order_relaxed) != 0; }

    // The reader has taken everything, and gone to the other part if it was told to.
    bool drained() noexcept { return refresh() && freed_ == next_; }
    // Whether the reader has given something back since the last claim that failed.
    bool freed_more() noexcept
    {
        const std::uint64_t before = freed_;
        return refresh() && freed_ != before;
    }
    // The other part goes on, at its `offset`, after what was published here.
    void turn(std::uint64_t offset) noexcept
    {
        const std::uint64_t mark = next_;
        next_ += kRecordAlign;
        at(mark).word.store(kRecordValid | kRecordTurn | offset, std::memory_order_release);
    }
    // What claim() and publish() would write of such a datagram is fetched for it.
    void warm(std::size_t length) const noexcept
    {
        const std::uint64_t end = next_ + std::min(record_bytes(length), kPrefetch) + kRecordAlign;
        for (std::uint64_t line = next_; line != end; line += kRecordAlign)
            __builtin_prefetch(&at(line), 1);
    }
    // Everything was taken, and nothing is kept.
    void restart() noexcept { next_ = freed_ = round_up(next_, bytes_); }

private:
    static constexpr std::size_t kPrefetch = 2048;  // bytes: a datagram of an Ethernet frame
    static constexpr std::size_t kLookEvery = 4096; // bytes: looks at a reader that is behind cost a cache line each

    bool has_room(std::size_t bytes) noexcept
    {
        const std::uint64_t end = next_ + bytes + kRecordAlign;
        return end - freed_ <= bytes_ || (refresh() && end - freed_ <= bytes_);
    }
    // How far from next_ a record of this length may stand.
    bool find(std::size_t length, std::size_t &gap) noexcept
    {
        const std::size_t need = record_bytes(length);
        const std::size_t left = bytes_ - (next_ & (bytes_ - 1));
        gap = need > left ? left : 0;
        return has_room(gap + need) && (!any_kept_ || pass_kept(need, gap));
    }
    // The next record stands so far from here.
    void wrap(std::size_t gap) noexcept
    {
        clear(next_ + gap);
        at(next_).word.store(kRecordValid | kRecordWrap | offset_of(next_ + gap), std::memory_order_release);
    }
    // nullptr: not now, or there is no room yet, as the rest of this lap counts as written.
    [[gnu::noinline]] std::byte *claim_start(std::size_t length) noexcept
    {
        const std::size_t offset = offset_of(next_);
        const std::size_t gap = bytes_ - offset;
        if (offset >= kLowBytes && drained() && !any_kept() && has_room(gap + record_bytes(length))) {
            look_at_ = next_ + gap + kLowBytes;
            wrap(gap);
            return place(length, gap);
        }
        look_at_ = offset < kLowBytes ? next_ - offset + kLowBytes : next_ + kLookEvery; // a new lap has its own
        return nullptr;
    }
    std::byte *place(std::size_t length, std::size_t gap) noexcept
    {
        next_ += gap;
        clear(next_ + record_bytes(length));
        return reinterpret_cast<std::byte *>(&at(next_)) + sizeof(Record);
    }
    // False where the reader's word can't be true: then everything counts as full.
    bool refresh() noexcept
    {
        const std::uint64_t head = head_->load(std::memory_order_acquire);
        if (head - freed_ > next_ - freed_)
            return false;
        freed_ = head;
        any_kept_ = any_kept(); // what is kept of the laps before, the reader said before it moved its head
        return true;
    }
    bool is_kept(std::uint64_t position) const noexcept
    {
        return (kept_[word_of(position)].load(std::memory_order_acquire) & mask_of(position)) != 0;
    }
    // Makes `gap` so long that no line is kept from there on for `need` bytes and a mark. False: there is no such
    // place.
    [[gnu::noinline]] bool pass_kept(std::size_t need, std::size_t &gap) noexcept
    {
        std::uint64_t start = next_ + gap;
        for (std::uint64_t line = start; line != start + need + kRecordAlign; line += kRecordAlign) {
            if (!is_kept(line))
                continue;
            start = line + kRecordAlign;
            if (start + need > round_up(start, bytes_)) // it would be split
                start = round_up(start, bytes_);
            if (start + need + kRecordAlign - freed_ > bytes_ && !has_room(start + need - next_))
                return false;
            line = start - kRecordAlign;
        }
        gap = static_cast<std::size_t>(start - next_);
        return true;
    }
    void clear(std::uint64_t position) noexcept
    {
        if ((payload_[word_of(position)] & mask_of(position)) != 0) [[unlikely]] {
            payload_[word_of(position)] &= ~mask_of(position);
            at(position).word.store(0, std::memory_order_relaxed);
        }
    }
    std::size_t word_of(std::uint64_t position) const noexcept
    {
        return static_cast<std::size_t>((position & (bytes_ - 1)) / kRecordAlign / 64);
    }
    std::uint64_t offset_of(std::uint64_t position) const noexcept { return position & (bytes_ - 1); }
    static std::uint64_t mask_of(std::uint64_t position) noexcept
    {
        return UINT64_C(1) << (position / kRecordAlign % 64);
    }
    Record &at(std::uint64_t position) const noexcept
    {
        return *reinterpret_cast<Record *>(data_ + (position & (bytes_ - 1)));
    }

    std::uint64_t next_ = 0;  // bytes published since the beginning
    std::uint64_t freed_ = 0; // bytes known to be consumed
    std::byte *data_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t *payload_ = nullptr;
    const std::atomic<std::uint64_t> *head_ = nullptr;
    bool any_kept_ = false; // perhaps, behind freed_
    const KeptWord *kept_ = nullptr;
    const std::atomic<std::uint32_t> *keeps_ = nullptr;
    std::uint64_t look_at_ = kLowBytes; // the position from which on claim_low() asks claim_start()
};

class RingWriter
{
public:
    void attach(RingMemory *memory) noexcept
    {
        memory_ = memory;
        payload_.fill(0);
        ring_.attach(memory->data, kRingBytes, memory->control.head, payload_.data(), memory->kept,
                     memory->control.keeps);
        spill_ = {};
        spill_payload_.reset();
        spilling_ = false;
        fences_ = true;
    }

    // Where the payload of the next datagram goes; nullptr: ask claim_behind().
    std::byte *claim(std::size_t length) noexcept { return spilling_ ? nullptr : ring_.claim(length); }
    // The same near the ring's start, as long as the reader keeps up, so that little memory is touched. nullptr: there
    // is no room. Not for who asks claim_behind() too.
    std::byte *claim_low(std::size_t length) noexcept { return spilling_ ? nullptr : ring_.claim_low(length); }

    // The same for a receiver that is behind; nullptr where there is no room, or only in the spill, which was not
    // wanted.
    [[gnu::noinline]] std::byte *claim_behind(std::size_t length, bool may_spill) noexcept
    {
        if (spilling_ && ring_.drained()) { // it reads the spill
            if (std::byte *place = ring_.claim_first(length)) {
                spill_.turn(ring_.offset());
                spilling_ = false;
                return place;
            }
        }
        if (!may_spill)
            return nullptr;
        return spilling_ ? spill_.claim(length) : turn_to_spill(length);
    }

    // What was claimed becomes the reader's.
    void publish(std::size_t length, bool has_data, std::uint64_t data) noexcept
    {
        (spilling_ ? spill_ : ring_).publish(length, has_data, data);
    }

    void warm(std::size_t length) const noexcept
    {
        (spilling_ ? spill_ : ring_).warm(length);
        __builtin_prefetch(&memory_->control.state);
    }

    // The reader executes the fence of state() whenever it changes its mind (core/barrier.hpp).
    void leave_fences_to_reader() noexcept { fences_ = false; }

    // The reader reads no more. Without the fence of state(): for who has published nothing.
    bool left() const noexcept
    {
        return memory_->control.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(RingState::closed);
    }
    // After publish(): what the reader wants.
    RingState state() const noexcept
    {
        if (fences_)
            core::full_fence();
        else
            std::atomic_signal_fence(std::memory_order_seq_cst);
        return static_cast<RingState>(memory_->control.state.load(std::memory_order_relaxed));
    }

    // After state(), for who rings: the reader's fences are about that word alone, and the bit may be set already.
    void fence_before_bell() const noexcept
    {
        if (!fences_)
            core::full_fence();
    }

    // After a claim_low() that failed, for who has nothing else to do. True: the reader tells us when it gives
    // something back. The reader looks after each visit, without a fence, so the barrier is here. False: there is room,
    // or it can't be told.
    bool wait_for_room() noexcept
    {
        memory_->control.starves.store(1, std::memory_order_seq_cst);
        return core::barrier_everywhere() && !ring_.freed_more();
    }

    void count_drop() noexcept
    {
        std::atomic<std::uint64_t> &count = memory_->control.dropped;
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

private:
    std::byte *turn_to_spill(std::size_t length) noexcept
    {
        if (!spill_.attached()) {
            spill_payload_.reset(new (std::nothrow) std::uint64_t[kSpillBytes / kRecordAlign / 64]());
            if (!spill_payload_)
                return nullptr;
            spill_.attach(memory_->spill, kSpillBytes, memory_->control.spill_head, spill_payload_.get(),
                          memory_->kept_spill, memory_->control.keeps);
        }
        if (spill_.drained() && !spill_.any_kept()) // else its start may be kept
            spill_.restart();
        std::byte *place = spill_.claim_first(length);
        if (place == nullptr)
            return nullptr;
        ring_.turn(spill_.offset());
        spilling_ = true;
        return place;
    }

    PartWriter ring_;
    bool spilling_ = false; // what comes next goes to the spill
    bool fences_ = true;
    PartWriter spill_;
    RingMemory *memory_ = nullptr;
    std::array<std::uint64_t, kRingBytes / kRecordAlign / 64> payload_{};
    std::unique_ptr<std::uint64_t[]> spill_payload_;
};

} // namespace vma::local
