// SPDX-License-Identifier: BSD-2-Clause
// The flows that the XDP program takes from the kernel: the keys in its map.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ether/nic/flows.hpp"
#include "ether/xdp/group_mutex.hpp"

namespace vma::ether {

// The maps it writes belong to an XdpProgram that lives longer, and may be written by other processes too, each of
// which has a place. With a TCP flow come the IP fragments between its addresses; where two processes have connections
// between the same two, they are who was first's.
class XdpFlows final : public Flows
{
public:
    // `turn` is held while what is known of an address changes; nullptr: nobody else writes the maps.
    XdpFlows(int flows_map, int addresses_map, unsigned place = 0, GroupMutex *turn = nullptr) noexcept
        : flows_(flows_map), addresses_(addresses_map), place_(place), turn_(turn)
    {
    }

    [[nodiscard]] int add(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int remove(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans = {}) noexcept override;
    [[nodiscard]] int add_address(const inet::IpAddress &address) noexcept override;
    [[nodiscard]] int remove_address(const inet::IpAddress &address) noexcept override;
    std::uint32_t count() const noexcept override { return count_; }

    // All that the process at `place` has in the maps, which is dead or leaves. Who calls it holds `turn`. It reads the
    // whole map.
    static void forget(int flows_map, int addresses_map, unsigned place) noexcept;

private:
    int add_fragments(const FlowKey &key) noexcept;
    void remove_fragments(const FlowKey &key) noexcept;

    static int change_address(int map, const void *address, std::uint32_t add, std::uint32_t remove) noexcept;

    int flows_;
    int addresses_;
    unsigned place_;
    GroupMutex *turn_;
    std::uint32_t count_ = 0;
    std::unordered_map<FlowKey, std::uint32_t, FlowKeyHash, FlowKeySame>
        fragments_; // key of fragments -> TCP flows that need it
};

} // namespace vma::ether
