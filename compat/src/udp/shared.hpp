// SPDX-License-Identifier: BSD-2-Clause
// What the UDP sockets of the process share. Private to compat/src/udp. All zero at first: only what is used of it
// takes memory.
#pragma once

#include <netinet/in.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

// What a route said.
struct Look {
    Destination to;
    Identity who;
    std::uint64_t data = 0;
    std::uint32_t generation = 0;
    bool sent = false; // since the last look
    std::uint8_t header_length = 0;
    std::uint8_t header[kIpv6Header] = {};
};

inline constexpr std::size_t kMostTaken = 256; // groups of a process by ports; more stay with the kernel

struct Taken {
    in6_addr group = {};
    in_port_t port = 0; // network byte order; 0: a free place
    Device *device = nullptr;
};

struct Shared {
    // What the kernel was last seen to have (memberships.cpp).
    alignas(64) std::atomic<std::uint32_t> memberships{0}; // a number of it
    std::atomic<bool> watched{false};
    std::uint64_t fingerprint = 0; // helper thread
    // States that are mapped and not used yet (life.cpp).
    alignas(64) Mutex fresh_lock;
    State *fresh = nullptr;      // fresh_lock
    std::size_t fresh_count = 0; // likewise
    // By place of the destination: how often the kernel has sent something there (kernel_sent.hpp). Any thread.
    alignas(64) std::array<std::atomic<std::uint32_t>, kSentPlaces> kernel_sent;
    // Offload lock.
    alignas(64) Taken taken[kMostTaken];
    std::uint32_t next_taken = 0;          // of all memberships, the one to be looked at next
    std::uint32_t endpoints[1 << 16] = {}; // by their port, 0 not known yet (resolve.cpp)
    std::array<Look, 64> looks;            // the helper thread's (route_looks.cpp); what is more becomes stale
};
extern constinit Shared g_shared;

inline std::uint32_t kernel_sent(SentPlace place)
{
    return g_shared.kernel_sent[place % kSentPlaces].load(std::memory_order_relaxed);
}

// After it was sent.
inline void note_kernel_sent(SentPlace place)
{
    g_shared.kernel_sent[place % kSentPlaces].fetch_add(1, std::memory_order_relaxed);
}

} // namespace vma::sock::udp
