// SPDX-License-Identifier: BSD-2-Clause
// The engine's long tables, which are zero at first: only what is used of them takes memory.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/own_stack.hpp"
#include "compat/src/config/cpu_list.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/registrations.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sandbox_trial.hpp"
#include "compat/src/stats/layout.hpp"
#include "compat/src/table/socket_sets.hpp"

namespace vma::sock {

struct Region {
    void *address = nullptr;
    std::size_t length = 0;
    const Device *device = nullptr;
    fid_mr *mr = nullptr; // nullptr: the place is free
    std::uint32_t key = 0;
    std::uint32_t users = 0;
};

struct EngineTables {
    Region regions[kMostRegions];                          // registrations.cpp; offload lock
    std::atomic<std::uint16_t> attached[config::kMaxCpus]; // ring_choice.cpp: threads a core; any thread
    // retired.cpp; written with the offload lock held.
    std::atomic<bool> may_close_retired{false}; // there are some, and no fork is on its way
    SocketSet retired;                          // whose `retired` counts
    Sandbox sandbox;
    stats::Queue queues[kMostDevices + kMostRings] = {}; // port_facts.cpp; offload lock
    OwnStack stack; // offload lock: of what is done under it within a call of the program's
};
extern constinit EngineTables g_engine_tables;

} // namespace vma::sock
