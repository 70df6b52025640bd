// SPDX-License-Identifier: BSD-2-Clause
// How a peer tells a completion queue that an endpoint has something for it, and wakes the queue when it sleeps.
// Doorbell is the queue's side, PeerDoorbell the side of who rings. What a ring means is the queue's business.
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>

#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "local/layout.hpp"
#include "local/segment.hpp"

namespace vma::local {

// Sets an endpoint's bit, cheaply when it is set already. The caller has fenced after what he rings for (full_fence()):
// one that is set already may be taken before his store is seen. A load behind this is ordered behind the bit.
void set_doorbell_bit(DoorbellPage &page, std::uint32_t bit) noexcept;

// For a new one: none of this process has had it before, and it isn't 0.
std::uint64_t next_doorbell_number() noexcept;

class Doorbell
{
public:
    // 0 or a negative fi_errno.
    int open() noexcept;

    // A bit for an endpoint, or -1 when all are taken. Bits are dense, so that one summary word serves 4,096 endpoints.
    int allocate_bit() noexcept;
    void free_bit(std::uint32_t bit) noexcept;

    bool rung() const noexcept
    {
        for (std::uint32_t i = 0; i < summary_used_; ++i) {
            if (page_->summary[i].load(std::memory_order_relaxed))
                return true;
        }
        return false;
    }

    // Takes all bits that are set and calls handle(bit) for each. A bit may be anybody's, also nobody's.
    template <typename Handle> void collect(Handle &&handle) noexcept
    {
        for (std::uint32_t i = 0; i < summary_used_; ++i) {
            if (!page_->summary[i].load(std::memory_order_relaxed))
                continue;
            std::uint64_t words = page_->summary[i].exchange(0, std::memory_order_seq_cst);
            for (; words; words &= words - 1) {
                const std::uint32_t word = i * 64 + static_cast<std::uint32_t>(__builtin_ctzll(words));
                std::uint64_t bits = page_->words[word].exchange(0, std::memory_order_seq_cst);
                core::fence_after_exchange(); // who finds the bit still set relies on our look
                for (; bits; bits &= bits - 1)
                    handle(word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
            }
        }
    }

    // An own bit, set by ourselves, for what this thread has just stored.
    void ring_self(std::uint32_t bit) noexcept
    {
        core::full_fence();
        set_doorbell_bit(*page_, bit);
    }

    // Whoever publishes from here on writes the eventfd. Look at everything once more before sleeping.
    void arm() noexcept;
    // True when nobody has written the eventfd, or was about to, since it was armed.
    bool disarm() noexcept;
    void wake_if_sleeping() noexcept
    {
        if (page_->sleeping.load(std::memory_order_relaxed))
            wake_self();
    }
    void wake_self() noexcept; // writes the eventfd
    bool drain() noexcept;     // makes the eventfd unreadable; whether it was readable
    // The eventfd is readable, or will be.
    bool readable() const noexcept { return page_->wakes.load(std::memory_order_relaxed) != drained_; }

    Place *places() const noexcept { return page_->places; }

    int memory_fd() const noexcept { return memory_.fd.get(); }
    int wake_fd() const noexcept { return wake_.get(); }
    std::uint64_t number() const noexcept { return number_; }

private:
    const std::uint64_t number_ = next_doorbell_number();
    SharedMemory memory_;
    core::UniqueFd wake_;
    DoorbellPage *page_ = nullptr;
    std::uint64_t sleeps_ = 0;    // armings
    std::uint64_t drained_ = 0;   // of DoorbellPage::wakes
    std::uint64_t at_arming_ = 0; // DoorbellPage::wakes
    std::uint32_t summary_used_ = 0;
    std::unique_ptr<std::uint64_t[]> taken_; // one bit a doorbell bit
    std::uint32_t lowest_free_word_ = 0;
};

// A peer's doorbell, mapped once a process however many endpoints ring it. Each process that rings wakes the sleeper
// itself: nobody leaves that to another process, which may be stopped, or die, before it has.
class PeerDoorbell
{
public:
    // The caller has fenced after what he rings for.
    void ring(std::uint32_t bit) noexcept { ring(bit, bit % kPlaces); }
    void ring(std::uint32_t bit, std::uint32_t place) noexcept
    {
        set_doorbell_bit(*page_, bit);
        wake_if_sleeping();
        const std::uint64_t asleep = page_->places[place].asleep.load(std::memory_order_relaxed);
        if (static_cast<std::uint32_t>(asleep) != 0 &&
            asleep >> 32 != woken_places_[place].load(std::memory_order_relaxed))
            wake_place(place, static_cast<std::uint32_t>(asleep >> 32));
    }
    // Likewise.
    void wake_if_sleeping() noexcept
    {
        const std::uint64_t sleep = page_->sleeping.load(std::memory_order_relaxed);
        if (sleep != 0 && sleep != woken_.load(std::memory_order_relaxed))
            wake(sleep);
    }

    PeerDoorbell(Mapping &&mapping, core::UniqueFd &&wake, bool by_socket) noexcept;

private:
    void wake(std::uint64_t sleep) noexcept;
    void wake_place(std::uint32_t place, std::uint32_t sleep) noexcept;

    Mapping mapping_;
    core::UniqueFd wake_;
    DoorbellPage *page_;
    const bool by_socket_;                // the bell is a socket (guests.hpp), not an eventfd
    std::atomic<std::uint64_t> woken_{0}; // the sleep for which this process has written the eventfd, and is back
    std::atomic<std::uint32_t> woken_places_[kPlaces] = {}; // likewise, by futex(2)
};

// Whose doorbell it is: one that sent it before is known by the same.
struct DoorbellOwner {
    pid_t process;            // of this user
    std::uint64_t guest_link; // the number of its link where it is another user's, else 0
};

// Checks and maps what a peer sent; both descriptors are used up. -FI_EINVAL when it isn't a doorbell.
int open_peer_doorbell(const DoorbellOwner &owner, core::UniqueFd &&memory, core::UniqueFd &&wake,
                       std::shared_ptr<PeerDoorbell> &out) noexcept;

} // namespace vma::local
