// SPDX-License-Identifier: BSD-2-Clause
// The ring of slots seen from its two ends. One writer, one reader, each in a process of its own; a reader takes no
// word of the writer's for true before it has copied and checked it, and the other way round. No waiting, no waking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/spinlock.hpp"
#include "local/layout.hpp"
#include "local/stamp.hpp"

namespace vma::local {

// A copy of up to kSlotPayload bytes without a call.
inline void copy_small(std::byte *to, const std::byte *from, std::size_t length) noexcept
{
    if (length >= 16) {
        std::size_t at = 0;
        for (; at + 16 <= length; at += 16)
            std::memcpy(to + at, from + at, 16);
        if (at < length)
            std::memcpy(to + length - 16, from + length - 16, 16);
    } else if (length >= 8) {
        std::memcpy(to, from, 8);
        std::memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        std::memcpy(to, from, 4);
        std::memcpy(to + length - 4, from + length - 4, 4);
    } else if (length) {
        to[0] = from[0];
        to[length / 2] = from[length / 2];
        to[length - 1] = from[length - 1];
    }
}

// A slot's header, copied out of shared memory once.
struct SlotHeader {
    SlotOp op;
    std::uint8_t flags;
    std::uint16_t length;
    std::uint64_t data;
    std::uint64_t addr;
};

class SlotWriter
{
public:
    void attach(Control *control, Slot *slots) noexcept
    {
        control_ = control;
        slots_ = slots;
    }

    // The slot to fill next, or nullptr when the ring seems full: refresh() and try again.
    Slot *claim() noexcept { return next_ - freed_ < kSlotCount ? &slots_[index_] : nullptr; }

    // The slot to fill next is fetched for it.
    void warm() const noexcept
    {
        const auto *const slot = reinterpret_cast<const std::byte *>(&slots_[index_]);
        for (std::size_t at = 0; at < sizeof(Slot); at += 64)
            __builtin_prefetch(slot + at, 1);
    }

    // What claim() returned becomes the reader's.
    void publish(SlotOp op, unsigned flags, std::size_t length, std::uint64_t data, std::uint64_t addr) noexcept
    {
        Slot &slot = slots_[index_];
        slot.data = data;
        slot.addr = addr;
        slot.stamp = stamp_now(static_cast<StampClock>(control_->stamps.load(std::memory_order_relaxed)));
        ++next_;
        slot.word.store(static_cast<std::uint64_t>(next_) << 32 | static_cast<std::uint64_t>(length) << 16 |
                            static_cast<std::uint64_t>(flags) << 8 | static_cast<std::uint64_t>(op),
                        std::memory_order_release);
        index_ = index_ + 1 == kSlotCount ? 0 : index_ + 1;
    }

    // After publish(): whether the reader asked to be told. A word that is none of the three means `wake`.
    RxState reader_state() const noexcept
    {
        core::full_fence();
        return static_cast<RxState>(control_->rx_state.load(std::memory_order_relaxed));
    }
    // What was published stays the writer's to read back: the reader can't cut any more. False: it has.
    bool claim_back() const noexcept
    {
        std::uint64_t cut = kCutOpen;
        return control_->cut.compare_exchange_strong(cut, kCutClaimed, std::memory_order_acq_rel) || cut == kCutClaimed;
    }
    enum class Last {
        open,    // it was claimed: more may be published
        taken,   // publish nothing more: the reader would not know that it is behind the end
        refused, // likewise, and the reader doesn't take it
    };
    // The reader has closed: what becomes of what was published last. Where it has not decided yet, this does.
    Last decide_last() const noexcept
    {
        std::uint64_t cut = kCutOpen;
        if (control_->cut.compare_exchange_strong(cut, kCutAt | next_, std::memory_order_acq_rel))
            return Last::taken;
        if (cut == kCutClaimed)
            return Last::open;
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(cut) - next_) >= 0 ? Last::taken : Last::refused;
    }

    // The reader's index now. A lie (outside of what was published) is reported as `false` and changes nothing.
    bool read_head(std::uint32_t &head) const noexcept
    {
        head = control_->head.load(std::memory_order_acquire);
        return head - freed_ <= next_ - freed_;
    }
    // Everything before `head` may be overwritten. `head` is one that read_head() accepted.
    void free_until(std::uint32_t head) noexcept { freed_ = head; }

    std::uint32_t next() const noexcept { return next_; } // slots published since the beginning
    std::uint32_t freed() const noexcept { return freed_; }
    std::uint32_t free_slots() const noexcept { return kSlotCount - (next_ - freed_); }
    // A slot published at most kSlotCount slots ago and not overwritten since.
    Slot &at(std::uint32_t position) const noexcept
    {
        const std::uint32_t back = next_ - position; // 1 .. kSlotCount
        return slots_[index_ >= back ? index_ - back : index_ + kSlotCount - back];
    }
    Control &control() const noexcept { return *control_; }
    explicit operator bool() const noexcept { return control_ != nullptr; }

private:
    Control *control_ = nullptr;
    Slot *slots_ = nullptr;
    std::uint32_t next_ = 0;  // position of the slot to fill next
    std::uint32_t freed_ = 0; // all before this position are consumed
    std::uint32_t index_ = 0; // next_ in the array
};

class SlotReader
{
public:
    void attach(Control *control, Slot *slots) noexcept
    {
        control_ = control;
        slots_ = slots;
    }

    bool ready() const noexcept { return sequence(word()) == next_ + 1; }
    // Of the slot that is ready.
    std::uint64_t stamp() const noexcept { return slots_[index_].stamp; }
    void ask_for_stamps(StampClock clock) noexcept
    {
        control_->stamps.store(static_cast<std::uint32_t>(clock), std::memory_order_release);
    }

    // True, with the header, when there is a slot to consume.
    bool peek(SlotHeader &header) const noexcept
    {
        const std::uint64_t value = word();
        if (sequence(value) != next_ + 1)
            return false;
        const Slot &slot = slots_[index_];
        header.op = static_cast<SlotOp>(value & 0xff);
        header.flags = static_cast<std::uint8_t>(value >> 8);
        header.length = static_cast<std::uint16_t>(value >> 16);
        header.data = slot.data;
        header.addr = slot.addr;
        return true;
    }

    std::byte *payload() const noexcept { return slots_[index_].payload; }

    // The peeked slot is done with. publish() tells the writer.
    void consume() noexcept
    {
        ++next_;
        index_ = index_ + 1 == kSlotCount ? 0 : index_ + 1;
    }
    bool unpublished() const noexcept { return next_ != published_; }
    // Slots given back since the last check of want_space.
    std::uint32_t unchecked() const noexcept { return published_ - checked_; }
    void publish() noexcept
    {
        published_ = next_;
        control_->head.store(next_, std::memory_order_release);
    }
    // True when the writer waits for a slot and some were given back; fences, so not for every slot.
    bool writer_wants_space() noexcept
    {
        checked_ = published_;
        core::full_fence();
        return control_->want_space.load(std::memory_order_relaxed) != 0 &&
               control_->want_space.exchange(0, std::memory_order_seq_cst) != 0;
    }

    // The writer will publish without waking us / will wake us. After the latter look at ready() once more.
    void watch() noexcept { set_state(RxState::watching); }
    void ask_for_ring() noexcept
    {
        set_state(RxState::wake);
        core::full_fence();
    }

    // The writer learns with what it publishes next that nothing is taken any more.
    void close() noexcept
    {
        set_state(RxState::closed);
        if (!std::exchange(closed_, true))
            closed_at_ = next_;
        core::full_fence();
    }
    enum class Cut {
        here,    // nothing more will come. Consume no more: the writer may have published one that is refused
        claimed, // the writer reads back what it wrote: it goes on as before
        full,    // `drain` could not take all: once more, later
        ended,   // `drain` said so
        lied,    // the writer named slots that it has not published, or goes on publishing
    };
    // Slots taken after close(). A writer looks for that word behind each batch that it publishes, or message; a
    // message of 16 GiB is not longer. One that never looks would keep us for as long as it likes.
    static constexpr std::uint32_t kMostBehindClose = 1 << 20;
    // Closes, and decides with the writer which slot is the last. `drain()` consumes what is ready(), as far as there
    // is room, and returns false where the connection has ended.
    template <typename Drain> Cut cut(Drain drain) noexcept
    {
        close();
        for (bool owed = false;;) {
            const std::uint32_t before = next_;
            if (!drain())
                return Cut::ended;
            if (next_ - closed_at_ > kMostBehindClose)
                return Cut::lied;
            if (ready())
                return Cut::full;
            if (owed && next_ == before)
                return Cut::lied;
            std::uint64_t at = kCutOpen;
            if (control_->cut.compare_exchange_strong(at, kCutAt | next_, std::memory_order_acq_rel))
                return Cut::here;
            if (at == kCutClaimed) {
                closed_ = false;
                ask_for_ring();
                return Cut::claimed;
            }
            if (static_cast<std::int32_t>(static_cast<std::uint32_t>(at) - next_) <= 0)
                return Cut::here;
            owed = true; // the writer was faster; what it published before it decided is visible now
        }
    }

    std::uint32_t next() const noexcept { return next_; }
    Control &control() const noexcept { return *control_; }

private:
    static std::uint32_t sequence(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32); }
    std::uint64_t word() const noexcept { return slots_[index_].word.load(std::memory_order_acquire); }
    void set_state(RxState state) noexcept
    {
        if (closed_) [[unlikely]]
            return;
        control_->rx_state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
    }

    Control *control_ = nullptr;
    Slot *slots_ = nullptr;
    std::uint32_t next_ = 0; // position of the slot to look at
    std::uint32_t index_ = 0;
    std::uint32_t published_ = 0; // value of Control::head
    std::uint32_t checked_ = 0;
    std::uint32_t closed_at_ = 0; // next_ when it was
    bool closed_ = false;
};

} // namespace vma::local
