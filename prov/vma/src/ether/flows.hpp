// SPDX-License-Identifier: BSD-2-Clause
// Which flows the XDP program takes from the kernel: connections and their like by five values (protocol, two addresses, two
// ports), listeners and bound sockets by three. Calls are for set-up: each is one or two system calls.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ether/flow_key.hpp"
#include "inet/types.hpp"

namespace vma::ether {

// What add() gives where no more flows fit into the map: the flow stays with the kernel.
inline constexpr int kFlowTableFull = -28; // -ENOSPC

// Not thread-safe. The map it writes belongs to an XdpProgram that lives longer.
class Flows
{
public:
    Flows(int flows_map, int addresses_map) noexcept : flows_(flows_map), addresses_(addresses_map) {}

    // Frames of that flow are ours from now on; those that the kernel has already stay there. A remote port 0 makes it a flow of
    // three values; a local address that is 0.0.0.0 or :: then means every address given to add_address(), of that family only.
    // With a TCP flow come the IP fragments between its addresses. 0 or negative errno: kFlowTableFull, -EEXIST, -EINVAL for
    // a local port 0, for addresses of two families, for five values without a local address and for a protocol that has no ports.
    [[nodiscard]] int add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept;
    // -ENOENT: it isn't there.
    [[nodiscard]] int remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept;

    // An address of this machine, or a group that it has joined, for flows of any address. -ENOSPC: no more fit. Adding one
    // twice is no error.
    [[nodiscard]] int add_address(const inet::IpAddress &address) noexcept;
    [[nodiscard]] int remove_address(const inet::IpAddress &address) noexcept;

    std::uint32_t count() const noexcept { return count_; }

private:
    struct Hash {
        std::size_t operator()(const FlowKey &key) const noexcept;
    };
    struct Same {
        bool operator()(const FlowKey &a, const FlowKey &b) const noexcept { return memcmp(&a, &b, sizeof a) == 0; }
    };

    int add_fragments(const FlowKey &key) noexcept;
    void remove_fragments(const FlowKey &key) noexcept;

    int flows_;
    int addresses_;
    std::uint32_t count_ = 0;
    std::unordered_map<FlowKey, std::uint32_t, Hash, Same> fragments_; // key of fragments -> TCP flows that need it
};

} // namespace vma::ether
