// SPDX-License-Identifier: BSD-2-Clause
// Doorbells for guests: peers of other users, who are trusted with nothing but their own connections. Each process of
// theirs has a page and a bell of its own, so that no guest sees, sets or wakes what is another's (doc/trust.md).
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "local/doorbell.hpp"
#include "local/layout.hpp"
#include "local/segment.hpp"

namespace vma::local {

struct Queue;

// One process's page at one queue. The bell is one end of a pair of sockets: an eventfd could be made to block who
// writes to it, by its flags, which all who have it share.
class GuestDoorbell
{
public:
    // 0 or a negative fi_errno.
    int open() noexcept;
    ~GuestDoorbell(); // the guest can have put anything into its end

    int memory_fd() const noexcept { return memory_.fd.get(); }
    int bell_fd() const noexcept
    {
        return theirs_.get();
    } // for the guest: each byte that is sent to it wakes the queue
    int wake_fd() const noexcept { return ours_.get(); }
    std::uint64_t number() const noexcept { return number_; } // of all doorbells

    // A bit for what is the queue's `bit`, or -1 when all are taken.
    int allocate_bit(std::uint32_t bit) noexcept;
    void free_bit(std::uint32_t guest_bit) noexcept { bits_[guest_bit] = kNobody; }

    // The guest may set any bit, at any time: it makes us look at endpoints of its own, and of nobody else.
    bool rung() const noexcept { return page_->summary[0].load(std::memory_order_relaxed) != 0; }
    template <typename Handle> void collect(Handle &&handle) noexcept
    {
        if (page_->summary[0].exchange(0, std::memory_order_seq_cst) == 0)
            return;
        for (std::size_t word = 0; word * 64 < bits_.size(); ++word) {
            std::uint64_t set = page_->words[word].exchange(0, std::memory_order_seq_cst);
            core::fence_after_exchange(); // as Doorbell::collect()
            for (; set; set &= set - 1) {
                const std::size_t guest_bit = word * 64 + static_cast<std::size_t>(__builtin_ctzll(set));
                if (guest_bit < bits_.size() && bits_[guest_bit] != kNobody)
                    handle(bits_[guest_bit]);
            }
        }
    }

    void arm(std::uint64_t sleep) noexcept { page_->sleeping.store(sleep, std::memory_order_relaxed); } // then a fence
    void disarm() noexcept { page_->sleeping.store(0, std::memory_order_relaxed); }
    // Whether the bell had rung. A guest that puts descriptors into it, or ends it, is heard no more: it leaves the
    // queue's set, in which it would ring for ever.
    bool drain(Queue &queue) noexcept;

    std::uint64_t process = 0; // its number
    uid_t user = 0;
    unsigned users = 0; // endpoints

private:
    static constexpr std::uint32_t kNobody = UINT32_MAX;
    static constexpr std::uint32_t kMostBits = 4096; // those of one word of the summary

    const std::uint64_t number_ = next_doorbell_number();
    SharedMemory memory_;
    core::UniqueFd ours_;
    core::UniqueFd theirs_;
    DoorbellPage *page_ = nullptr;
    std::uint64_t seen_wakes_ = 0; // of the page's, which the guest counts
    unsigned sleeps_ = 0;
    bool deaf_ = false;               // the bell is heard no more
    std::vector<std::uint32_t> bits_; // of the queue, by those of the page
};

// Those of one queue. With the queue's lock held.
class GuestDoorbells
{
public:
    explicit GuestDoorbells(Queue &queue) noexcept : queue_(queue) {}
    ~GuestDoorbells();

    bool any() const noexcept { return count_ != 0; }
    // The doorbell of that process of that user, with one endpoint more. 0, or a negative fi_errno: -FI_EOPNOTSUPP
    // where the program has a bare wait descriptor, which no bell can join, -FI_ENOSPC where the user has as many as
    // are left for others of the kMost: each read looks at all, and no user takes the last one.
    static constexpr std::size_t kMost = 128;
    int use(std::uint64_t process, uid_t user, GuestDoorbell *&out) noexcept;
    void release(GuestDoorbell &doorbell) noexcept; // one user less

    bool rung() const noexcept { return count_ != 0 && any_rung(); }
    bool any_rung() const noexcept
    {
        for (const auto &one : list_) {
            if (one->rung())
                return true;
        }
        return false;
    }
    template <typename Handle> void collect(Handle &&handle) noexcept
    {
        if (count_ == 0)
            return;
        for (const auto &one : list_)
            one->collect(handle);
    }
    void arm() noexcept;    // then a fence
    bool disarm() noexcept; // whether a bell had rung

private:
    bool has_place_for(std::uint64_t process, uid_t user) const noexcept;

    Queue &queue_;
    std::size_t count_ = 0; // of the list: one word to look at for queues without guests
    std::vector<std::unique_ptr<GuestDoorbell>> list_;
    std::uint64_t sleeps_ = 0;
};

} // namespace vma::local
