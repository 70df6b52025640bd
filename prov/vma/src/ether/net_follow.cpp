// SPDX-License-Identifier: BSD-2-Clause
// What the kernel's network configuration says of a NIC's next hops and addresses, and how its stack follows the
// changes.
#include "ether/net_if.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "ether/nic/group_mac.hpp"

namespace vma::ether {
namespace {

constexpr inet::Nanos kLookInterval = inet::kMillisecond; // between looks at netlink

} // namespace

// True: something has changed.
bool NetIf::follow_net(inet::Nanos now) noexcept
{
    next_look_ = now + kLookInterval;
    nic_.visit([](auto &nic) { nic.follow(); });
    if (const int error = net_.follow(); error != 0)
        VMA_DEBUG(core, "changes of the network can't be followed: %s", std::strerror(-error));
    if (net_.generation() == generation_ && net_.neighbour_generation() == neighbour_generation_)
        return false;
    if (net_.generation() != generation_) {
        name_addresses();
        if (const Link *const link = net_.link(nic_.interface()); link != nullptr)
            longest_frame_ = inet::kMaxEthernetHeader + link->mtu;
    }
    generation_ = net_.generation();
    neighbour_generation_ = net_.neighbour_generation();
    follow_next_hops(now);
    return true;
}

void NetIf::forget_next_hops() noexcept // that nobody uses any more
{
    std::erase_if(asked_,
                  [this](const Asked &to) { return stack_->tcp().next_hops().find(to.remote) == inet::kNoNextHop; });
    std::erase_if(next_hops_,
                  [this](const inet::IpAddress &to) { return stack_->tcp().next_hops().find(to) == inet::kNoNextHop; });
}

// Routes, link addresses and MTUs may be others now.
void NetIf::follow_next_hops(inet::Nanos now) noexcept
{
    forget_next_hops();
    for (const inet::IpAddress &remote : next_hops_) {
        if (!find_next_hop(now, remote))
            lost_peers_.push_back(remote);
    }
}

int NetIf::find_route(const inet::IpAddress &remote, const inet::IpAddress &source, Route &route) noexcept
{
    RouteQuery query;
    query.destination = remote;
    query.source = source;
    if (remote.is_multicast())
        query.interface = nic_.interface(); // a group is not anywhere, but on this link
    if (const int error = net_.route(query, route); error != 0)
        return error;
    Outlet outlet;
    const bool out = route.kind == RouteKind::kUnicast || route.kind == RouteKind::kMulticast;
    if (!out || !net_.outlet(route.interface, outlet) || outlet.interface != nic_.interface())
        return -ENODEV;
    return 0;
}

// The kernel tells that nobody has answered, some seconds after it was asked; not that it asks.
void NetIf::note_answer(inet::Nanos now, const inet::IpAddress &remote, NeighbourState state) noexcept
{
    constexpr inet::Nanos kOld = inet::kSecond; // an earlier failure is still told for a moment
    const auto asked =
        std::find_if(asked_.begin(), asked_.end(), [&](const Asked &one) { return one.remote == remote; });
    if (state == NeighbourState::kUsable || state == NeighbourState::kStale) {
        if (asked != asked_.end())
            asked_.erase(asked);
    } else if (asked == asked_.end()) {
        asked_.push_back({remote, now});
    } else if (state == NeighbourState::kFailed && now - asked->at > kOld) {
        asked->at = now;
        stack_->fail_next_hop(now, remote);
    }
}

// A neighbour that the kernel takes for stale is asked after: it doesn't see that we use it.
bool NetIf::find_mac(inet::Nanos now, const Route &route, const inet::IpAddress &remote, inet::Mac &mac) noexcept
{
    if (remote.is_multicast()) {
        mac = group_mac(remote);
        return true;
    }
    const Neighbour neighbour = net_.neighbour(route.interface, route.next_hop);
    const bool usable = neighbour.state == NeighbourState::kUsable || neighbour.state == NeighbourState::kStale;
    if (neighbour.state != NeighbourState::kUsable && neighbour.state != NeighbourState::kResolving)
        static_cast<void>(net_.resolve(route.interface, route.next_hop));
    note_answer(now, remote, neighbour.state);
    mac = neighbour.mac;
    return usable;
}

bool NetIf::find_next_hop(inet::Nanos now, const inet::IpAddress &remote) noexcept
{
    Route route;
    Outlet outlet;
    if (const int error = find_route(remote, {}, route); error != 0)
        return error != -ENODEV;
    if (!net_.outlet(route.interface, outlet) || outlet.vlans.inner != 0)
        return true;
    inet::Mac mac;
    const Link *const link = net_.link(route.interface);
    if (link == nullptr || !find_mac(now, route, remote, mac))
        return true;
    const unsigned mtu = route.mtu != 0 ? std::min(route.mtu, link->mtu) : link->mtu;
    stack_->set_next_hop(now, remote, mac, outlet.vlans.outer, static_cast<std::uint16_t>(std::min(mtu, 65535U)));
    return true;
}

// The addresses for which flows of any address are ours: those of the NIC, and of the VLANs on it.
void NetIf::name_addresses() noexcept
{
    std::vector<inet::IpAddress> now;
    for (const LocalAddress &local : net_.addresses()) {
        Outlet outlet;
        if (local.usable && net_.outlet(local.interface, outlet) && outlet.interface == nic_.interface())
            now.push_back(local.address);
    }
    for (const inet::IpAddress &old : named_) {
        if (std::find(now.begin(), now.end(), old) == now.end())
            static_cast<void>(flows().remove_address(old));
    }
    for (const inet::IpAddress &address : now) {
        if (const int error = flows().add_address(address); error != 0)
            VMA_WARN(core, "an address more than the steering program can hold: listeners don't hear it");
    }
    named_ = std::move(now);
}

} // namespace vma::ether
