// SPDX-License-Identifier: BSD-2-Clause
// Multicast. A datagram goes to all sockets of this host that are in the group by their endpoints, and by a port or the
// kernel to the wire alone; or, while there is one among them that is not accelerated, by the kernel to everybody. So
// nobody gets it twice.
#include <errno.h>
#include <string.h>

#include "compat/src/base/addresses.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/udp/departure.hpp"
#include "compat/src/udp/memberships.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

void tell(int fd, const Flow &flow, const Group &group)
{
    char source[kAddressText];
    char destination[kAddressText];
    VMA_LOG(kDetails, "fd=%d UDP %s -> %s: accelerated: device local, %zu receivers of the group%s", fd,
            print_address(flow.source, source), print_address(flow.destination, destination), group.receivers.size(),
            !group.leaves_host ? ""
            : group.by_port    ? ", the wire by the port"
                               : ", the wire by the kernel");
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
            offload_unasked(s, fd);
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

void loop_in_kernel(State &u, int fd, bool on)
{
    const bool v4 = place_of(u) == 0;
    bool &now = u.kernel_loops[place_of(u)];
    if (now == on)
        return;
    const int value = on ? 1 : 0;
    if (libc::real.setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP, &value,
                              sizeof value) == 0)
        now = on;
}

ssize_t send_to_group_by_kernel(State &u, int fd, const Message &m, bool loops)
{
    msghdr msg = {};
    msg.msg_name = const_cast<sockaddr *>(m.to);
    msg.msg_namelen = m.to_length;
    msg.msg_iov = const_cast<iovec *>(m.parts);
    msg.msg_iovlen = m.count;
    loop_in_kernel(u, fd, loops);
    const ssize_t n = libc::uncancelled::sendmsg(fd, &msg, m.flags);
    return n >= 0 ? n : -errno;
}

namespace {

// Nobody of this host gets it: then a port may send it, as long as that is so.
void point_to_wire(Socket &s, int fd, Route &route, const Departure &departure, bool is_watched)
{
    if (!point_group_to_port(s, fd, route, departure))
        return;
    route.way = Way::kPort;
    route.is_watched = is_watched;
}

void point_to_members(Socket &s, int fd, Route &route, const Departure &departure, std::unique_ptr<Group> group)
{
    for (Receiver &receiver : group->receivers)
        receiver.data |= kToGroup | (departure.v4 ? 0 : kToIpv6);
    const bool known = route.group != nullptr;
    if (known)
        keep_losses(*route.group, *group);
    About about = describe_flow(fd, departure.flow);
    about.interface = departure.way.interface & kMostInterface;
    about.ttl = departure.hops;
    route.header_length = static_cast<std::uint8_t>(write_header(about, !departure.v4, route.header));
    route.group = std::move(group);
    route.group->by_port = route.group->leaves_host && point_group_to_port(s, fd, route, departure);
    route.way = Way::kGroup;
    list(s);
    s.told = true;
    if (!known)
        tell(fd, departure.flow, *route.group);
}

ssize_t put_to_wire(State &u, int fd, Route &route, const Message &m)
{
    const ssize_t n = route.group->by_port ? put_to_port(u, fd, route, m) : kByKernel;
    if (n != kByKernel)
        return n;
    go_by_kernel(route);
    u.has_wire_groups.store(true, std::memory_order_relaxed);
    return send_to_group_by_kernel(u, fd, m, false);
}

} // namespace

void resolve_group(Socket &s, int fd, Route &route)
{
    Departure departure;
    const bool watches = ports_are_named();
    route.members = watches ? membership_generation() : 0;
    if (!find_departure(state_of(s), fd, route.to, departure))
        return;
    const GroupRoute &way = departure.way;
    const bool looped = departure.loops || way.is_loopback;
    const bool joined = looped && (!watches || is_joined(departure.flow.destination.sin6_addr, way.interface));
    if (!looped || !way.has_members || !joined) { // nobody of this host gets it
        wish_for(route, {});
        return point_to_wire(s, fd, route, departure, !joined);
    }
    auto group = std::make_unique<Group>();
    group->leaves_host = !way.is_loopback && departure.hops != 0;
    if (find_receivers(s, fd, route, departure.flow, way.interface, *group) && !group->receivers.empty())
        point_to_members(s, fd, route, departure, std::move(group));
}

// EAGAIN is what nobody has got: who sends again after it would give it twice to those who have.
ssize_t put_to_group(Socket &s, int fd, Route &route, const Message &m)
{
    State &u = state_of(s);
    bool is_taken = false;
    bool is_refused = false;
    const std::uint32_t kernel_sends = u.kernel_sends.load(std::memory_order_relaxed);
    for (Receiver &receiver : route.group->receivers) {
        const ssize_t n = put(s, route, receiver, m);
        is_taken |= n >= 0;
        is_refused |= n == -EAGAIN;
    }
    route.kernel_sends = kernel_sends;
    if (route.group->leaves_host) {
        const ssize_t n = put_to_wire(u, fd, route, m);
        if (n < 0 && n != -EAGAIN)
            return n;
        is_taken |= n >= 0;
        is_refused |= n < 0;
    }
    return is_refused && !is_taken ? -EAGAIN : static_cast<ssize_t>(m.length);
}

} // namespace vma::sock::udp
