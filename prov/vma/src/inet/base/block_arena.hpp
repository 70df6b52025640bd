// SPDX-License-Identifier: BSD-2-Clause
// The memory of a pool's blocks, and who reads them besides the queues that they stand in: loans, which any thread may
// end, in any order, also when the pool is gone. A block is free again with the last of its readers.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "prov/vma/src/core/loan_list.hpp"

namespace vma::inet {

using BlockIndex = std::uint16_t; // a block full of them is the longest queue
inline constexpr BlockIndex kNoBlock = core::LoanList<BlockIndex>::kNone;

class BlockArena
{
public:
    // Ends one user's part.
    struct Leave {
        void operator()(BlockArena *arena) const noexcept
        {
            if (arena->users_.fetch_sub(1, std::memory_order_acq_rel) == 1)
                delete arena;
        }
    };
    using Owned = std::unique_ptr<BlockArena, Leave>;

    static Owned make(std::uint32_t blocks, unsigned shift) { return Owned(new BlockArena(blocks, shift)); }
    Owned share()
    {
        users_.fetch_add(1, std::memory_order_relaxed);
        return Owned(this);
    }

    std::uint8_t *data(BlockIndex block) const { return bytes_.get() + (std::size_t{block} << shift_); }
    BlockIndex &next(BlockIndex block) const { return loans_.next(block); } // on a list of the pool's

    // ---- the pool's side, one thread at a time
    bool may_lend() const { return loans_.lent() < total_ / kShare; }
    // A part of a block that a queue holds, and goes on holding until release().
    void lend(const std::uint8_t *part) { loans_.lend(index_of(part)); }
    // The queue is done with it. False: it is on loan, and comes back by collect().
    bool release(BlockIndex block) { return loans_.release(block); }
    template <typename Take> void collect(Take take) { loans_.collect(take); }

    // ---- any thread, once for each lend(), with any byte of what was lent
    void give_back(const void *part) { loans_.give_back(index_of(part)); }

private:
    static constexpr std::uint32_t kShare = 4; // a quarter can be lent: what arrives must find room

    BlockArena(std::uint32_t blocks, unsigned shift)
        : shift_(shift), total_(blocks),
          bytes_(std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{blocks} << shift)), loans_(blocks)
    {
        if (!loans_.is_allocated())
            std::terminate(); // as where there is no memory for the bytes
    }
    ~BlockArena() = default;

    BlockIndex index_of(const void *part) const
    {
        return static_cast<BlockIndex>(
            static_cast<std::size_t>(static_cast<const std::uint8_t *>(part) - bytes_.get()) >> shift_);
    }

    const unsigned shift_;
    const std::uint32_t total_;
    const std::unique_ptr<std::uint8_t[]> bytes_; // its pages are touched when a block is first used
    core::LoanList<BlockIndex> loans_;
    std::atomic<std::uint32_t> users_{1};
};

} // namespace vma::inet
