// SPDX-License-Identifier: BSD-2-Clause
// Which flows a NIC takes from the kernel: connections and their like by five values (protocol, two addresses, two
// ports), listeners and bound sockets by three. Calls are for set-up: each is some system calls.
#pragma once

#include <cstdint>

#include "ether/nic/flow_key.hpp"
#include "inet/wire/types.hpp"

namespace vma::ether {

// What add() gives where no more flows fit, and the flow stays with the kernel.
inline constexpr int kFlowTableFull = -28; // -ENOSPC
// What add() gives where the NIC has refused the rule, for another reason than room; the flow stays with the kernel.
inline constexpr int kFlowRefused = -95; // -EOPNOTSUPP

// Not thread-safe.
class Flows
{
public:
    virtual ~Flows() = default;

    // Frames of that flow are ours from now on; those that the kernel has already stay there. A remote port 0 makes it
    // a flow of three values; a local address that is 0.0.0.0 or :: then means every address given to add_address(), of
    // that family only. 0 or negative errno: kFlowTableFull, kFlowRefused, -EEXIST, -EINVAL for a local port 0, for
    // addresses of two families, for five values without a local address and for a protocol that has no ports; -ENODEV:
    // the device is gone.
    [[nodiscard]] virtual int add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept = 0;
    // -ENOENT: it isn't there.
    [[nodiscard]] virtual int remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept = 0;

    // An address of this machine, or a group that it has joined, for flows of any address. kFlowTableFull: no more fit;
    // kFlowRefused. Adding one twice is no error.
    [[nodiscard]] virtual int add_address(const inet::IpAddress &address) noexcept = 0;
    [[nodiscard]] virtual int remove_address(const inet::IpAddress &address) noexcept = 0;

    virtual std::uint32_t count() const noexcept = 0;
};

// Whether add() knows what it means.
inline bool is_valid(const inet::Flow &flow, inet::Protocol protocol) noexcept
{
    if (flow.local.port == 0 || (protocol != inet::Protocol::kTcp && protocol != inet::Protocol::kUdp))
        return false;
    return flow.remote.port == 0 ||
           (!flow.local.address.is_any() && flow.local.address.is_v4() == flow.remote.address.is_v4());
}

} // namespace vma::ether
