// SPDX-License-Identifier: BSD-2-Clause
// Sending by Ethernet ports: to other hosts by the port that a socket is on, to groups by the sender that all sockets
// of the process share, so those as well that never receive. When a destination's datagrams change between kernel and
// port, one of them waits until the other has sent.
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include <algorithm>

#include "compat/src/base/addresses.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/udp/departure.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

// Nothing waits in a queue of the kernel's, or of its driver's, that a frame of ours would overtake.
bool kernel_has_sent_all(int fd)
{
    int bytes = 0;
    return libc::real.ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

// The way leads by another of the ports that the socket is on, or by none.
void try_next_port(const State &u, Route &route)
{
    const Attachment *const end = u.ports + u.port_count;
    const Attachment *const now =
        std::find_if(u.ports, end, [&route](const Attachment &one) { return one.tap == route.tap; });
    if (now == end || u.port_count == 1)
        return;
    const Attachment &next = now + 1 == end ? u.ports[0] : now[1];
    go_by_kernel(route);
    route.port = next.device;
    route.tap = next.tap;
}

// What was found out about the way is of the thread's network.
Device *port_with(int fd, std::uint32_t interface)
{
    Device *found = nullptr;
    each_remote_device([&](Device &d) {
        if (d.sender != nullptr && d.interface == interface && !d.failed && d.network == network_of(fd) &&
            d.network == network_of_thread())
            found = &d;
    });
    return found;
}

bool ports_are_open()
{
    if (!ports_are_named() || !engine_start())
        return false;
    if (ports_state() == PortsState::kTried)
        return true;
    ask_for_ports();
    return false;
}

void keep_open(State &u, Device &d)
{
    for (std::size_t i = 0; i < kMostDevices; ++i) {
        const std::uint32_t bit = 1U << i;
        if (&remote_device_at(i) != &d || (u.sends_by & bit) != 0)
            continue;
        u.sends_by |= bit;
        ++d.users;
    }
}

void tell(int fd, const Departure &departure, const Device &d)
{
    char source[kAddressText];
    char destination[kAddressText];
    VMA_LOG(kDetails, "fd=%d UDP %s -> %s: accelerated: port %s, a group", fd,
            print_address(departure.flow.source, source), print_address(departure.flow.destination, destination),
            d.name);
}

} // namespace

void point_to_port(State &u, int fd, Route &route)
{
    sockaddr_in6 name = {};
    sockaddr_in6 way = {};
    if (!is_on_port(u) || !read_destination(fd, route.to, name) || name.sin6_scope_id != 0 || !find_source(name, way) ||
        is_loopback(way.sin6_addr) || IN6_ARE_ADDR_EQUAL(&way.sin6_addr, &name.sin6_addr))
        return;
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&name.sin6_addr);
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    if (route.tap == nullptr) {
        route.port = u.ports[0].device;
        route.tap = u.ports[0].tap;
    }
    memcpy(route.by_port.address, &name.sin6_addr, sizeof route.by_port.address);
    route.by_port.port = name.sin6_port;
    route.by_port.traffic_class = static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_TCLASS : IP_TOS, 0));
    route.by_port.hop_limit =
        static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, 64));
    route.way = Way::kPort;
}

bool point_group_to_port(Socket &s, int fd, Route &route, const Departure &departure)
{
    State &u = state_of(s);
    if (!ports_are_named())
        return false;
    list(s); // routes hold for ticks, which there are while sockets are listed
    Device *const d = ports_are_open() ? port_with(fd, departure.way.interface) : nullptr;
    if (d == nullptr || !is_kernel_only_departure(departure))
        return false;
    if (route.tap != d->sender) {
        go_by_kernel(route); // from another port, perhaps
        s.told = true;
        tell(fd, departure, *d);
        keep_open(u, *d);
        route.port = d;
        route.tap = d->sender;
    }
    const Flow &flow = departure.flow;
    memcpy(route.by_port.address, &flow.destination.sin6_addr, sizeof route.by_port.address);
    memcpy(route.by_port.source, &flow.source.sin6_addr, sizeof route.by_port.source);
    route.by_port.port = flow.destination.sin6_port;
    route.by_port.source_port = flow.source.sin6_port;
    route.by_port.traffic_class =
        static_cast<std::uint8_t>(departure.v4 ? libc::read_option(fd, IPPROTO_IP, IP_TOS, 0)
                                               : libc::read_option(fd, IPPROTO_IPV6, IPV6_TCLASS, 0));
    route.by_port.hop_limit = departure.hops;
    return true;
}

ssize_t put_to_port(const State &u, int fd, Route &route, const Message &m)
{
    if (route.tap == nullptr || (route.after_kernel && !kernel_has_sent_all(fd)))
        return kByKernel;
    const ssize_t n = route.port->udp->send(route.tap, m.parts, m.count, &route.by_port);
    if (n >= 0) [[likely]] {
        route.after_kernel = false;
        route.after_port = true;
        return n;
    }
    if (n != -FI_EAGAIN && n != -FI_EMSGSIZE)
        try_next_port(u, route);
    return kByKernel;
}

void go_by_kernel(Route &route)
{
    if (route.after_port && route.tap != nullptr)
        static_cast<void>(route.port->udp->drain(route.tap));
    route.after_port = false;
    route.after_kernel = true;
}

void release_senders(State &u)
{
    for (std::size_t i = 0; i < kMostDevices; ++i)
        if ((u.sends_by & 1U << i) != 0)
            --remote_device_at(i).users;
    u.sends_by = 0;
}

} // namespace vma::sock::udp
