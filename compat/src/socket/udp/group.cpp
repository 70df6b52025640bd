// SPDX-License-Identifier: BSD-2-Clause
// Multicast. A datagram goes to all sockets of this host that are in the group by their endpoints, and by the kernel to the
// wire alone; or, while there is one among them that is not accelerated, by the kernel to everybody. So nobody gets it twice.
#include <errno.h>
#include <string.h>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/udp/interface.hpp"
#include "compat/src/socket/udp/state.hpp"

namespace vma::sock::udp {

namespace {

// Whether the kernel's socket gives its own host what it sends to groups.
void loop_in_kernel(State &u, int fd, bool v4, bool on)
{
    bool &now = u.kernel_loops[v4 ? 0 : 1];
    if (now == on)
        return;
    const int value = on ? 1 : 0;
    if (libc::real.setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP, &value,
                              sizeof value) == 0)
        now = on;
}

// That of IP_MULTICAST_IF before that of the route.
in6_addr group_source(int fd, bool v4, const in6_addr &of_route)
{
    in_addr chosen = {};
    socklen_t size = sizeof chosen;
    if (!v4 || libc::real.getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &chosen, &size) != 0 || chosen.s_addr == 0)
        return of_route;
    return mapped(chosen);
}

void tell(int fd, const Flow &flow, const Group &group)
{
    char source[kAddressText];
    char destination[kAddressText];
    VMA_LOG(kDebug, "fd=%d UDP %s -> %s: accelerated: device local, %zu receivers of the group%s", fd,
            print_address(flow.source, source), print_address(flow.destination, destination), group.receivers.size(),
            group.leaves_host ? ", the wire by the kernel" : "");
}

// All that the kernel might give it to. False: one of them is not accelerated (yet).
bool find_receivers(Socket &s, int fd, Route &route, const Flow &flow, std::uint32_t interface, Group &group)
{
    State &u = state_of(s);
    std::vector<Identity> everybody;
    std::vector<Identity> missing;
    if (!list_receivers(fd, flow, interface, everybody) || (u.identity.inode == 0 && !identify(fd, u.identity)))
        return false;
    for (const Identity &who : everybody) {
        Target target = {};
        Receiver receiver;
        if (who == u.identity) // who sends to its own port may never read
            lift_unasked(s, fd);
        if (!find_name(who, target))
            missing.push_back(who);
        else if (engine_start_datagrams() && point_to(receiver, who, target))
            group.receivers.push_back(receiver);
        else
            return false;
    }
    wish_for(route, missing);
    if (!missing.empty())
        return false;
    bool met = true;
    for (const Receiver &receiver : group.receivers)
        met &= has_met(receiver);
    if (!met)
        route.way = Way::kUnknown;
    return met;
}

// Those that are still there have not heard of what they lost.
void keep_losses(const Group &old, Group &group)
{
    for (Receiver &receiver : group.receivers)
        for (const Receiver &before : old.receivers)
            if (before.data == (receiver.data | (before.data & (kToIpv6 | kToGroup))))
                receiver.lost = before.lost;
}

} // namespace

bool is_group(int fd, const Destination &to)
{
    sockaddr_in6 name = {};
    return read_destination(fd, to, name) && is_group_address(name.sin6_addr);
}

ssize_t send_to_group_by_kernel(State &u, int fd, const Message &m, bool v4, bool loops)
{
    msghdr msg = {};
    msg.msg_name = const_cast<sockaddr *>(m.to);
    msg.msg_namelen = m.to_length;
    msg.msg_iov = const_cast<iovec *>(m.parts);
    msg.msg_iovlen = m.count;
    loop_in_kernel(u, fd, v4, loops);
    const ssize_t n = libc::uncancelled::sendmsg(fd, &msg, m.flags);
    return n >= 0 ? n : -errno;
}

void resolve_group(Socket &s, int fd, Route &route)
{
    State &u = state_of(s);
    Flow flow = {};
    GroupRoute way = {};
    if (!read_destination(fd, route.to, flow.destination) || !read_address(fd, Side::kLocal, flow.source) ||
        flow.source.sin6_port == 0)
        return;
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    const std::uint32_t chosen = u.group_interface[v4 ? 0 : 1];
    if (!find_group_route(flow.destination.sin6_addr, in6addr_any, chosen, way))
        return;
    if (is_any(flow.source.sin6_addr))
        flow.source.sin6_addr = group_source(fd, v4, way.source);
    if (!find_group_route(flow.destination.sin6_addr, flow.source.sin6_addr, way.interface, way))
        return;
    if (!way.has_members || (!way.is_loopback && !u.loops[v4 ? 0 : 1])) // nobody of this host gets it
        return wish_for(route, {});
    auto group = std::make_unique<Group>();
    group->leaves_host = !way.is_loopback;
    if (!find_receivers(s, fd, route, flow, way.interface, *group))
        return;
    if (group->receivers.empty())
        return;
    for (Receiver &receiver : group->receivers)
        receiver.data |= kToGroup | (v4 ? 0 : kToIpv6);
    const bool known = route.group != nullptr;
    if (known)
        keep_losses(*route.group, *group);
    About about = describe_flow(fd, flow);
    about.interface = way.interface;
    about.ttl = static_cast<std::uint8_t>(v4 ? read_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, 1)
                                             : read_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1));
    route.header_length = static_cast<std::uint8_t>(write_header(about, !v4, route.header));
    route.group = std::move(group);
    route.way = Way::kGroup;
    list(s);
    if (!known)
        tell(fd, flow, *route.group);
}

ssize_t put_to_group(Socket &s, int fd, Route &route, const Message &m)
{
    State &u = state_of(s);
    const bool v4 = (route.group->receivers.front().data & kToIpv6) == 0;
    auto result = static_cast<ssize_t>(m.length);
    const std::uint32_t kernel_sends = u.kernel_sends.load(std::memory_order_relaxed);
    for (Receiver &receiver : route.group->receivers)
        if (put(s, route, receiver, m) == -EAGAIN)
            result = -EAGAIN;
    route.kernel_sends = kernel_sends;
    if (!route.group->leaves_host)
        return result;
    u.has_wire_groups.store(true, std::memory_order_relaxed);
    const ssize_t n = send_to_group_by_kernel(u, fd, m, v4, false);
    return n < 0 ? n : result;
}

} // namespace vma::sock::udp
