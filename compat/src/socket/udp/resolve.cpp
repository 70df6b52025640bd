// SPDX-License-Identifier: BSD-2-Clause
// Where a destination is: asked of the kernel, then of the directory. It takes some 15 us, once a destination and whenever a
// name has changed.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fi_domain.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/fork_handlers.hpp"
#include "compat/src/socket/udp/diag.hpp"
#include "compat/src/socket/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::uint32_t kLoopbackInterface = 1;

// By port of the endpoint, 0 not known yet; lift lock. Only what is used takes memory.
constinit std::uint32_t g_endpoints[1 << 16] = {};

bool is_any(const in6_addr &a)
{
    static constexpr in_addr kNone = {};
    const in6_addr any4 = mapped(kNone);
    return IN6_IS_ADDR_UNSPECIFIED(&a) || IN6_ARE_ADDR_EQUAL(&a, &any4);
}

int option(int fd, int level, int name, int otherwise)
{
    int value = 0;
    socklen_t size = sizeof value;
    return libc::real.getsockopt(fd, level, name, &value, &size) == 0 && value >= 0 ? value : otherwise;
}

About describe_flow(int fd, const Flow &flow)
{
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    About about = {};
    about.source = flow.source.sin6_addr;
    about.source_port = flow.source.sin6_port;
    about.destination = flow.destination.sin6_addr;
    about.interface = kLoopbackInterface;
    about.ttl = static_cast<std::uint8_t>(option(fd, level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, 64));
    about.tos = static_cast<std::uint8_t>(option(fd, level, v6 ? IPV6_TCLASS : IP_TOS, 0));
    return about;
}

// lift lock held
fi_addr_t endpoint_of(std::uint16_t port)
{
    if (g_endpoints[port] != 0)
        return g_endpoints[port] - 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_addr_t endpoint = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(engine_datagrams().av, &address, 1, &endpoint, 0, nullptr) != 1)
        return FI_ADDR_NOTAVAIL;
    g_endpoints[port] = static_cast<std::uint32_t>(endpoint) + 1;
    return endpoint;
}

void wish(Route &route, const Identity &who)
{
    if (route.wished == who)
        return;
    if (route.wished.inode != 0)
        withdraw_wish(route.wished);
    route.wished = who;
    route.generation = leave_wish(who);
}

void tell(Socket &s, int fd, const Flow &flow)
{
    char source[kAddressText];
    char destination[kAddressText];
    VMA_LOG(kDebug, "fd=%d UDP %s -> %s: accelerated: device local, after %u sends and receives", fd,
            print_address(flow.source, source), print_address(flow.destination, destination),
            s.operations.load(std::memory_order_relaxed));
}

// lift lock held
void point_to(Socket &s, int fd, Route &route, const Flow &flow, const Identity &who,
              const Target &target)
{
    const bool known = route.data != 0 && cookie_of(route.data) == target.cookie;
    const About about = describe_flow(fd, flow);
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    route.header_length = static_cast<std::uint8_t>(write_header(about, v6, route.header));
    route.data = make_to(target.index, target.cookie) | (v6 ? kToIpv6 : 0);
    route.receiver = who;
    route.wished = {}; // the receiver has taken it away
    if (target.process == ::getpid()) {
        route.way = Way::kOwn;
    } else {
        route.endpoint = endpoint_of(target.port);
        route.way = route.endpoint != FI_ADDR_NOTAVAIL ? Way::kEndpoint : Way::kKernel;
    }
    if (route.way == Way::kKernel)
        return;
    list(s);
    if (!known)
        tell(s, fd, flow);
}

void look_up(Socket &s, int fd, Route &route)
{
    Flow flow = {};
    Identity who;
    Target target = {};
    if (!flow_on_this_host(fd, route.to, flow) || find_receiver(fd, flow, who) != Answer::kFound)
        return;
    if (!find_name(who, target)) {
        wish(route, who);
        return;
    }
    if (engine_start_datagrams())
        point_to(s, fd, route, flow, who, target);
}

} // namespace

void forget_endpoints()
{
    std::memset(g_endpoints, 0, sizeof g_endpoints);
}

bool flow_on_this_host(int fd, const Destination &to, Flow &flow)
{
    sockaddr_in6 way = {};
    if (to.is_connected() ? !read_address(fd, Side::kPeer, flow.destination) : !to_v6(to.words, flow.destination))
        return false;
    if (!read_address(fd, Side::kLocal, flow.source) || flow.source.sin6_port == 0 ||
        flow.destination.sin6_port == 0 || flow.destination.sin6_scope_id != 0 ||
        !find_source(flow.destination, way))
        return false;
    const bool here = IN6_ARE_ADDR_EQUAL(&way.sin6_addr, &flow.destination.sin6_addr) ||
                      (is_loopback(way.sin6_addr) && is_loopback(flow.destination.sin6_addr));
    if (is_any(flow.source.sin6_addr))
        flow.source.sin6_addr = way.sin6_addr;
    return here &&
           IN6_IS_ADDR_V4MAPPED(&flow.source.sin6_addr) == IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
}

int resolve(Socket &s, int fd, Route &route)
{
    route.way = Way::kKernel;
    route.tick = current_tick();
    route.generation = generation();
    if (const int error = option(fd, SOL_SOCKET, SO_ERROR, 0); error != 0)
        return -error; // of an earlier datagram that went by the kernel
    if (!g_lift_lock.try_lock())
        return 0; // at the next tick
    if (g_fork_gate.try_lock()) {
        if (open_offers()) {
            route.generation = generation();
            look_up(s, fd, route);
        }
        g_fork_gate.unlock();
    }
    g_lift_lock.unlock();
    return 0;
}

bool is_stale(const Route &route)
{
    return route.generation != generation() || (route.tick != current_tick() && route.way != Way::kKernel);
}

} // namespace vma::sock::udp
