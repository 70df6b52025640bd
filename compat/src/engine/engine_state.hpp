// SPDX-License-Identifier: BSD-2-Clause
// All that the engine is. Others use engine.hpp and objects.hpp, but where they read a word of it at each look.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/engine/device_table.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ring_table.hpp"

namespace vma::sock {

enum class EngineState { kUnstarted, kRunning, kFailed };

// The offload lock guards what has no other.
struct Engine {
    std::atomic<EngineState> state{EngineState::kUnstarted}; // written with it
    Objects objects;                                         // replaced with the poll lock held too
    DatagramObjects datagrams;
    bool datagrams_failed = false;
    Mutex poll_lock;
    std::atomic<bool> active{false};
    std::atomic<std::uint32_t> asleep{0}; // threads that armed the queue and sleep
    std::atomic<std::uint64_t> polls{0};  // written with the poll lock held
    udp::Arrivals arrivals;               // of the main ring, and of all ports; poll lock
    alignas(64) MoreRings more_rings;     // written with the offload lock held, read without
    alignas(64) Places places;            // places.cpp
    alignas(64) Devices devices;          // that reach other hosts
    Ring rings[kMostRings];               // of the first, the engine's own, only `users` counts
};
[[gnu::visibility("hidden")]] extern constinit Engine g_engine; // reached without a table of addresses

} // namespace vma::sock
