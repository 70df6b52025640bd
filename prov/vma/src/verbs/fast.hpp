// SPDX-License-Identifier: BSD-2-Clause
// The short-message ring of a fast connection: small messages by RDMA write into slots that the receiver polls, and the
// words by which two endpoints agree who takes which path (doc/verbs-device.md, "Fast connections").
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ofi/info/attr.hpp"
#include "verbs/region.hpp"
#include "verbs/table.hpp"
#include "verbs/wire.hpp"

namespace vma::verbs {

class NicDomain;

// The parameters FI_VMA_FAST_*.
struct FastSettings {
    std::size_t connections; // of a domain, that have a ring; 0: none
    std::size_t depth;       // slots of a ring, a power of two
    std::size_t longest;     // bytes of a message that goes by the ring
};
// As the environment says now; what means nothing there is warned of once, and the default taken.
FastSettings fast_settings() noexcept;

// The last bytes of a slot, right behind the message. The sequence is the last word, which a device that writes in the
// order of addresses writes last; the hash is for those that don't (a kernel's memcpy() under Soft-RoCE).
struct FastTrailer {
    std::uint32_t data; // remote CQ data
    std::uint16_t length;
    std::uint16_t has_data;
    std::uint32_t hash;
    std::uint32_t sequence; // the slot's number since the beginning, plus 1
};
static_assert(sizeof(FastTrailer) == 16);

// Of the message and of the trailer's other fields.
std::uint32_t fast_hash(const FastTrailer &trailer, const std::byte *message) noexcept;

// In front of the slots; the peer writes it.
struct FastWords {
    // As a receiver has them. Numbers of messages since the connection was made.
    alignas(64) std::atomic<std::uint64_t> ask; // not before this one the sender would like to use the ring
    std::atomic<std::uint64_t> leave;           // from this one on it does not
    // As a sender has them.
    alignas(64) std::atomic<std::uint64_t> answer; // from this one on it shall use the ring
    std::atomic<std::uint64_t> taken;              // slots that were read since the beginning
};

inline constexpr std::size_t kFastWords = 4096;  // bytes in front of the slots
inline constexpr std::size_t kFastWordSends = 1; // of the send queue: a message may need a word in front of it

struct FastShape {
    static constexpr unsigned kMinDepth = 2, kMaxDepth = 10, kMinSlot = 6, kMaxSlot = 12; // logarithms
    unsigned depth_log = 0;
    unsigned slot_log = 0;

    std::size_t depth() const noexcept { return std::size_t{1} << depth_log; }
    std::size_t slot() const noexcept { return std::size_t{1} << slot_log; }
    std::size_t longest() const noexcept { return slot() - sizeof(FastTrailer); }
    std::size_t bytes() const noexcept { return kFastWords + (depth() << slot_log); }
    // Where slot `number` of a block ends.
    std::size_t end(std::uint64_t number) const noexcept
    {
        return kFastWords + (((number & (depth() - 1)) + 1) << slot_log);
    }

    // In ConnectHeader::notes, which regions use below 2^5.
    std::uint8_t encode() const noexcept
    {
        return static_cast<std::uint8_t>(0x80 | (depth_log - kMinDepth) << 3 | (slot_log - kMinSlot));
    }
    // False: there is none, or not one of ours.
    bool decode(const ConnectHeader &header) noexcept
    {
        depth_log = kMinDepth + (header.notes >> 3 & 0xf);
        slot_log = kMinSlot + (header.notes & 0x7);
        return (header.notes & 0x80) != 0 && depth_log <= kMaxDepth && slot_log <= kMaxSlot;
    }
};

// A receive of the program's that the device does not have.
struct HeldReceive {
    ibv_sge list[ofi::kIovLimit];
    int count;
};

struct Fast {
    enum class Phase : std::uint8_t {
        slow,      // by send/receive
        asked,     // the same, until the receiver has answered
        cancelled, // it did not answer in time; when it does, `slow`
        ring,      // from message `from` on
    };

    explicit Fast(NicDomain &nic) noexcept : nic_(nic) {}
    ~Fast();
    Fast(const Fast &) = delete;
    Fast &operator=(const Fast &) = delete;
    // One of the domain's places with its memory; none left, or none there: nullptr. `receives`: what may be posted.
    static std::unique_ptr<Fast> make(NicDomain &nic, std::size_t receives) noexcept;
    void describe(ConnectHeader &header) const noexcept;
    // Takes what the peer's header says. False: there will be no ring.
    bool join(const ConnectHeader &header) noexcept;

    FastWords &words() const noexcept { return *reinterpret_cast<FastWords *>(block.bytes()); }
    bool is_full() const noexcept
    {
        return written - words().taken.load(std::memory_order_acquire) >= peer_shape.depth();
    }
    HeldReceive &held_at(std::uint64_t number) const noexcept { return held[number & held_mask]; }

    Pages block;  // FastWords, then slots
    Pages mirror; // the peer's, as it was written: where the device sends from
    FastShape shape;
    FastShape peer_shape;
    std::uint64_t peer_address = 0;
    std::uint32_t peer_key = 0;

    // ---- sending, with the endpoint's tx_lock held
    Phase phase = Phase::slow;
    std::size_t longest = 0;       // of a message by the ring
    std::uint64_t sent = 0;        // messages, each of which takes a receive of the peer's
    std::uint64_t asked = 0;       // FastWords::ask as it was told
    std::uint64_t from = 0;        // the answer
    std::uint64_t written = 0;     // slots
    std::uint64_t streak = 0;      // small messages in a row
    std::uint64_t patience = kAsk; // of them, before the ring is asked for

    // ---- receiving, with the lock of the receiving queue held
    std::unique_ptr<HeldReceive[]> held;
    std::uint64_t held_mask = 0;
    std::atomic<bool> holding{false}; // receives from Endpoint::hold_from on
    bool broken = false;              // the peer broke the rules
    bool answer_due = false;
    std::uint64_t heard = 0;    // FastWords::ask as it was read
    std::uint64_t answered = 0; // with this
    std::uint64_t next = 0;     // message of the ring
    std::uint64_t taken = 0;    // slots
    std::uint64_t told = 0;     // of them, the peer knows
    unsigned visits = 0;        // by readers of another queue

    std::atomic<bool> ended{false}; // nothing comes any more

    static constexpr std::uint64_t kAsk = 32;    // small messages in a row make a sender ask
    static constexpr std::uint64_t kNotice = 32; // messages that the receiver has time to answer

private:
    NicDomain &nic_;
};

} // namespace vma::verbs
