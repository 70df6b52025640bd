// SPDX-License-Identifier: BSD-2-Clause
// The queue's blocks: found through a ring of slots, which itself moves into a block when the queue grows long.
#include "prov/vma/src/inet/tcp/byte_queue.hpp"

#include <cstring>

namespace vma::inet {

bool ByteQueue::reach(BlockPool &pool, std::size_t blocks)
{
    const std::uint32_t wide = pool.block_size() / static_cast<std::uint32_t>(sizeof(BlockIndex));
    if (blocks > capacity(pool)) {
        if (blocks > wide || index_ != kNoBlock)
            return false;
        const BlockIndex index = pool.take();
        if (index == kNoBlock)
            return false;
        auto *const out = reinterpret_cast<BlockIndex *>(pool.data(index));
        for (std::uint32_t i = 0; i < used_; ++i)
            out[i] = few_[(first_ + i) & (kInline - 1)];
        index_ = index;
        first_ = 0;
    }
    BlockIndex *const table = slots(pool);
    for (; used_ < blocks; ++used_)
        table[(first_ + used_) & (capacity(pool) - 1)] = kNoBlock;
    return true;
}

// Blocks for the bytes [from, to), counted from the first block's begin.
bool ByteQueue::ensure(BlockPool &pool, std::size_t from, std::size_t to)
{
    const std::size_t last = (to - 1) >> pool.shift();
    if (!reach(pool, last + 1))
        return false;
    for (std::size_t i = from >> pool.shift(); i <= last; ++i) {
        BlockIndex &block = slots(pool)[(first_ + i) & (capacity(pool) - 1)];
        if (block == kNoBlock && (block = pool.take()) == kNoBlock)
            return false;
    }
    return true;
}

bool ByteQueue::write_at(BlockPool &pool, std::size_t offset, const std::uint8_t *data, std::size_t len)
{
    if (len == 0)
        return true;
    std::size_t at = begin_ + offset;
    const std::size_t block = at >> pool.shift();
    const std::size_t begin = at & (pool.block_size() - 1);
    if (block < used_ && begin + len <= pool.block_size()) { // the usual case of short pieces
        if (const BlockIndex there = slot(pool, block); there != kNoBlock) {
            memcpy(pool.data(there) + begin, data, len);
            return true;
        }
    }
    if (!ensure(pool, at, at + len))
        return false;
    while (len != 0) {
        const std::size_t in_block = at & (pool.block_size() - 1);
        const std::size_t n = std::min(len, pool.block_size() - in_block);
        memcpy(pool.data(slot(pool, at >> pool.shift())) + in_block, data, n);
        data += n;
        at += n;
        len -= n;
    }
    return true;
}

std::size_t ByteQueue::append(BlockPool &pool, const std::uint8_t *data, std::size_t len)
{
    std::size_t done = 0;
    while (done != len) { // block by block, so that what fits is taken
        const std::size_t in_block = (begin_ + size_) & (pool.block_size() - 1);
        const std::size_t n = std::min(len - done, pool.block_size() - in_block);
        if (!write_at(pool, size_, data + done, n))
            break;
        size_ += n;
        done += n;
    }
    return done;
}

void ByteQueue::copy(const BlockPool &pool, std::size_t offset, std::uint8_t *out, std::size_t len) const
{
    for_each(pool, offset, len, [&out](const std::uint8_t *piece, std::size_t n) {
        memcpy(out, piece, n);
        out += n;
    });
}

void ByteQueue::pop(BlockPool &pool, std::size_t len)
{
    size_ -= len;
    std::size_t at = begin_ + len;
    BlockIndex *const table = slots(pool);
    const std::uint32_t mask = capacity(pool) - 1;
    for (; at >= pool.block_size() && used_ != 0; at -= pool.block_size()) {
        if (table[first_ & mask] != kNoBlock)
            pool.give(table[first_ & mask]);
        first_ = (first_ + 1) & mask;
        --used_;
    }
    begin_ = static_cast<std::uint32_t>(at);
}

void ByteQueue::clear(BlockPool &pool)
{
    const BlockIndex *const table = slots(pool);
    const std::uint32_t mask = capacity(pool) - 1;
    for (std::uint32_t i = 0; i < used_; ++i)
        if (table[(first_ + i) & mask] != kNoBlock)
            pool.give(table[(first_ + i) & mask]);
    if (index_ != kNoBlock)
        pool.give(index_);
    *this = ByteQueue();
}

} // namespace vma::inet
