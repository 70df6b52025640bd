// SPDX-License-Identifier: BSD-2-Clause
#include "ether/netlink/cache.hpp"

#include <algorithm>
#include <cerrno>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <sys/socket.h>

#include "core/log.hpp"

namespace vma::ether {
namespace {

constexpr int kReceiveBuffer = 1 << 20;
constexpr int kMaxReads = 8; // of everything, while it changes

constexpr unsigned kGroups[] = {RTNLGRP_LINK,        RTNLGRP_NEIGH,      RTNLGRP_IPV4_IFADDR,
                                RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
                                RTNLGRP_IPV4_RULE,   RTNLGRP_IPV6_RULE,  RTNLGRP_NEXTHOP};

std::uint8_t family_of(const inet::IpAddress &address)
{
    return address.is_v4() ? AF_INET : AF_INET6;
}

std::uint8_t bits_of(const inet::IpAddress &address)
{
    return address.is_v4() ? 32 : 128;
}

ndmsg neighbour_body(const NeighbourKey &key)
{
    ndmsg body{};
    body.ndm_family = family_of(key.address);
    body.ndm_ifindex = static_cast<int>(key.interface);
    return body;
}

} // namespace

std::size_t NetState::Hash::operator()(const NeighbourKey &key) const noexcept
{
    const std::string_view bytes(reinterpret_cast<const char *>(key.address.bytes.data()), key.address.bytes.size());
    return std::hash<std::string_view>{}(bytes) ^ key.interface;
}

int NetState::open(NetState &opened, int receive_buffer) noexcept
{
    NetState made;
    // Events first: what changes while everything is read comes again as an event.
    if (const int status =
            NetlinkSocket::open(kGroups, receive_buffer != 0 ? receive_buffer : kReceiveBuffer, made.events_);
        status != 0)
        return status;
    if (const int status = NetlinkSocket::open({}, 0, made.questions_); status != 0)
        return status;
    if (const int status = made.read_all(); status != 0)
        return status;
    opened = std::move(made);
    return 0;
}

int NetState::read_all() noexcept
{
    int status = -EINTR;
    for (int i = 0; i < kMaxReads && status == -EINTR; ++i) {
        links_.clear();
        addresses_.clear();
        status = dump(RTM_GETLINK);
        if (status == 0)
            status = dump(RTM_GETADDR);
    }
    for (auto &[key, watched] : neighbours_)
        watched.neighbour = ask_neighbour(key);
    changed();
    return status;
}

int NetState::dump(std::uint16_t type) noexcept
{
    const auto ask = [&](const auto &body) {
        NetlinkRequest request(type, NLM_F_DUMP, body);
        return questions_.ask(request, [this](const nlmsghdr &header, NetlinkBytes payload) { take(header, payload); });
    };
    return type == RTM_GETLINK ? ask(ifinfomsg{}) : ask(ifaddrmsg{});
}

int NetState::follow() noexcept
{
    while (true) {
        const int status =
            events_.take_events([this](const nlmsghdr &header, NetlinkBytes payload) { take(header, payload); });
        if (status != -ENOBUFS)
            return status;
        ++overruns_;
        VMA_DEBUG(domain, "the kernel has dropped events of the network's configuration: all of it is read again");
        // The events that are left are older than what is read now. Applied on top of it they could bring back what is
        // gone, and nothing would take it away again.
        while (events_.take_events([](const nlmsghdr &, NetlinkBytes) {}) == -ENOBUFS)
            ;
        if (const int read = read_all(); read != 0)
            return read;
    }
}

void NetState::take(const nlmsghdr &header, NetlinkBytes payload)
{
    const bool gone =
        header.nlmsg_type == RTM_DELLINK || header.nlmsg_type == RTM_DELADDR || header.nlmsg_type == RTM_DELNEIGH;
    switch (header.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
        if (std::optional<Link> link = read_link(payload))
            take_link(std::move(*link), gone);
        break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
        if (const std::optional<LocalAddress> address = read_address(payload))
            take_address(*address, gone);
        break;
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
        take_neighbour(payload, gone);
        break;
    default: // routes, rules, next hops: which answers they change is only known by asking again
        changed();
    }
}

void NetState::take_link(Link link, bool gone)
{
    const auto found = std::find_if(links_.begin(), links_.end(), [&](const Link &l) { return l.index == link.index; });
    if (gone) {
        if (found != links_.end())
            links_.erase(found);
        std::erase_if(addresses_, [&](const LocalAddress &a) { return a.interface == link.index; });
    } else if (found == links_.end()) {
        links_.push_back(std::move(link));
    } else if (*found != link) {
        *found = std::move(link);
    } else {
        return; // the kernel tells of much that is nothing to us
    }
    changed();
}

void NetState::take_address(const LocalAddress &address, bool gone)
{
    const auto found = std::find_if(addresses_.begin(), addresses_.end(), [&](const LocalAddress &a) {
        return a.interface == address.interface && a.address == address.address && a.prefix == address.prefix;
    });
    if (gone && found != addresses_.end())
        addresses_.erase(found);
    else if (!gone && found == addresses_.end())
        addresses_.push_back(address);
    else if (!gone && *found != address)
        *found = address;
    else
        return;
    changed();
}

void NetState::take_neighbour(NetlinkBytes payload, bool gone)
{
    NeighbourKey key;
    Neighbour neighbour;
    if (!read_neighbour(payload, key, neighbour))
        return;
    const auto found = neighbours_.find(key);
    if (gone)
        neighbour = {};
    if (found == neighbours_.end() || found->second.neighbour == neighbour)
        return;
    found->second.neighbour = neighbour;
    ++neighbour_generation_;
}

void NetState::changed() noexcept
{
    ++generation_;
    ++neighbour_generation_;
}

const Link *NetState::link(unsigned index) const noexcept
{
    const auto found = std::find_if(links_.begin(), links_.end(), [&](const Link &l) { return l.index == index; });
    return found != links_.end() ? &*found : nullptr;
}

const Link *NetState::link(std::string_view name) const noexcept
{
    const auto found = std::find_if(links_.begin(), links_.end(), [&](const Link &l) { return l.name == name; });
    return found != links_.end() ? &*found : nullptr;
}

bool NetState::is_local(const inet::IpAddress &address) const noexcept
{
    return std::any_of(addresses_.begin(), addresses_.end(),
                       [&](const LocalAddress &a) { return a.address == address && a.usable; });
}

int NetState::route(const RouteQuery &query, Route &route) noexcept
{
    rtmsg body{};
    body.rtm_family = family_of(query.destination);
    body.rtm_dst_len = bits_of(query.destination);
    body.rtm_tos = query.destination.is_v4() ? static_cast<std::uint8_t>(query.traffic_class & 0xfc) : 0;
    if (!query.source.is_any())
        body.rtm_src_len = bits_of(query.source);
    NetlinkRequest request(RTM_GETROUTE, 0, body);
    request.attribute(RTA_DST, query.destination);
    if (!query.source.is_any())
        request.attribute(RTA_SRC, query.source);
    if (query.interface != 0)
        request.attribute(RTA_OIF, query.interface);
    if (query.mark != 0)
        request.attribute(RTA_MARK, query.mark);
    bool found = false;
    const int status = questions_.ask(request, [&](const nlmsghdr &header, NetlinkBytes payload) {
        found |= header.nlmsg_type == RTM_NEWROUTE && read_route(payload, query.destination, route);
    });
    if (status != 0)
        return status;
    if (!found)
        return -ENETUNREACH;
    if (!query.source.is_any())
        route.source = query.source; // the kernel doesn't repeat it
    return 0;
}

Neighbour NetState::neighbour(unsigned interface, const inet::IpAddress &address) noexcept
{
    const NeighbourKey key{interface, address};
    auto found = neighbours_.find(key);
    if (found == neighbours_.end()) {
        if (neighbours_.size() >= kMaxNeighbours)
            forget_one_neighbour();
        found = neighbours_.emplace(key, Watched{ask_neighbour(key), 0}).first;
    }
    found->second.asked = ++asked_;
    return found->second.neighbour;
}

Neighbour NetState::ask_neighbour(const NeighbourKey &key) noexcept
{
    NetlinkRequest request(RTM_GETNEIGH, 0, neighbour_body(key));
    request.attribute(NDA_DST, key.address);
    Neighbour known;
    const int status = questions_.ask(request, [&](const nlmsghdr &header, NetlinkBytes payload) {
        NeighbourKey of;
        Neighbour neighbour;
        if (header.nlmsg_type == RTM_NEWNEIGH && read_neighbour(payload, of, neighbour) && of == key)
            known = neighbour;
    });
    return status == 0 ? known : Neighbour{};
}

void NetState::forget_one_neighbour()
{
    neighbours_.erase(std::min_element(neighbours_.begin(), neighbours_.end(),
                                       [](const auto &a, const auto &b) { return a.second.asked < b.second.asked; }));
}

int NetState::resolve(unsigned interface, const inet::IpAddress &address) noexcept
{
    const NeighbourKey key{interface, address};
    ndmsg body = neighbour_body(key);
    body.ndm_flags = NTF_USE; // as if the kernel had something to send there
    NetlinkRequest request(RTM_NEWNEIGH, NLM_F_CREATE, body);
    request.attribute(NDA_DST, address);
    return questions_.ask(request, [](const nlmsghdr &, NetlinkBytes) {});
}

} // namespace vma::ether
