// SPDX-License-Identifier: BSD-2-Clause
// A datagram's first block starts with its links and what is told of it; those after it with a link alone.
#include "prov/vma/src/inet/udp/datagram_queue.hpp"

#include <algorithm>
#include <type_traits>

namespace vma::inet {
namespace {

struct BlockLink {       // at the start of every block
    BlockIndex next;     // of this datagram, kNoBlock: its last
    BlockIndex datagram; // the next one's first; in a datagram's first block only
};

struct Head {
    BlockLink link;
    DatagramInfo info;
};
static_assert(std::is_trivially_copyable_v<Head> && sizeof(Head) < DatagramQueue::kMinBlock);

template <typename T> T load(const BlockPool &pool, BlockIndex block)
{
    T value;
    memcpy(&value, pool.data(block), sizeof value);
    return value;
}

template <typename T> void store(BlockPool &pool, BlockIndex block, const T &value)
{
    memcpy(pool.data(block), &value, sizeof value);
}

std::uint32_t blocks_for(const BlockPool &pool, std::size_t length)
{
    const std::size_t in_first = pool.block_size() - sizeof(Head);
    const std::size_t in_others = pool.block_size() - sizeof(BlockLink);
    return length <= in_first ? 1 : static_cast<std::uint32_t>(1 + (length - in_first + in_others - 1) / in_others);
}

} // namespace

bool DatagramQueue::push(BlockPool &pool, const DatagramInfo &info, Bytes data)
{
    const std::uint32_t needed = blocks_for(pool, data.size());
    if (pool.available() < needed)
        return false;
    Head head{{}, info};
    head.info.length = static_cast<std::uint32_t>(data.size());
    const BlockIndex first = pool.take();
    std::size_t header = sizeof(Head);
    for (BlockIndex block = first;; header = sizeof(BlockLink)) {
        const std::size_t count = std::min<std::size_t>(data.size(), pool.block_size() - header);
        if (count)
            memcpy(pool.data(block) + header, data.data(), count);
        data = data.subspan(count);
        head.link = {data.empty() ? kNoBlock : pool.take(), kNoBlock};
        if (block == first)
            store(pool, block, head);
        else
            store(pool, block, head.link);
        if (data.empty())
            break;
        block = head.link.next;
    }
    if (count_++) {
        BlockLink link = load<BlockLink>(pool, last_);
        link.datagram = first;
        store(pool, last_, link);
    } else {
        first_ = first;
    }
    last_ = first;
    blocks_ += needed;
    return true;
}

std::size_t DatagramQueue::read(const BlockPool &pool, std::span<const std::span<std::uint8_t>> room,
                                DatagramInfo &info) const
{
    info = load<Head>(pool, first_).info;
    std::size_t left = info.length;
    std::size_t at = sizeof(Head); // in the block
    BlockIndex block = first_;
    std::size_t copied = 0;
    for (std::span<std::uint8_t> part : room)
        while (!part.empty() && left) {
            if (at == pool.block_size()) {
                block = load<BlockLink>(pool, block).next;
                at = sizeof(BlockLink);
            }
            const std::size_t count = std::min({left, part.size(), pool.block_size() - at});
            memcpy(part.data(), pool.data(block) + at, count);
            part = part.subspan(count);
            at += count;
            left -= count;
            copied += count;
        }
    return copied;
}

void DatagramQueue::pop(BlockPool &pool)
{
    BlockIndex block = first_;
    first_ = load<BlockLink>(pool, first_).datagram;
    while (block != kNoBlock) {
        const BlockIndex next = load<BlockLink>(pool, block).next;
        pool.give(block);
        block = next;
        --blocks_;
    }
    --count_;
}

void DatagramQueue::clear(BlockPool &pool)
{
    while (!empty())
        pop(pool);
}

std::uint32_t DatagramQueue::first_length(const BlockPool &pool) const
{
    return load<Head>(pool, first_).info.length;
}

} // namespace vma::inet
