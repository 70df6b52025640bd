// SPDX-License-Identifier: BSD-2-Clause
// The devices that reach other hosts, and what is asked of all of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/engine/device.hpp"
#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/refusals.hpp"

namespace vma::sock {

// Written with the offload lock held, but for what says more; the atomic ones are read without. What all threads read
// is on other lines than what polls write.
struct Devices {
    std::atomic<unsigned> open{0}; // how many are
    std::atomic<PortsState> ports{PortsState::kUnasked};
    std::atomic<int> wait_fd{-1};
    std::atomic<int> event_fd{-1};
    std::atomic<int> rdma_is_here{0}; // device.cpp; two threads may look at a time, with no lock
    bool is_moderated = false;        // vma_modify_ring() was called
    Moderation moderation;            // its, if so
    Refusals<kMostDevices, sizeof Device::name> refused;
    alignas(64) Device of[kMostDevices];
};

} // namespace vma::sock
