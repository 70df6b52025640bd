// SPDX-License-Identifier: BSD-2-Clause
// The flows that a NIC gives to a RAW_PACKET queue pair: each by rules of ibv_create_flow(3), which it applies before
// the kernel sees a frame. A flow of any address has one for each address.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ether/nic/flows.hpp"
#include "ether/raw/verbs_object.hpp"

namespace vma::ether {

// The queue pair lives longer.
class RawFlows final : public Flows
{
public:
    // `mac`: of the interface; `port`: of the device.
    RawFlows(ibv_qp *qp, std::uint8_t port, const inet::Mac &mac) noexcept : qp_(qp), port_(port), mac_(mac) {}

    [[nodiscard]] int add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int add_address(const inet::IpAddress &address) noexcept override;
    [[nodiscard]] int remove_address(const inet::IpAddress &address) noexcept override;
    std::uint32_t count() const noexcept override { return static_cast<std::uint32_t>(flows_.size()); }

    // Makes a rule for a flow that is on no wire, and removes it: what add() would answer.
    [[nodiscard]] int try_rule() noexcept;

    // The queue pair is dead: all rules go, and no more are made (-ENODEV).
    void give_up() noexcept;

    // A rule without a VLAN takes frames with any: whether one with a tag belongs to a flow of ours is to be looked up.
    bool owns_tagged(std::span<const std::uint8_t> frame) const noexcept;

private:
    struct Rule {
        inet::IpAddress local;
        VerbsObject<ibv_flow> made;
    };
    using Rules = std::vector<Rule>;

    int add_rule(const FlowKey &key, const inet::IpAddress &local, unsigned priority, Rules &rules) noexcept;
    bool has(FlowKey key) const noexcept;

    ibv_qp *qp_;
    std::uint8_t port_;
    inet::Mac mac_;
    bool given_up_ = false;
    std::vector<inet::IpAddress> addresses_;
    std::unordered_map<FlowKey, Rules, FlowKeyHash, FlowKeySame> flows_;
};

} // namespace vma::ether
