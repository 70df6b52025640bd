// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that a socket has received by its endpoint and nobody has read yet: a ring that the engine's poller fills
// and a reader empties, without a lock between them. It takes memory with its first datagram.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compat/src/base/loan.hpp"
#include "compat/src/udp/wire.hpp"

namespace vma::sock::udp {

struct alignas(64) Queued {
    static constexpr std::uint32_t kLent = 1; // in `size`: a Loan stands here instead of the bytes
    // Likewise, of one that several processes may read: an empty one was peeked at.
    static constexpr std::uint32_t kPeeked = 2;

    std::uint32_t length; // of the datagram
    std::uint32_t size;   // of the record, a multiple of 64; the rest of the ring is skipped when it is kSkip
    About about;
    std::uint8_t *memory() { return reinterpret_cast<std::uint8_t *>(this + 1); }
    bool is_lent() const { return (size & kLent) != 0; }
    Loan &loan() { return *reinterpret_cast<Loan *>(this + 1); }
    const std::uint8_t *bytes() { return is_lent() ? loan().data() : memory(); }
};

// Copies all the parts to one place that has room for them.
inline void gather(std::uint8_t *to, const iovec *parts, std::size_t count)
{
    for (const iovec *part = parts; part != parts + count; to += part++->iov_len)
        if (part->iov_len != 0) // else it may point nowhere
            std::memcpy(to, part->iov_base, part->iov_len);
}

class Queue
{
public:
    // ---- the reader's side
    // For a moment the head is beyond the tail: when the poller starts again at the ring's beginning.
    bool empty() const
    {
        const std::uint64_t head = head_.load(std::memory_order_relaxed);
        return static_cast<std::int64_t>(tail_.load(std::memory_order_acquire) - head) <= 0;
    }
    Queued *front(); // nullptr: empty. Stays until pop()
    void pop();      // a loan in it ends
    void
    own_loans(); // what is lent is copied; a datagram of which no copy can be made is empty. Nobody fills it meanwhile
    void mark() { mark_ = tail_.load(std::memory_order_acquire) + 1; } // all that is in it stands before the mark
    void unmark() { mark_ = 0; }
    bool is_marked() const { return mark_ != 0; }
    bool is_read_to_mark() const { return mark_ != 0 && head_.load(std::memory_order_relaxed) + 1 >= mark_; }

    // ---- the poller's side. False: there is no room, or no memory
    bool push(const About &about, const iovec *parts, std::size_t count, std::size_t length);
    bool push(const About &about, const Loan &loan);

    // ---- neither reads nor fills it meanwhile
    template <typename Visit> void each(Visit visit) // what is in it, in order
    {
        const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
        for (std::uint64_t place = head_.load(std::memory_order_relaxed); place < tail;) {
            Queued *const record = at(place);
            const bool skips = record->size == kSkip;
            place = skips ? (place | (capacity_ - 1)) + 1 : place + (record->size & ~Queued::kLent);
            if (!skips)
                visit(*record);
        }
    }
    [[nodiscard]] bool reserve();      // before the first one comes; false: there is no memory
    void set_limit(std::size_t bytes); // of what is held, as SO_RCVBUF counts; takes effect when it is empty
    void release();                    // all that is in it goes

private:
    static constexpr std::uint32_t kSkip = ~0U;
    bool make_ring();
    void begin(); // of a ring that nothing is in
    Queued *claim(std::size_t bytes);
    void publish(std::uint32_t size) { tail_.store(claimed_ + size, std::memory_order_release); }
    Queued *at(std::uint64_t position) { return reinterpret_cast<Queued *>(ring_ + (position & (capacity_ - 1))); }

    std::uint8_t *ring_ = nullptr;
    std::size_t capacity_ = 0; // power of two
    std::size_t limit_ = 0;
    std::uint64_t skip_end_ = 0; // of the last skipped stretch
    std::uint64_t skipped_ = 0;
    std::uint64_t claimed_ = 0;                      // place of the record that is being pushed
    std::uint64_t mark_ = 0;                         // the reader's; one more than the place, 0: none
    alignas(64) std::atomic<std::uint64_t> head_{0}; // bytes read
    alignas(64) std::atomic<std::uint64_t> tail_{0}; // bytes filled
};

} // namespace vma::sock::udp
