// SPDX-License-Identifier: BSD-2-Clause
// Which devices may carry something, in the order of preference: those that the filters admit, the nearest to the
// calling thread first. Which of them reach the peer has been found out before, by its route.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/filters.hpp"
#include "core/topology.hpp"

namespace vma::core {

struct Candidate {
    std::string name;                  // as in FI_VMA_DEVICE, and in the topology
    bool on_wire = true;               // false: within this host (the device "local"): interfaces don't matter
    std::vector<Interface> interfaces; // of a device on a wire
    int node = kNoNode;                // as sysfs says
};

// What choosing asks for when there is something to choose. Reading the topology must not be waited for by a program's
// connect(): who chooses in a thread of our own says here which thread it is for.
struct Surroundings {
    const Topology &(*topology)() noexcept = machine_topology;
    const Where *where = nullptr; // nullptr: the calling thread
};

bool admitted(const Candidate &candidate, const Filters &filters) noexcept;

// Places in `candidates`, the best first; equals stay in order. Candidates on no wire come first of all. Looks at the
// topology only if more than one candidate on a wire is admitted, for that takes milliseconds once. Thread-safe.
std::vector<std::size_t> choose(std::span<const Candidate> candidates, const Filters &filters,
                                const Surroundings &surroundings = {}) noexcept;

} // namespace vma::core
