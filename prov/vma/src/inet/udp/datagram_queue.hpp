// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that wait to be read, and errors that were told of those sent: chains of blocks from a pool that all
// sockets share. What a queue may hold is its owner's to say; the pool says what all of them may.
#pragma once

#include <cstdint>
#include <span>

#include "prov/vma/src/inet/base/block_pool.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

// What is told of a datagram beside its data.
struct DatagramInfo {
    Endpoint source;          // of an error: where the datagram was sent to
    IpAddress target;         // of an error: who reported it
    std::uint32_t length = 0; // of the data, whatever part of it was read
    std::uint16_t vlan = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    Nanos arrived = 0; // FrameInfo's, as the next one
    Nanos hardware = 0;
    std::uint64_t dropped = 0; // by this socket before this one, in all (SO_RXQ_OVFL)
    int error = 0;             // of an error: errno, and ICMP's type, code and MTU
    std::uint8_t type = 0;
    std::uint8_t code = 0;
    std::uint32_t mtu = 0;
};

// Holds no reference to the pool, which is handed to each call; clear() before it goes away.
class DatagramQueue
{
public:
    static constexpr std::uint32_t kMinBlock = 256; // bytes

    // false: the pool has too few blocks left, and nothing was taken. info.length is set to the data's.
    bool push(BlockPool &pool, const DatagramInfo &info, Bytes data);

    // Copies the first datagram's data, as much as there is room for, and returns how much. The queue isn't empty.
    std::size_t read(const BlockPool &pool, std::span<const std::span<std::uint8_t>> room, DatagramInfo &info) const;

    void pop(BlockPool &pool); // the first; the queue isn't empty
    void clear(BlockPool &pool);

    bool empty() const { return count_ == 0; }
    std::uint32_t count() const { return count_; }
    std::uint32_t blocks() const { return blocks_; }
    std::uint32_t first_length(const BlockPool &pool) const; // of the data; the queue isn't empty

private:
    BlockIndex first_ = kNoBlock;
    BlockIndex last_ = kNoBlock; // the first block of the last datagram
    std::uint32_t count_ = 0;
    std::uint32_t blocks_ = 0;
};

} // namespace vma::inet
