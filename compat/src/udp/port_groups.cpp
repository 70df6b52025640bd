// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups by Ethernet ports. A frame that the port takes reaches no member of the kernel's on this host, so a
// group is taken only while all sockets that might get it are on the port, in this process; who they are is looked at
// 20 times a second.
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include <rdma/fi_ext_vma.h>

#include "compat/src/base/addresses.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/udp/rules.hpp"
#include "compat/src/udp/shared.hpp"

namespace vma::sock::udp {

namespace {

constexpr unsigned kLooks = 16; // a tick; each is a question or two to the kernel

Taken *find(const in6_addr &group, in_port_t port, const Device *device)
{
    const auto found = std::find_if(std::begin(g_shared.taken), std::end(g_shared.taken), [&](const Taken &one) {
        return one.port == port && one.device == device && IN6_ARE_ADDR_EQUAL(&one.group, &group);
    });
    return found != std::end(g_shared.taken) ? found : nullptr;
}

void steer(Device &d, const in6_addr &group, in_port_t port, bool on, int &result)
{
    engine_exclude_polling(true);
    result = d.udp->take_group(d.domain, group.s6_addr, port, on ? 1 : 0);
    engine_exclude_polling(false);
}

template <typename Take> void each_on(const Device &d, Take take) // sockets on the port
{
    for (Socket *s = g_offload.listed; s != nullptr; s = state_of(*s).next_listed) {
        State &u = state_of(*s);
        if (std::any_of(u.ports, u.ports + u.port_count, [&d](const Attachment &one) { return one.device == &d; }))
            take(*s, u);
    }
}

// What the kernel has of it for them is read first.
void take(Device &d, const in6_addr &group, in_port_t port)
{
    Taken *const place = find({}, 0, nullptr);
    int result = 0;
    if (place == nullptr)
        return;
    each_on(d, [port](Socket &, State &u) {
        if (u.port_number == port)
            u.kernel_first.store(true, std::memory_order_relaxed);
    });
    steer(d, group, port, true, result);
    if (result != 0)
        return;
    *place = {group, port, &d};
    char text[kAddressText];
    sockaddr_in6 name = {};
    name.sin6_addr = group;
    name.sin6_port = port;
    VMA_LOG(kDetails, "group %s: accelerated: port %s", print_address(name, text), d.name);
}

void leave(Taken &taken)
{
    int result = 0;
    steer(*taken.device, taken.group, taken.port, false, result);
    taken = {};
}

bool is_attached(const Identity &who, const Device &d)
{
    bool found = false;
    each_on(d, [&](Socket &, const State &u) { found |= u.identity == who; });
    return found;
}

// The socket has joined the group where the port is.
bool is_in(int fd, const in6_addr &group, std::uint32_t interface)
{
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&group);
    group_filter filter = {};
    socklen_t size = GROUP_FILTER_SIZE(0);
    filter.gf_interface = interface;
    if (v4) {
        sockaddr_in name = {};
        name.sin_family = AF_INET;
        memcpy(&name.sin_addr, &group.s6_addr[12], sizeof name.sin_addr);
        memcpy(&filter.gf_group, &name, sizeof name);
    } else {
        sockaddr_in6 name = {};
        name.sin6_family = AF_INET6;
        name.sin6_addr = group;
        memcpy(&filter.gf_group, &name, sizeof name);
    }
    return libc::real.getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_MSFILTER, &filter, &size) == 0;
}

bool has_named(const State &u, const in6_addr &group)
{
    return u.groups && std::any_of(u.groups->list, u.groups->list + u.groups->count,
                                   [&](const in6_addr &one) { return IN6_ARE_ADDR_EQUAL(&one, &group) != 0; });
}

// One of those that are on the port has joined it there, and not left again.
bool has_member(const Device &d, const in6_addr &group, in_port_t port)
{
    bool found = false;
    each_on(d, [&](const Socket &s, const State &u) {
        found = found || (u.port_number == port && has_named(u, group) &&
                          is_in(s.any_fd.load(std::memory_order_relaxed), group, d.interface));
    });
    return found;
}

bool all_are_on_port(const Device &d, int fd, const in6_addr &group, in_port_t port)
{
    std::vector<Identity> everybody;
    Flow flow = {}; // from anybody
    flow.destination.sin6_addr = group;
    flow.destination.sin6_port = port;
    return has_member(d, group, port) && list_receivers(fd, flow, d.interface, everybody) &&
           std::all_of(everybody.begin(), everybody.end(), [&d](const Identity &who) { return is_attached(who, d); });
}

void look(Socket &s, const in6_addr &group, Device &d)
{
    const in_port_t port = state_of(s).port_number;
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    const bool wanted = !group_is_kernels(group, fd) && all_are_on_port(d, fd, group, port);
    Taken *const taken = find(group, port, &d);
    if (wanted && taken == nullptr)
        take(d, group, port);
    else if (!wanted && taken != nullptr)
        leave(*taken);
}

// Another socket may have been bound to its port since: the kernel decides again who gets what.
void look_after_sharing(Socket &s)
{
    if (!is_still_alone(s, s.any_fd.load(std::memory_order_relaxed)))
        udp::fall_back(s, true); // its next receiving call finds out what is left to it
}

// Local senders have offloaded it before the ports were open, or it has joined a group since.
void attach_late(Socket &s)
{
    const bool takes = s.ready_due.load(std::memory_order_acquire) ||
                       state_of(s).cookie.load(std::memory_order_acquire) != 0; // else it is on its way back
    if (!offloaded(s) || !takes || ports_state() != PortsState::kTried || !may_attach_port(s) ||
        !g_forks.gate.try_lock())
        return;
    attach_ports(s, s.any_fd.load(std::memory_order_relaxed));
    g_forks.gate.unlock();
}

// The group of a call that joins one; false: of one that does not.
bool read_group(int level, int name, const void *value, socklen_t len, in6_addr &group)
{
    sockaddr_in6 named = {};
    if (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_ADD_SOURCE_MEMBERSHIP) &&
        len >= sizeof(in_addr)) {
        in_addr v4;
        memcpy(&v4, value, sizeof v4); // first in both structures
        group = mapped(v4);
        return true;
    }
    if (level == IPPROTO_IPV6 && name == IPV6_JOIN_GROUP && len >= sizeof group) {
        memcpy(&group, value, sizeof group);
        return true;
    }
    if ((name != MCAST_JOIN_GROUP && name != MCAST_JOIN_SOURCE_GROUP) || len < sizeof(group_req))
        return false;
    if (!to_v6(static_cast<const char *>(value) + offsetof(group_req, gr_group), named))
        return false;
    group = named.sin6_addr;
    return true;
}

} // namespace

void note_membership(State &u, int level, int name, const void *value, socklen_t len)
{
    in6_addr group = {};
    if (!read_group(level, name, value, len, group))
        return;
    const LockGuard guard(g_offload.lock);
    if (!u.groups)
        u.groups.reset(new (std::nothrow) JoinedGroups);
    if (!u.groups)
        return; // it stays with the kernel
    u.has_groups = true;
    JoinedGroups &joined = *u.groups;
    const bool known = std::any_of(joined.list, joined.list + joined.count,
                                   [&](const in6_addr &one) { return IN6_ARE_ADDR_EQUAL(&one, &group) != 0; });
    if (!known && joined.count != std::size(joined.list))
        joined.list[joined.count++] = group;
    if (!is_on_port(u))
        u.port_tried.store(false, std::memory_order_relaxed); // it may be taken for its groups
}

void look_after_port_groups()
{
    std::uint32_t number = 0;
    unsigned looks = 0;
    for (Socket *s = g_offload.listed; s != nullptr; s = state_of(*s).next_listed) {
        attach_late(*s);
        const State &u = state_of(*s);
        const auto is_due = [&] { return number++ >= g_shared.next_taken && looks != kLooks && ++looks != 0; };
        if (is_on_port(u) && u.may_share.load(std::memory_order_relaxed) && is_due())
            look_after_sharing(*s);
        for (std::uint32_t i = 0; u.groups && i < u.groups->count * u.port_count; ++i)
            if (is_due())
                look(*s, u.groups->list[i / u.port_count], *u.ports[i % u.port_count].device);
    }
    g_shared.next_taken = g_shared.next_taken + looks < number ? g_shared.next_taken + looks : 0;
}

void leave_port_groups(in_port_t port, Device *device)
{
    for (Taken &taken : g_shared.taken)
        if (taken.port == port && port != 0 && taken.device == device) {
            taken.device->udp->take_group(taken.device->domain, taken.group.s6_addr, port, 0);
            taken = {};
        }
}

void port_groups_after_fork_in_child()
{
    std::fill(std::begin(g_shared.taken), std::end(g_shared.taken), Taken{});
}

} // namespace vma::sock::udp
