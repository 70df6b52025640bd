// SPDX-License-Identifier: BSD-2-Clause
// UDP sockets on Ethernet ports: what comes by the port goes into the socket's queue beside what local senders put there, and
// what it sends to other hosts leaves by the port. The kernel's socket brings the rest, as for every dual socket.
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/device.hpp"
#include "compat/src/socket/engine.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/ports.hpp"
#include "compat/src/socket/udp/diag.hpp"
#include "compat/src/socket/udp/state.hpp"

namespace vma::sock::udp {

namespace {

bool knows_device_times(Device &d)
{
    return (d.udp->stamps(d.domain) & FI_VMA_STAMPS_HARDWARE) != 0;
}

// Poll lock held, as by whoever reads the port's queue.
void take_from_port(void *context, const fi_vma_datagram *datagram)
{
    Socket &s = *static_cast<Socket *>(context);
    About about = {};
    memcpy(&about.source, datagram->source, sizeof about.source);
    memcpy(&about.destination, datagram->target, sizeof about.destination);
    about.source_port = datagram->source_port;
    about.tos = datagram->traffic_class;
    about.ttl = datagram->hop_limit;
    about.interface = datagram->interface;
    about.hardware_ns = datagram->hardware_ns;
    if (datagram->arrived_ns != 0 && wants_time(state_of(s).wanted))
        about.arrived_ns = time_of_day(datagram->arrived_ns);
    take_foreign(s, about, {const_cast<void *>(datagram->payload), datagram->length});
}

// A socket that shares its port gets what the kernel decides; with SO_REUSEADDR alone that is the one that was bound last.
bool is_the_only_one(Socket &s, int fd)
{
    State &u = state_of(s);
    if (is_on(fd, SOL_SOCKET, SO_REUSEPORT))
        return false;
    if (!is_on(fd, SOL_SOCKET, SO_REUSEADDR))
        return true;
    Flow flow = {};
    Identity who;
    if (!read_address(fd, Side::kLocal, flow.destination) || (u.identity.inode == 0 && !identify(fd, u.identity)))
        return false;
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    if (is_group_address(flow.destination.sin6_addr))
        return true; // the group's members are looked at later
    if (is_any(flow.destination.sin6_addr))
        flow.destination.sin6_addr = v4 ? mapped({htonl(INADDR_LOOPBACK)}) : in6addr_loopback;
    flow.source = flow.destination;
    return find_receiver(fd, flow, who) == Answer::kFound && who == u.identity;
}

bool open_on(Socket &s, int fd, Device &d)
{
    State &u = state_of(s);
    const LockGuard tx(s.tx_lock);
    const LockGuard rx(s.rx_lock);
    engine_exclude_polling(true);
    const int result = d.udp->open(d.domain, fd, take_from_port, &s, &u.port);
    if (result == 0) {
        u.kernel_first.store(true, std::memory_order_relaxed);
        sockaddr_in6 local = {};
        u.port_number = read_address(fd, Side::kLocal, local) ? local.sin6_port : 0;
        u.port_device = &d;
        ++d.users;
    } else {
        u.port = nullptr;
    }
    engine_exclude_polling(false);
    char name[kNameMax];
    if (result == 0)
        VMA_LOG(kDebug, "%s: accelerated: port %s", name_of(fd, name), d.name);
    else
        VMA_LOG(kDebug, "%s: port %s does not take it: %s", name_of(fd, name), d.name, strerror(-result));
    return result == 0;
}

} // namespace

bool may_attach_port(const Socket &s)
{
    return ports_are_named() && !state_of(s).port_tried.load(std::memory_order_relaxed) &&
           ports_state() != PortsState::kAsked;
}

bool find_ports(Socket &s)
{
    if (!may_attach_port(s) || !engine_start())
        return false;
    if (ports_state() == PortsState::kTried)
        return true;
    ask_for_ports();
    return false;
}

void attach_port(Socket &s, int fd)
{
    State &u = state_of(s);
    u.port_tried.store(true, std::memory_order_relaxed);
    if (!is_the_only_one(s, fd))
        return;
    each_remote_device([&](Device &d) {
        if (d.udp == nullptr || u.port != nullptr || d.failed)
            return;
        char name[kNameMax];
        if (u.wanted.hardware && !knows_device_times(d))
            VMA_LOG(kDebug,
                    "%s: port %s does not take it: it wants the device's time stamps (SOF_TIMESTAMPING_RAW_HARDWARE)",
                    name_of(fd, name), d.name);
        else
            open_on(s, fd, d);
    });
}

bool port_lacks_stamps(const Socket &s)
{
    const LockGuard guard(g_lift_lock);
    const State &u = state_of(s);
    return u.wanted.hardware && u.port_device != nullptr && !knows_device_times(*u.port_device);
}

void detach_port(State &u)
{
    if (u.port == nullptr)
        return;
    leave_port_groups(u.port_number, u.port_device); // who else is in them gets them back at the next look
    u.port_device->udp->close(u.port);
    --u.port_device->users;
    u.port = nullptr;
    u.port_device = nullptr;
}

void point_to_port(State &u, int fd, Route &route)
{
    sockaddr_in6 name = {};
    sockaddr_in6 way = {};
    if (u.port == nullptr || !read_destination(fd, route.to, name) || name.sin6_scope_id != 0 ||
        !find_source(name, way) || is_loopback(way.sin6_addr) || IN6_ARE_ADDR_EQUAL(&way.sin6_addr, &name.sin6_addr))
        return;
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&name.sin6_addr);
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    memcpy(route.by_port.address, &name.sin6_addr, sizeof route.by_port.address);
    route.by_port.port = name.sin6_port;
    route.by_port.traffic_class = static_cast<std::uint8_t>(read_option(fd, level, v6 ? IPV6_TCLASS : IP_TOS, 0));
    route.by_port.hop_limit = static_cast<std::uint8_t>(read_option(fd, level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, 64));
    route.way = Way::kPort;
}

ssize_t put_to_port(const State &u, const Route &route, const Message &m)
{
    if (u.port == nullptr)
        return kByKernel;
    const ssize_t n = u.port_device->udp->send(u.port, m.parts, m.count, &route.by_port);
    return n >= 0 ? n : kByKernel;
}

} // namespace vma::sock::udp
