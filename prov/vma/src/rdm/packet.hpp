// SPDX-License-Identifier: BSD-2-Clause
// What reliable-datagram endpoints write into each other's rings: a header of 24 bytes, so that a message of 24 bytes
// more takes one cache line with the ring's own header. Everything in it is the peer's word until arrive.cpp has
// checked it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/uio.h>
#include <type_traits>

#include "local/ring/memory.hpp"
#include "ofi/info/attr.hpp"

namespace vma::rdm {

enum class PacketOp : std::uint8_t {
    hello = 1,   // first in each ring: Hello
    greeted,     // answer to it: `error` is 0 where the receiver can reach the sender's memory by single copy
    message,     // all of a message is behind the header
    first,       // the beginning of a message of `size` bytes is
    piece,       // more of message `id`, from offset `size` on
    offer,       // a message of `size` bytes that the receiver copies itself: BufferList
    write,       // TargetList, then bytes
    write_offer, // TargetList, then BufferList: the target copies
    read,        // TargetList, then BufferList: the target copies, or answers with the bytes
    atomic,      // AtomicHead, TargetList, operands, and what they are compared with
    // operation `id` of the receiver's has ended, or, with kMore, a part of what it reads is here, from offset `size`
    // on
    answer,
    announce, // from another host, a message of `size` bytes whose pieces come once they are asked for
    go,       // they are, of the receiver's operation `id`
    ping,     // nothing; who waits for a silent peer learns by it whether it can be sent anything
    broken,   // from another host: packets of the receiver's `epoch` in `size` are missing, and no more of it are taken
};

inline constexpr std::uint8_t kTagged = 1;
inline constexpr std::uint8_t kAck = 2;    // the sender wants an answer once the message is in the program's memory
inline constexpr std::uint8_t kMore = 4;   // of an answer, or of a write that goes on: this one ends nothing
inline constexpr std::uint8_t kPadded = 8; // kPadding bytes stand before what is behind the header
inline constexpr std::uint8_t kKnownFlags = 15;

struct Packet {
    PacketOp op;
    std::uint8_t flags;
    std::uint16_t error; // of answers: a positive fi_errno
    std::uint32_t id;    // the sender's number of the operation; of answers, the receiver's
    std::uint64_t tag;   // of messages; 0 where they have none
    std::uint64_t size;
};
static_assert(sizeof(Packet) == 24 && std::is_trivially_copyable_v<Packet>);

// Long payload begins with a cache line, which both sides copy by.
inline constexpr std::size_t kPadding = local::kRecordAlign - sizeof(local::Record) - sizeof(Packet);
constexpr std::size_t padding_of(std::size_t length) noexcept
{
    return length >= 2048 ? kPadding : 0; // shorter ones gain nothing
}

// Of who makes the ring: where its memory can be read to prove that the process id is its own.
struct Hello {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t probe_address;
    std::uint64_t probe_nonce;
};
inline constexpr std::uint32_t kHelloMagic = 0x564d4152; // "VMAR"
inline constexpr std::uint32_t kHelloVersion = 2;

// In the sender's memory.
struct BufferList {
    std::uint64_t count; // to ofi::kIovLimit
    iovec parts[ofi::kIovLimit];
};

// In the target's memory: what a key and an address say.
struct Target {
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t key;
};
struct TargetList {
    std::uint64_t count; // 1 to ofi::kRmaIovLimit
    Target targets[ofi::kRmaIovLimit];
};
constexpr std::size_t bytes_of(const TargetList &list) noexcept
{
    return sizeof(std::uint64_t) + list.count * sizeof(Target);
}
constexpr std::size_t bytes_of(const BufferList &list) noexcept
{
    return sizeof(std::uint64_t) + list.count * sizeof(iovec);
}

// Copies a list out of shared memory. False: it is longer than what there is, or than lists are. (`parts` and `targets`
// come right behind `count`.)
template <typename List> bool read_list(const std::byte *from, std::size_t length, List &list) noexcept
{
    if (length < sizeof list.count)
        return false;
    std::memcpy(&list.count, from, sizeof list.count);
    if (list.count > ofi::kIovLimit || length < bytes_of(list))
        return false;
    std::memcpy(reinterpret_cast<std::byte *>(&list) + sizeof list.count, from + sizeof list.count,
                bytes_of(list) - sizeof list.count);
    return true;
}

static_assert(ofi::kIovLimit == ofi::kRmaIovLimit);

// Their bytes; UINT64_MAX where they are more than can be.
inline std::uint64_t total_of(const TargetList &list) noexcept
{
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < list.count; ++i) {
        if (__builtin_add_overflow(sum, list.targets[i].length, &sum))
            return UINT64_MAX;
    }
    return sum;
}
inline std::uint64_t total_of(const BufferList &list) noexcept
{
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < list.count; ++i) {
        if (__builtin_add_overflow(sum, list.parts[i].iov_len, &sum))
            return UINT64_MAX;
    }
    return sum;
}

struct AtomicHead {
    std::uint8_t kind; // AtomicKind
    std::uint8_t type; // fi_datatype
    std::uint8_t op;   // fi_op
    std::uint8_t unused;
    std::uint32_t count; // elements, over all targets
};

inline constexpr std::size_t kEager = 8192; // bytes of a message in one record, and of a piece
// To another host: a longer message is announced.
inline constexpr std::uint64_t kAnnounced = std::uint64_t{128} << 10;
inline constexpr std::size_t kLongestPacket =
    sizeof(Packet) + kPadding + sizeof(AtomicHead) + sizeof(TargetList) + 2 * kEager;
static_assert(kLongestPacket <= local::kMaxDatagram);

// What a peer asks for that says of both sides where the bytes are: of ours and of its own, as many as `size`.
inline bool read_both(const std::byte *from, std::size_t length, std::uint64_t size, TargetList &targets,
                      BufferList &theirs) noexcept
{
    if (!read_list(from, length, targets) || targets.count == 0)
        return false;
    const std::size_t head = bytes_of(targets);
    return read_list(from + head, length - head, theirs) && total_of(theirs) == total_of(targets) &&
           total_of(targets) == size && length == head + bytes_of(theirs);
}

} // namespace vma::rdm
