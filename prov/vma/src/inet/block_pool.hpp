// SPDX-License-Identifier: BSD-2-Clause
// Memory for everything whose size peers decide: blocks of one size from an arena that is allocated once. Exhaustion is an
// answer here, never an exception, so memory stays bounded whatever arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace vma::inet {

using BlockIndex = std::uint16_t; // a block full of them is the longest queue
inline constexpr BlockIndex kNoBlock = 0xffff;

// Not thread-safe, as nothing in inet is: a stack has one owner at a time.
class BlockPool
{
public:
    // 2^shift bytes a block, at least 64; 65,535 blocks at most. The arena's pages are touched when a block is first used.
    BlockPool(std::uint32_t blocks, unsigned shift)
        : shift_(shift), total_(std::min<std::uint32_t>(blocks, kNoBlock)), free_(total_),
          arena_(std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{total_} << shift)),
          next_(std::make_unique_for_overwrite<BlockIndex[]>(total_))
    {
    }

    BlockIndex take() // kNoBlock: none is left
    {
        if (head_ != kNoBlock) {
            const BlockIndex block = head_;
            head_ = next_[block];
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
        next_[block] = head_;
        head_ = block;
        ++free_;
    }

    std::uint8_t *data(BlockIndex block) { return arena_.get() + (std::size_t{block} << shift_); }
    const std::uint8_t *data(BlockIndex block) const { return arena_.get() + (std::size_t{block} << shift_); }

    std::uint32_t block_size() const { return std::uint32_t{1} << shift_; }
    unsigned shift() const { return shift_; }
    std::uint32_t available() const { return free_; }
    std::uint32_t total() const { return total_; }

private:
    const unsigned shift_;
    const std::uint32_t total_;
    std::uint32_t free_;
    std::uint32_t fresh_ = 0; // blocks from here on were never used
    BlockIndex head_ = kNoBlock;
    std::unique_ptr<std::uint8_t[]> arena_;
    std::unique_ptr<BlockIndex[]> next_;
};

} // namespace vma::inet
