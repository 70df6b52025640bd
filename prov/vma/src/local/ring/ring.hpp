// SPDX-License-Identifier: BSD-2-Clause
// The ring in which one endpoint writes to one other, seen from its two ends. The sender makes it, so it can fill it
// before the receiver knows of it; the receiver takes no word in it for true before it has copied and checked it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "core/barrier.hpp"
#include "core/spinlock.hpp"
#include "local/layout.hpp"
#include "local/ring/kept_part.hpp"

namespace vma::local {

inline constexpr std::size_t kMaxDatagram = 65507 + 64; // max_msg_size, and what a program puts before it
// Sizes of records, powers of two. The ring stays in the caches; what a receiver that is behind leaves no room for there goes
// to the spill, of which no memory is taken before.
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

// Each record begins at a multiple of kRecordAlign. `word` is 0 until the record is there, so that no payload of earlier is
// ever taken for a header: the reader clears the words of records that it has taken, and the writer, before it publishes a
// record, the place of the next one where payload may stand. Small datagrams leave none, and cost one line each.
struct alignas(16) Record {
    std::atomic<std::uint64_t> word; // length | flags << 32; stored last
    std::uint64_t data;
};

inline constexpr std::uint64_t kRecordValid = UINT64_C(1) << 32;
inline constexpr std::uint64_t kRecordData = UINT64_C(1) << 33; // `data` is FI_REMOTE_CQ_DATA
// No datagrams, but marks, with an offset in place of the length. Wrap: the next record is there, in this lap if that is farther on,
// else in the next. Turn: it is in the other part, ring or spill, there, or that one's next if its reader is there.
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
    // Makes `gap` so long that no line is kept from there on for `need` bytes and a mark. False: there is no such place.
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

    // The same for a receiver that is behind; nullptr where there is no room, or only in the spill, which was not wanted.
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

    // After publish(): what the reader wants.
    RingState state() const noexcept
    {
        if (fences_)
            core::full_fence();
        else
            std::atomic_signal_fence(std::memory_order_seq_cst);
        return static_cast<RingState>(memory_->control.state.load(std::memory_order_relaxed));
    }

    // After a claim_low() that failed, for who has nothing else to do. True: the reader tells us when it gives something back. The reader looks after
    // each visit, without a fence, so the barrier is here. False: there is room, or it can't be told.
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
    // After RingState::ring look at ready() once more. False: do so again, soon, as the writer may not have seen it yet.
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
