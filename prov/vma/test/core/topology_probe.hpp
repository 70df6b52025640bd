// SPDX-License-Identifier: BSD-2-Clause
// What a Topology has read, for tests; the products only ask how far things are.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/topology.hpp"

namespace vma::core {

struct TopologyProbe {
    // NUMA nodes that have processors.
    static std::size_t nodes(const Topology &topology) { return topology.nodes_.size(); }
    // The number that Linux gives the node of a device. kNoNode: unknown device, or one that several nodes share.
    static int node_of(const Topology &topology, std::string_view device)
    {
        const Topology::Device *const found = topology.find(device);
        return found != nullptr && found->near.size() == 1 ? topology.nodes_[found->near.front()].number : kNoNode;
    }
    // Empty for a node that is not there.
    static CpuSet cpus_of(const Topology &topology, int node)
    {
        const auto found = std::ranges::find(topology.nodes_, node, &Topology::Node::number);
        return found != topology.nodes_.end() ? found->cpus : CpuSet();
    }
};

} // namespace vma::core
