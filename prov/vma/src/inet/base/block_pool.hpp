// SPDX-License-Identifier: BSD-2-Clause
// Memory for everything whose size peers decide: blocks of one size from an arena that is allocated once. Exhaustion is
// an answer here, never an exception, so memory stays bounded whatever arrives.
#pragma once

#include <algorithm>
#include <cstdint>

#include "prov/vma/src/inet/base/block_arena.hpp"

namespace vma::inet {

// Not thread-safe, as nothing in inet is: a stack has one owner at a time. Only who has borrowed a block gives it back
// as he likes.
class BlockPool
{
public:
    // 2^shift bytes a block, at least 64; 65,535 blocks at most. The arena's pages are touched when a block is first
    // used.
    BlockPool(std::uint32_t blocks, unsigned shift)
        : shift_(shift), total_(std::min<std::uint32_t>(blocks, kNoBlock)), free_(total_),
          arena_(BlockArena::make(total_, shift))
    {
    }

    BlockIndex take() // kNoBlock: none is left
    {
        if (head_ == kNoBlock && fresh_ == total_) [[unlikely]]
            collect();
        if (head_ != kNoBlock) {
            const BlockIndex block = head_;
            head_ = arena_->next(block);
            --free_;
            return block;
        }
        if (fresh_ == total_)
            return kNoBlock;
        --free_;
        return static_cast<BlockIndex>(fresh_++);
    }

    void give(BlockIndex block)
    {
        if (arena_->release(block)) [[likely]]
            put(block);
    }

    // What borrowers have given back is free again.
    void collect()
    {
        arena_->collect([this](BlockIndex block) { put(block); });
    }
    BlockArena &arena() { return *arena_; }

    std::uint8_t *data(BlockIndex block) { return arena_->data(block); }
    const std::uint8_t *data(BlockIndex block) const { return arena_->data(block); }

    std::uint32_t block_size() const { return std::uint32_t{1} << shift_; }
    unsigned shift() const { return shift_; }
    std::uint32_t available() const { return free_; }
    std::uint32_t total() const { return total_; }

private:
    void put(BlockIndex block)
    {
        arena_->next(block) = head_;
        head_ = block;
        ++free_;
    }

    const unsigned shift_;
    const std::uint32_t total_;
    std::uint32_t free_;
    std::uint32_t fresh_ = 0; // blocks from here on were never used
    BlockIndex head_ = kNoBlock;
    const BlockArena::Owned arena_;
};

} // namespace vma::inet
