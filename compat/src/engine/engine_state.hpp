// SPDX-License-Identifier: BSD-2-Clause
// What engine.cpp, which opens and closes it, and poll.cpp know of the engine. Private to them.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/engine/objects.hpp"

namespace vma::sock {

enum class EngineState { kNone, kRunning, kFailed };

// The offload lock guards what has no other.
struct Engine {
    EngineState state = EngineState::kNone;
    Objects objects; // replaced with the poll lock held too
    DatagramObjects datagrams;
    bool datagrams_failed = false;
    Mutex poll_lock;
    std::atomic<bool> active{false};
    std::atomic<std::uint32_t> asleep{0}; // threads that armed the queue and sleep
    std::atomic<std::uint64_t> polls{0};  // written with the poll lock held
};
[[gnu::visibility("hidden")]] extern constinit Engine g_engine; // reached without a table of addresses

} // namespace vma::sock
