// SPDX-License-Identifier: BSD-2-Clause
#include "ether/netlink/objects.hpp"

#include <algorithm>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <string_view>
#include <sys/socket.h>

namespace vma::ether {
namespace {

constexpr int kMaxStacked = 8;

std::string_view text_of(NetlinkBytes bytes)
{
    if (bytes.empty())
        return {};
    const auto *const text = reinterpret_cast<const char *>(bytes.data());
    return {text, strnlen(text, bytes.size())};
}

[[gnu::noinline]] void read_kind(const Attributes &attributes, Link &link)
{
    const Attributes info = attributes.nested(IFLA_LINKINFO);
    const Attributes data = info.nested(IFLA_INFO_DATA);
    const std::string_view kind = text_of(info.find(IFLA_INFO_KIND));
    if (kind == "vlan") {
        link.kind = LinkKind::kVlan;
        link.vlan_tag = ETH_P_8021Q;
        std::uint16_t tag = 0;
        if (data.read(IFLA_VLAN_PROTOCOL, tag))
            link.vlan_tag = inet::load16(reinterpret_cast<const std::uint8_t *>(&tag));
        data.read(IFLA_VLAN_ID, link.vlan_id);
        // In another namespace the index means nothing here.
        if (attributes.find(IFLA_LINK_NETNSID).empty())
            attributes.read(IFLA_LINK, link.lower);
    } else if (kind == "bond") {
        link.kind = LinkKind::kBond;
        data.read(IFLA_BOND_ACTIVE_SLAVE, link.lower);
    }
}

NeighbourState state_of(std::uint16_t kernel)
{
    if ((kernel & (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE)) != 0)
        return NeighbourState::kUsable;
    if ((kernel & (NUD_DELAY | NUD_PROBE)) != 0) // it is being asked whether it is still there
        return NeighbourState::kUsable;
    if ((kernel & NUD_STALE) != 0)
        return NeighbourState::kStale;
    if ((kernel & NUD_INCOMPLETE) != 0)
        return NeighbourState::kResolving;
    return (kernel & NUD_FAILED) != 0 ? NeighbourState::kFailed : NeighbourState::kNone;
}

bool read_mac(NetlinkBytes bytes, inet::Mac &mac)
{
    if (bytes.size() != mac.bytes.size())
        return false;
    memcpy(mac.bytes.data(), bytes.data(), bytes.size());
    return true;
}

std::optional<RouteKind> kind_of(std::uint8_t type)
{
    switch (type) {
    case RTN_UNICAST:
        return RouteKind::kUnicast;
    case RTN_LOCAL:
    case RTN_ANYCAST:
        return RouteKind::kLocal;
    case RTN_BROADCAST:
        return RouteKind::kBroadcast;
    case RTN_MULTICAST:
        return RouteKind::kMulticast;
    default:
        return std::nullopt;
    }
}

} // namespace

bool find_outlet(std::span<const Link> links, unsigned interface, Outlet &outlet)
{
    Outlet found;
    for (int i = 0; i < kMaxStacked; ++i) {
        const auto at = std::find_if(links.begin(), links.end(), [&](const Link &l) { return l.index == interface; });
        if (at == links.end() || !at->up)
            return false;
        if (at->lower == 0) {
            if (at->kind == LinkKind::kVlan) // its lower link is in another namespace
                return false;
            found.interface = interface;
            outlet = found;
            return true;
        }
        if (at->kind == LinkKind::kVlan) {
            if (found.vlans.inner != 0)
                return false;
            found.vlans = {at->vlan_id, found.vlans.outer}; // the lower VLAN's tag is the outer one
        }
        interface = at->lower;
    }
    return false;
}

std::optional<Link> read_link(NetlinkBytes payload)
{
    ifinfomsg body;
    NetlinkBytes rest;
    if (!split(payload, body, rest) || body.ifi_family != AF_UNSPEC ||
        body.ifi_index <= 0) // bridges tell of their ports too
        return std::nullopt;
    const Attributes attributes(rest);
    Link link;
    link.index = static_cast<unsigned>(body.ifi_index);
    link.name = text_of(attributes.find(IFLA_IFNAME));
    link.up = (body.ifi_flags & IFF_UP) != 0;
    link.carrier = (body.ifi_flags & IFF_LOWER_UP) != 0;
    link.loopback = (body.ifi_flags & IFF_LOOPBACK) != 0;
    if (body.ifi_type == ARPHRD_ETHER)
        read_mac(attributes.find(IFLA_ADDRESS), link.mac);
    attributes.read(IFLA_MTU, link.mtu);
    attributes.read(IFLA_MASTER, link.master);
    read_kind(attributes, link);
    return link;
}

std::optional<LocalAddress> read_address(NetlinkBytes payload)
{
    ifaddrmsg body;
    NetlinkBytes rest;
    if (!split(payload, body, rest))
        return std::nullopt;
    const Attributes attributes(rest);
    LocalAddress address;
    address.interface = body.ifa_index;
    address.prefix = body.ifa_prefixlen;
    // IFA_ADDRESS is the peer's on a point-to-point link, where IFA_LOCAL is ours.
    if (!attributes.read(IFA_LOCAL, address.address) && !attributes.read(IFA_ADDRESS, address.address))
        return std::nullopt;
    std::uint32_t flags = body.ifa_flags;
    attributes.read(IFA_FLAGS, flags);
    const bool tentative = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
    address.usable = !tentative && (flags & IFA_F_DADFAILED) == 0;
    return address;
}

bool read_route(NetlinkBytes payload, const inet::IpAddress &destination, Route &route)
{
    rtmsg body;
    NetlinkBytes rest;
    if (!split(payload, body, rest))
        return false;
    const std::optional<RouteKind> kind = kind_of(body.rtm_type);
    const Attributes attributes(rest);
    Route read;
    if (!kind || !attributes.read(RTA_OIF, read.interface))
        return false;
    // A kernel that routes a group by its unicast table doesn't call the route one of multicast.
    read.kind = destination.is_multicast() && *kind == RouteKind::kUnicast ? RouteKind::kMulticast : *kind;
    read.next_hop = destination;
    if (!attributes.read(RTA_GATEWAY, read.next_hop)) {
        const NetlinkBytes via = attributes.find(RTA_VIA); // a gateway of the other family (RFC 5549)
        if (via.size() > sizeof(rtvia))
            Attributes::to_address(via.subspan(sizeof(rtvia)), read.next_hop);
    }
    attributes.read(RTA_PREFSRC, read.source);
    const Attributes metrics = attributes.nested(RTA_METRICS);
    metrics.read(RTAX_MTU, read.mtu);
    metrics.read(RTAX_HOPLIMIT, read.hop_limit);
    route = read;
    return true;
}

bool read_neighbour(NetlinkBytes payload, NeighbourKey &key, Neighbour &neighbour)
{
    ndmsg body;
    NetlinkBytes rest;
    if (!split(payload, body, rest) || (body.ndm_family != AF_INET && body.ndm_family != AF_INET6))
        return false;
    const Attributes attributes(rest);
    if (body.ndm_ifindex <= 0 || !attributes.read(NDA_DST, key.address))
        return false;
    key.interface = static_cast<unsigned>(body.ndm_ifindex);
    neighbour = {state_of(body.ndm_state), {}};
    const bool has_mac = read_mac(attributes.find(NDA_LLADDR), neighbour.mac);
    if (!has_mac && (neighbour.state == NeighbourState::kUsable || neighbour.state == NeighbourState::kStale))
        neighbour.state = NeighbourState::kNone; // of a link without Ethernet addresses
    return true;
}

} // namespace vma::ether
