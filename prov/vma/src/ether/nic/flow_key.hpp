// SPDX-License-Identifier: BSD-2-Clause
// The key of the map of steered flows, as the XDP program builds it from a frame and flows.cpp from an inet::Flow. It
// is laid out for the program: no padding, and every field at its own alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

#include "inet/wire/bytes.hpp"
#include "inet/wire/types.hpp"

namespace vma::ether {

// VLAN ids of a frame, 0: none (and a priority tag, 802.1Q's id 0). One tag is the outer one.
struct Vlans {
    std::uint16_t outer = 0;
    std::uint16_t inner = 0;

    bool operator==(const Vlans &) const = default;
};

struct FlowKey {
    std::uint8_t local[16];
    std::uint8_t remote[16];    // 0: any
    std::uint8_t local_port[2]; // as on the wire; both ports are 0: the fragments of that pair of addresses
    std::uint8_t remote_port[2];
    std::uint16_t outer_vlan; // host byte order
    std::uint16_t inner_vlan;
    std::uint32_t protocol;
};
static_assert(sizeof(FlowKey) == 44 && std::has_unique_object_representations_v<FlowKey>);

inline FlowKey make_flow_key(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans)
{
    FlowKey key{};
    memcpy(key.local, flow.local.address.bytes.data(), sizeof key.local);
    inet::store16(key.local_port, flow.local.port);
    if (flow.remote.port != 0) { // a remote side that is open has no address either, of whichever family it says it is
        memcpy(key.remote, flow.remote.address.bytes.data(), sizeof key.remote);
        inet::store16(key.remote_port, flow.remote.port);
    }
    key.outer_vlan = vlans.outer;
    key.inner_vlan = vlans.inner;
    key.protocol = static_cast<std::uint32_t>(protocol);
    return key;
}

struct FlowKeyHash {
    std::size_t operator()(const FlowKey &key) const noexcept
    {
        return std::hash<std::string_view>{}({reinterpret_cast<const char *>(&key), sizeof key});
    }
};
struct FlowKeySame {
    bool operator()(const FlowKey &a, const FlowKey &b) const noexcept { return memcmp(&a, &b, sizeof a) == 0; }
};

// The key of the fragments that may belong to that flow.
inline FlowKey make_fragment_key(FlowKey key)
{
    memset(key.local_port, 0, sizeof key.local_port);
    memset(key.remote_port, 0, sizeof key.remote_port);
    return key;
}

} // namespace vma::ether
