// SPDX-License-Identifier: BSD-2-Clause
// UDP sockets on Ethernet ports: what comes by the port goes into the socket's queue beside what local senders put
// there. The kernel's socket brings the rest, as for every offloaded socket. A socket that shares its port with others
// gets groups alone by it.
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include <algorithm>

#include "compat/src/base/addresses.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/udp/rules.hpp"

namespace vma::sock::udp {

namespace {

// Poll lock held, as by whoever reads the port's queue.
int take_from_port(void *context, const fi_vma_datagram *datagram)
{
    Socket &s = *static_cast<Socket *>(context);
    About about = {};
    memcpy(&about.source, datagram->source, sizeof about.source);
    memcpy(&about.destination, datagram->target, sizeof about.destination);
    about.source_port = datagram->source_port;
    about.tos = datagram->traffic_class;
    about.ttl = datagram->hop_limit;
    about.interface = datagram->interface & kMostInterface;
    if (datagram->arrived_ns != 0 && wants_time(state_of(s).wanted))
        about.arrived_ns = time_of_day(datagram->arrived_ns);
    Loan loan = {datagram->lender, static_cast<const std::uint8_t *>(datagram->payload),
                 static_cast<std::uint32_t>(datagram->length), 0};
    const std::int64_t stamp = datagram->hardware_ns;
    take_foreign(s, about, loan, stamp != 0 ? time_of_device(datagram->interface, stamp) : 0);
    return datagram->lender != nullptr && loan.lender == nullptr ? FI_VMA_KEPT : 0;
}

// Who gets what is sent to this host is the kernel's to decide where sockets share a port; with SO_REUSEADDR alone it
// is the one that was bound last.
bool is_the_only_one(Socket &s, int fd, Flow flow)
{
    State &u = state_of(s);
    Identity who;
    if (is_on(fd, SOL_SOCKET, SO_REUSEPORT))
        return false;
    if (!is_on(fd, SOL_SOCKET, SO_REUSEADDR))
        return true;
    if (u.identity.inode == 0 && !identify(fd, u.identity))
        return false;
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    if (is_any(flow.destination.sin6_addr))
        flow.destination.sin6_addr = v4 ? mapped({htonl(INADDR_LOOPBACK)}) : in6addr_loopback;
    flow.source = flow.destination;
    return find_receiver(fd, flow, who) == Answer::kFound && who == u.identity;
}

enum class Share { kNothing, kGroups, kAll };

// What of a socket's datagrams a port may bring it.
Share share_of(Socket &s, int fd)
{
    const State &u = state_of(s);
    Flow flow = {};
    if (!read_address(fd, Side::kLocal, flow.destination))
        return Share::kNothing;
    const in6_addr &local = flow.destination.sin6_addr;
    if (is_group_address(local) || is_the_only_one(s, fd, flow))
        return Share::kAll; // the group's members are looked at later
    return is_any(local) && u.groups && u.groups->count != 0 ? Share::kGroups : Share::kNothing;
}

// Groups are asked about one by one (port_groups.cpp).
Share share_by_rules(const Socket &s, int fd, const Device &d, Share share)
{
    const State &u = state_of(s);
    if (may_come_by_port(fd, d.interface))
        return share;
    return u.groups && u.groups->count != 0 ? Share::kGroups : Share::kNothing;
}

int open_on(Socket &s, int fd, Device &d, bool groups_only)
{
    State &u = state_of(s);
    const LockGuard tx(s.tx_lock);
    const LockGuard rx(s.rx_lock);
    engine_exclude_polling(true);
    Attachment made = {nullptr, &d, groups_only};
    const int result = d.udp->open(d.domain, fd, groups_only ? FI_VMA_UDP_GROUPS : 0, take_from_port, &s, &made.tap);
    if (result == 0) {
        u.kernel_first.store(true, std::memory_order_relaxed);
        sockaddr_in6 local = {};
        u.port_number = read_address(fd, Side::kLocal, local) ? local.sin6_port : 0;
        u.ports[u.port_count] = made;
        u.port_count += 1;
        ++d.users;
        s.told = true;
    }
    engine_exclude_polling(false);
    char name[kNameMax];
    if (result == 0)
        VMA_LOG(kDetails, "%s: accelerated: port %s%s", name_of(fd, name), d.name, groups_only ? ", groups alone" : "");
    else
        VMA_LOG(kDebug, "%s: port %s does not take it: %s", name_of(fd, name), d.name, strerror(-result));
    return result;
}

// Of this process another one may have the port's flow.
void attach_to(Socket &s, int fd, Device &d, Share share)
{
    if (open_on(s, fd, d, share == Share::kGroups) == -FI_EADDRINUSE && share == Share::kAll && state_of(s).groups)
        open_on(s, fd, d, true);
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

// A socket of any address hears all ports; another one those that have its address.
void attach_ports(Socket &s, int fd)
{
    state_of(s).port_tried.store(true, std::memory_order_relaxed);
    const Share share = share_of(s, fd);
    if (is_on(fd, SOL_SOCKET, SO_REUSEADDR))
        state_of(s).may_share.store(true, std::memory_order_relaxed);
    if (share == Share::kNothing || is_on_port(state_of(s)))
        return;
    if (state_of(s).wanted.hardware)
        follow_device_times(); // perhaps nobody has for long
    each_remote_device([&](Device &d) {
        if (d.udp == nullptr || d.failed || d.network != network_of(fd))
            return;
        char name[kNameMax];
        const Share ruled = share_by_rules(s, fd, d, share);
        if (ruled == Share::kNothing)
            VMA_LOG(kDebug, "%s: port %s does not take it: %s", name_of(fd, name), d.name, rules::kReason);
        else if (state_of(s).wanted.hardware && !tells_device_times(d))
            VMA_LOG(kDebug,
                    "%s: port %s does not take it: it wants the device's time stamps (SOF_TIMESTAMPING_RAW_HARDWARE)",
                    name_of(fd, name), d.name);
        else
            attach_to(s, fd, d, ruled);
    });
}

bool ports_lack_stamps(const Socket &s)
{
    const LockGuard guard(g_offload.lock);
    const State &u = state_of(s);
    return u.wanted.hardware && std::any_of(u.ports, u.ports + u.port_count,
                                            [](const Attachment &one) { return !tells_device_times(*one.device); });
}

void detach_ports(State &u)
{
    for (std::uint32_t i = 0; i < u.port_count; ++i) {
        const Attachment &here = u.ports[i];
        u.routes.each([&here](Route &route) {
            if (route.tap != here.tap)
                return;
            go_by_kernel(route);
            route.way = Way::kUnknown;
            route.tap = nullptr;
        });
        leave_port_groups(u.port_number, here.device); // who else is in them gets them back at the next look
        here.device->udp->close(here.tap);
        --here.device->users;
    }
    u.port_count = 0;
}

bool is_still_alone(Socket &s, int fd)
{
    const State &u = state_of(s);
    const Attachment *const end = u.ports + u.port_count;
    if (std::all_of(u.ports, end, [](const Attachment &one) { return one.groups_only; }))
        return true;
    Flow flow = {};
    return !read_address(fd, Side::kLocal, flow.destination) || is_group_address(flow.destination.sin6_addr) ||
           u.connected || is_the_only_one(s, fd, flow);
}

} // namespace vma::sock::udp
