// SPDX-License-Identifier: BSD-2-Clause
// Which of the process's completion queues a socket is on, and whose that is to be (engine/rings.hpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock {

// Completion queues with their poll locks, a bit each: rings.hpp. All but sockets that are accelerated within this host
// is on the first.
using RingMask = std::uint64_t;
inline constexpr RingMask kMainRing = 1;
inline constexpr RingMask kAllRings = ~RingMask{0};

// Two sockets with the same key share a ring. Logic 0: the engine's own.
struct RingKey {
    std::int32_t logic = 0;
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    bool operator==(const RingKey &) const = default;
};

enum class RingMove : std::uint8_t { kStays, kWanted, kReturning };

// Whose a socket is, and who else reads from it.
struct RingClaim {
    RingKey key;                               // offload lock
    std::atomic<std::int32_t> logic{0};        // of the key
    std::atomic<std::uint64_t> owner{0};       // the thread or core that it is for
    std::atomic<std::uint64_t> stranger{0};    // who else has received last
    std::atomic<std::uint32_t> by_stranger{0}; // so often in turn
    std::atomic<RingMove> move{RingMove::kStays};
};

} // namespace vma::sock
