// SPDX-License-Identifier: BSD-2-Clause
// A stream's bytes between the program and the wire, in blocks of the stack's pool. It takes memory for what it holds
// and nothing more: an empty queue has none, and a received range that lies behind a hole has only its own blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "prov/vma/src/inet/base/block_pool.hpp"

namespace vma::inet {

class ByteQueue
{
public:
    // Most bytes a queue can hold: an index block's worth of blocks, less one for the offset in the first.
    static std::size_t most(const BlockPool &pool)
    {
        return (std::size_t{pool.block_size() / sizeof(BlockIndex)} - 1) << pool.shift();
    }

    std::size_t size() const { return size_; } // bytes from the front that are there without a hole

    // Adds to the end what the pool has room for; the number of bytes.
    std::size_t append(BlockPool &pool, const std::uint8_t *data, std::size_t len);

    // Writes behind the end, over a hole. False: no memory, and nothing of it counts.
    bool write_at(BlockPool &pool, std::size_t offset, const std::uint8_t *data, std::size_t len);

    // What write_at() put behind the end becomes part of it.
    void extend(std::size_t len) { size_ += len; }

    void copy(const BlockPool &pool, std::size_t offset, std::uint8_t *out, std::size_t len) const;

    // The contiguous bytes at `offset`: calls take(const uint8_t *, size_t) for each piece.
    template <typename Take> void for_each(const BlockPool &pool, std::size_t offset, std::size_t len, Take take) const
    {
        std::size_t at = begin_ + offset;
        while (len != 0) {
            const std::size_t in_block = at & (pool.block_size() - 1);
            const std::size_t n = std::min(len, pool.block_size() - in_block);
            take(pool.data(slot(pool, at >> pool.shift())) + in_block, n);
            at += n;
            len -= n;
        }
    }

    // What stands first in one piece, `most` bytes at most; not of an empty queue.
    std::span<const std::uint8_t> front(const BlockPool &pool, std::size_t most) const
    {
        const std::size_t n = std::min({most, size_, std::size_t{pool.block_size()} - begin_});
        return {pool.data(slot(pool, 0)) + begin_, n};
    }

    void pop(BlockPool &pool, std::size_t len); // from the front, at most size()
    void clear(BlockPool &pool);                // gives all memory back

private:
    static constexpr std::uint32_t kInline = 8;

    const BlockIndex *slots(const BlockPool &pool) const
    {
        return index_ == kNoBlock ? few_ : reinterpret_cast<const BlockIndex *>(pool.data(index_));
    }
    BlockIndex *slots(BlockPool &pool)
    {
        return index_ == kNoBlock ? few_ : reinterpret_cast<BlockIndex *>(pool.data(index_));
    }
    std::uint32_t capacity(const BlockPool &pool) const
    {
        return index_ == kNoBlock ? kInline : pool.block_size() / static_cast<std::uint32_t>(sizeof(BlockIndex));
    }
    BlockIndex slot(const BlockPool &pool, std::size_t block) const
    {
        return slots(pool)[(first_ + block) & (capacity(pool) - 1)];
    }
    bool reach(BlockPool &pool, std::size_t blocks); // slots for so many blocks
    bool ensure(BlockPool &pool, std::size_t from, std::size_t to);

    std::size_t size_ = 0;
    std::uint32_t begin_ = 0;     // of the first byte in the first block
    std::uint32_t first_ = 0;     // slot of the first block
    std::uint32_t used_ = 0;      // slots from it on that may hold blocks
    BlockIndex index_ = kNoBlock; // a block of slots, when the few do not do
    BlockIndex few_[kInline] = {};
};

} // namespace vma::inet
