// SPDX-License-Identifier: BSD-2-Clause
// The receiver's end of a ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/barrier.hpp"
#include "core/spinlock.hpp"
#include "local/ring/memory.hpp"

namespace vma::local {

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

    void attach(RingMemory *memory) noexcept
    {
        memory_ = memory;
        now_ = {memory->data, kRingBytes, &memory->control.head, &kept_[0]};
        other_ = {memory->spill, kSpillBytes, &memory->control.spill_head, &kept_[1]};
        kept_[0].attach(kRingBytes, memory->kept, memory->control.keeps, users_);
        kept_[1].attach(kSpillBytes, memory->kept_spill, memory->control.keeps, users_);
    }

    bool ready() const noexcept { return at(now_.next).word.load(std::memory_order_relaxed) != 0; }

    // What stands in front, checked to lie inside of its part.
    Peek peek(Arrived &arrived) noexcept
    {
        std::uint64_t word = at(now_.next).word.load(std::memory_order_acquire);
        for (unsigned marks = 0; (word & (kRecordWrap | kRecordTurn)) != 0; ++marks) { // few follow each other
            if (marks == kMostMarks)
                return Peek::nothing; // not for ever, at a stretch
            if (!follow(word))
                return Peek::lie;
            word = at(now_.next).word.load(std::memory_order_acquire);
        }
        if (word == 0)
            return Peek::nothing;
        const std::size_t offset = now_.next & (now_.bytes - 1);
        const auto length = static_cast<std::uint32_t>(word);
        if ((word & ~(kRecordData | UINT32_MAX)) != kRecordValid || length > kMaxDatagram ||
            record_bytes(length) > now_.bytes - offset)
            return Peek::lie;
        const Record &record = at(now_.next);
        arrived = {now_.data + offset + sizeof(Record), length, (word & kRecordData) != 0, record.data};
        return Peek::datagram;
    }
    // False: half of the part is kept already, or it can't be.
    bool may_keep(const Arrived &arrived) const noexcept
    {
        return now_.kept->may_keep(now_.next, record_bytes(arrived.length));
    }
    // What was peeked stays readable until unkeep().
    void keep(const Arrived &arrived) noexcept { now_.kept->keep(now_.next, record_bytes(arrived.length)); }
    // Any thread may, once for each keep(), with what peek() gave. True: it was the last one after leave().
    bool unkeep(const std::byte *payload, std::size_t length) noexcept
    {
        const std::byte *const record = payload - sizeof(Record);
        const bool of_ring = record < memory_->spill;
        const auto offset = static_cast<std::size_t>(record - (of_ring ? memory_->data : memory_->spill));
        return kept_[of_ring ? 0 : 1].unkeep(offset, record_bytes(length)) && leave_one();
    }
    // Nothing is peeked or published any more. True: nothing is kept, else the last unkeep() says so.
    bool leave() noexcept
    {
        for (KeptPart &part : kept_)
            part.mark_all();
        return leave_one();
    }
    void consume(const Arrived &arrived) noexcept
    {
        at(now_.next).word.store(0, std::memory_order_relaxed);
        now_.next += record_bytes(arrived.length);
    }

    // Gives back what was consumed, as far as it is not kept.
    void publish() noexcept
    {
        const std::uint64_t free = now_.kept->free_up_to(now_.next);
        if (free != now_.published)
            now_.head->store(now_.published = free, std::memory_order_release);
    }

    // After publish(). True once for each wait_for_room() of the writer's.
    bool writer_starves() noexcept
    {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::atomic<std::uint32_t> &starves = memory_->control.starves;
        return starves.load(std::memory_order_relaxed) != 0 && starves.exchange(0, std::memory_order_seq_cst) != 0;
    }
    // From the attachment on the writer leaves its fences to us.
    void fence_for_writer() noexcept { fences_for_writer_ = true; }
    // After RingState::ring look at ready() once more. False: do so again, soon, as the writer may not have seen it
    // yet.
    bool set_state(RingState state) noexcept
    {
        memory_->control.state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
        if (state == RingState::watching)
            return true;
        core::full_fence();
        return !fences_for_writer_ || core::barrier_everywhere();
    }
    std::uint64_t dropped() const noexcept { return memory_->control.dropped.load(std::memory_order_relaxed); }

private:
    static constexpr unsigned kMostMarks = 4;

    struct Part {
        std::byte *data = nullptr;
        std::size_t bytes = 0;
        std::atomic<std::uint64_t> *head = nullptr;
        KeptPart *kept = nullptr;
        std::uint64_t next = 0;
        std::uint64_t published = 0;
    };

    // Goes where a mark says. False: no mark.
    bool follow(std::uint64_t word) noexcept
    {
        const bool turn = (word & kRecordTurn) != 0;
        const bool wrap = (word & kRecordWrap) != 0;
        const auto target = static_cast<std::uint32_t>(word);
        if (turn == wrap || (word & ~(kRecordTurn | kRecordWrap | UINT32_MAX)) != kRecordValid)
            return false;
        const Part &part = turn ? other_ : now_;
        if (target >= part.bytes || target % kRecordAlign != 0 || (wrap && target == (now_.next & (now_.bytes - 1))))
            return false;
        at(now_.next).word.store(0, std::memory_order_relaxed);
        if (turn) {
            now_.next += kRecordAlign;
            now_.kept->mark_all(); // the writer comes back here when the head is where it ended
            publish();
            std::swap(now_, other_);
        }
        const std::size_t here = now_.next & (now_.bytes - 1);
        now_.next += target - here + (target < here ? now_.bytes : 0);
        return true;
    }
    Record &at(std::uint64_t position) const noexcept
    {
        return *reinterpret_cast<Record *>(now_.data + (position & (now_.bytes - 1)));
    }

    bool leave_one() noexcept { return users_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    Part now_; // read at the moment
    Part other_;
    RingMemory *memory_ = nullptr;
    bool fences_for_writer_ = false;
    KeptPart kept_[2];                    // of ring and spill
    std::atomic<std::uint32_t> users_{1}; // who reads it, and each record that is marked
};

} // namespace vma::local
