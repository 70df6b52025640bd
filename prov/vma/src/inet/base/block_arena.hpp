// SPDX-License-Identifier: BSD-2-Clause
// The memory of a pool's blocks, and who reads them besides the queues that they stand in: loans, which any thread may end, in any order,
// also when the pool is gone. A block is free again with the last of its readers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace vma::inet {

using BlockIndex = std::uint16_t; // a block full of them is the longest queue
inline constexpr BlockIndex kNoBlock = 0xffff;

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
    BlockIndex &next(BlockIndex block) const { return next_[block]; } // on a list of the pool's, or on ours

    // ---- the pool's side, one thread at a time
    bool may_lend() const { return out_.load(std::memory_order_relaxed) < total_ / kShare; }
    // A part of a block that a queue holds, and goes on holding until release().
    void lend(const std::uint8_t *part)
    {
        Holders &holders = holders_[index_of(part)];
        if (holders.load(std::memory_order_relaxed) == 0) {
            holders.store(1, std::memory_order_relaxed);
            out_.fetch_add(1, std::memory_order_relaxed);
        }
        holders.fetch_add(1, std::memory_order_relaxed);
    }
    // The queue is done with it. False: it is on loan, and comes back by collect().
    bool release(BlockIndex block)
    {
        Holders &holders = holders_[block];
        if (holders.load(std::memory_order_relaxed) == 0) [[likely]]
            return true;
        if (holders.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return false;
        out_.fetch_sub(1, std::memory_order_relaxed);
        return true;
    }
    template <typename Take> void collect(Take take)
    {
        if (back_.load(std::memory_order_relaxed) == kNoBlock) [[likely]]
            return;
        for (BlockIndex block = back_.exchange(kNoBlock, std::memory_order_acquire); block != kNoBlock;) {
            const BlockIndex following = next_[block];
            out_.fetch_sub(1, std::memory_order_relaxed);
            take(block);
            block = following;
        }
    }

    // ---- any thread, once for each lend(), with any byte of what was lent
    void give_back(const void *part)
    {
        const BlockIndex block = index_of(part);
        if (holders_[block].fetch_sub(1, std::memory_order_acq_rel) != 1)
            return;
        BlockIndex last = back_.load(std::memory_order_relaxed);
        do
            next_[block] = last;
        while (!back_.compare_exchange_weak(last, block, std::memory_order_release, std::memory_order_relaxed));
    }

private:
    static constexpr std::uint32_t kShare = 4;  // a quarter can be lent: what arrives must find room
    using Holders = std::atomic<std::uint32_t>; // the queue and its loans; 0: not lent since it was free

    BlockArena(std::uint32_t blocks, unsigned shift)
        : shift_(shift), total_(blocks),
          bytes_(std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{blocks} << shift)),
          next_(std::make_unique_for_overwrite<BlockIndex[]>(blocks)), holders_(std::make_unique<Holders[]>(blocks))
    {
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
    const std::unique_ptr<BlockIndex[]> next_;
    const std::unique_ptr<Holders[]> holders_;
    std::atomic<BlockIndex> back_{kNoBlock}; // given back, not collected
    std::atomic<std::uint32_t> out_{0};      // blocks
    std::atomic<std::uint32_t> users_{1};
};

} // namespace vma::inet
