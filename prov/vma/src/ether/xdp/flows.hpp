// SPDX-License-Identifier: BSD-2-Clause
// The flows that the XDP program takes from the kernel: the keys in its map.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ether/nic/flows.hpp"

namespace vma::ether {

// The maps it writes belong to an XdpProgram that lives longer. With a TCP flow come the IP fragments between its
// addresses.
class XdpFlows final : public Flows
{
public:
    XdpFlows(int flows_map, int addresses_map) noexcept : flows_(flows_map), addresses_(addresses_map) {}

    [[nodiscard]] int add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int add_address(const inet::IpAddress &address) noexcept override;
    [[nodiscard]] int remove_address(const inet::IpAddress &address) noexcept override;
    std::uint32_t count() const noexcept override { return count_; }

private:
    int add_fragments(const FlowKey &key) noexcept;
    void remove_fragments(const FlowKey &key) noexcept;

    int flows_;
    int addresses_;
    std::uint32_t count_ = 0;
    std::unordered_map<FlowKey, std::uint32_t, FlowKeyHash, FlowKeySame>
        fragments_; // key of fragments -> TCP flows that need it
};

} // namespace vma::ether
