// SPDX-License-Identifier: BSD-2-Clause
// As udp_sendmsg() and udpv6_sendmsg() of the kernel look for it.
#include "compat/src/udp/departure.hpp"
#include "compat/src/base/addresses.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock::udp {

namespace {

constexpr int kBindToInterface = 62; // SO_BINDTOIFINDEX
constexpr unsigned kNodeLocal = 1;   // scopes of IPv6's groups
constexpr unsigned kLinkLocal = 2;

unsigned scope_of(const in6_addr &group)
{
    return group.s6_addr[1] & 0xf;
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

// 0: the routes say. A connected socket of IPv6 has been bound to that of its options then.
std::uint32_t chosen_interface_of(const State &u, int fd, const sockaddr_in6 &group, bool v4)
{
    if (!v4 && group.sin6_scope_id != 0 && scope_of(group.sin6_addr) <= kLinkLocal)
        return group.sin6_scope_id;
    const int bound = libc::read_option(fd, SOL_SOCKET, kBindToInterface, 0);
    return bound != 0 ? static_cast<std::uint32_t>(bound) : u.group_interface[v4 ? 0 : 1];
}

} // namespace

bool find_departure(const State &u, int fd, const Destination &to, Departure &out)
{
    sockaddr_in6 &group = out.flow.destination;
    sockaddr_in6 &source = out.flow.source;
    if (!read_destination(fd, to, group) || !read_address(fd, Side::kLocal, source) || source.sin6_port == 0)
        return false;
    out.v4 = IN6_IS_ADDR_V4MAPPED(&group.sin6_addr);
    out.loops = u.loops[place_of(u)];
    out.hops = static_cast<std::uint8_t>(out.v4 ? libc::read_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, 1)
                                                : libc::read_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1));
    std::uint32_t interface = chosen_interface_of(u, fd, group, out.v4);
    if (is_any(source.sin6_addr) || is_group_address(source.sin6_addr)) { // bound to a group it sends from no address
        if (!find_group_route(group.sin6_addr, in6addr_any, interface, out.way))
            return false;
        source.sin6_addr = group_source(fd, out.v4, out.way.source);
        interface = out.way.interface;
    }
    return find_group_route(group.sin6_addr, source.sin6_addr, interface, out.way);
}

bool is_kernel_only_departure(const Departure &d)
{
    return !d.way.is_loopback && d.hops != 0 && !is_any(d.flow.source.sin6_addr) &&
           (d.v4 || scope_of(d.flow.destination.sin6_addr) > kNodeLocal) &&
           IN6_IS_ADDR_V4MAPPED(&d.flow.source.sin6_addr) == d.v4 && !is_multicast_router(d.way.interface, d.v4);
}

} // namespace vma::sock::udp
