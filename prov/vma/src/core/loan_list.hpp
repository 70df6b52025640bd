// SPDX-License-Identifier: BSD-2-Clause
// Pieces of a memory, by number, that are lent while their owner goes on using them, and come back from any thread in
// any order: a piece is free again with the last of its holders. What memory it is, and when that may go, is the
// owner's to know.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <new>

namespace vma::core {

template <std::unsigned_integral Index> class LoanList
{
public:
    static constexpr Index kNone = static_cast<Index>(~Index{0});

    explicit LoanList(std::uint32_t pieces) noexcept
        : next_(new (std::nothrow) Index[pieces]), holders_(new (std::nothrow) Holders[pieces]())
    {
    }
    bool is_allocated() const noexcept { return next_ && holders_; } // nothing else may be called if it isn't

    // ---- the owner's side, one thread at a time

    // Of a piece that is on a list of the owner's; what is lent needs it for itself.
    Index &next(Index piece) const noexcept { return next_[piece]; }
    // To one borrower more. The piece stays the owner's too until release().
    void lend(Index piece) noexcept
    {
        Holders &holders = holders_[piece];
        if (holders.load(std::memory_order_relaxed) == 0) {
            holders.store(1, std::memory_order_relaxed);
            lent_.fetch_add(1, std::memory_order_relaxed);
        }
        holders.fetch_add(1, std::memory_order_relaxed);
    }
    // The owner is done with it. False: it is on loan, and comes back by collect().
    bool release(Index piece) noexcept
    {
        Holders &holders = holders_[piece];
        if (holders.load(std::memory_order_relaxed) == 0) [[likely]]
            return true;
        if (holders.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return false;
        lent_.fetch_sub(1, std::memory_order_relaxed);
        return true;
    }
    // take(piece) for each that came back after its release().
    template <typename Take> void collect(Take take) noexcept
    {
        if (back_.load(std::memory_order_relaxed) == kNone) [[likely]]
            return;
        for (Index piece = back_.exchange(kNone, std::memory_order_acquire); piece != kNone;) {
            const Index following = next_[piece];
            lent_.fetch_sub(1, std::memory_order_relaxed);
            take(piece);
            piece = following;
        }
    }

    // ---- any thread

    std::uint32_t lent() const noexcept
    {
        return lent_.load(std::memory_order_relaxed);
    }                                    // pieces, until they are collected
    void give_back(Index piece) noexcept // once for each lend()
    {
        if (holders_[piece].fetch_sub(1, std::memory_order_acq_rel) != 1)
            return;
        Index last = back_.load(std::memory_order_relaxed);
        do
            next_[piece] = last;
        while (!back_.compare_exchange_weak(last, piece, std::memory_order_release, std::memory_order_relaxed));
    }

private:
    using Holders = std::atomic<std::uint32_t>; // the owner and its loans; 0: not lent since it was free

    const std::unique_ptr<Index[]> next_; // its pages are touched when a piece is first on a list
    const std::unique_ptr<Holders[]> holders_;
    std::atomic<Index> back_{kNone}; // given back, not collected
    std::atomic<std::uint32_t> lent_{0};
};

} // namespace vma::core
