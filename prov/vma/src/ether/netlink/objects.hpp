// SPDX-License-Identifier: BSD-2-Clause
// What the kernel's network configuration is made of, as far as sending a frame takes it, and how it is read from a
// message of rtnetlink. Readers give nothing for a message that is broken or of no interest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ether/netlink/message.hpp"
#include "ether/nic/flow_key.hpp"
#include "inet/wire/types.hpp"

namespace vma::ether {

enum class LinkKind : std::uint8_t { kOther, kVlan, kBond };

struct Link {
    unsigned index = 0;
    std::string name;
    inet::Mac mac; // zero where the link has no Ethernet address
    unsigned mtu = 0;
    bool up = false;      // by the administrator
    bool carrier = false; // and something is at the other end
    bool loopback = false;
    LinkKind kind = LinkKind::kOther;
    unsigned lower = 0; // kVlan: index of the link it is on. kBond: of the slave that sends, 0 if they all do or none
    std::uint16_t vlan_id = 0;  // kVlan
    std::uint16_t vlan_tag = 0; // kVlan: tag protocol, 0x8100 or 0x88a8
    unsigned master = 0;        // index of the bond or bridge that it is in, 0: none

    bool operator==(const Link &) const = default;
};

struct LocalAddress {
    unsigned interface = 0;
    inet::IpAddress address;
    std::uint8_t prefix = 0; // bits, of the address's own family
    bool usable = true;      // no duplicate, and duplicate detection is over

    bool operator==(const LocalAddress &) const = default;
};

enum class RouteKind : std::uint8_t { kUnicast, kLocal, kBroadcast, kMulticast };

// The answer for one destination: all that a frame's headers take but link addresses.
struct Route {
    RouteKind kind = RouteKind::kUnicast;
    unsigned interface = 0;
    inet::IpAddress next_hop; // the gateway; the destination itself where there is none
    inet::IpAddress source;   // the address of ours that the kernel would send from
    unsigned mtu = 0;         // of the path as far as the kernel knows; 0: that of the link
    unsigned hop_limit = 0;   // 0: the system's

    bool operator==(const Route &) const = default;
};

enum class NeighbourState : std::uint8_t {
    kNone,      // the kernel doesn't know it: resolve()
    kResolving, // it is being asked for
    kUsable,    // `mac` is good
    kStale,     // `mac` is good as far as is known; resolve() before long, as the kernel doesn't see what we send
    kFailed,    // nobody answered
};

struct Neighbour {
    NeighbourState state = NeighbourState::kNone;
    inet::Mac mac;

    bool operator==(const Neighbour &) const = default;
};

struct NeighbourKey {
    unsigned interface = 0;
    inet::IpAddress address;

    bool operator==(const NeighbourKey &) const = default;
};

// Where frames of a link really leave: below its VLANs, and the slave of a bond that sends.
struct Outlet {
    unsigned interface = 0; // with the socket and the XDP program
    Vlans vlans;            // that frames must bear
};

// From the link that a route names down to that one. False: a link on the way isn't there or is down, there are more
// than two tags, or the links stand on each other in a circle.
bool find_outlet(std::span<const Link> links, unsigned interface, Outlet &outlet);

std::optional<Link> read_link(NetlinkBytes payload);                                     // RTM_NEWLINK, RTM_DELLINK
std::optional<LocalAddress> read_address(NetlinkBytes payload);                          // RTM_NEWADDR, RTM_DELADDR
bool read_route(NetlinkBytes payload, const inet::IpAddress &destination, Route &route); // RTM_NEWROUTE, asked for
bool read_neighbour(NetlinkBytes payload, NeighbourKey &key, Neighbour &neighbour);      // RTM_NEWNEIGH, RTM_DELNEIGH

} // namespace vma::ether
