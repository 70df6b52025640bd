// SPDX-License-Identifier: BSD-2-Clause
// get_socket_network_header(): what the frames of a connected socket begin with, where they leave by an Ethernet port.
// Elsewhere there are no headers: ENOTCONN, as libvma says of a socket that it has no offloaded way for.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>

#include <rdma/fi_ext_vma.h>

#include <algorithm>

#include "compat/src/base/addresses.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::extra {

namespace {

constexpr std::size_t kMost = FI_VMA_HEADERS_MOST + sizeof(tcphdr);

struct Way {
    sock::Device *port = nullptr; // nullptr: none
    fi_vma_udp_to to = {};
};

// The kernel's socket has them too: it is bound, and connected. False: it is not.
bool read_ends(int fd, fi_vma_udp_to &to)
{
    sockaddr_in6 ends[2] = {};
    for (sockaddr_in6 &end : ends) {
        socklen_t size = sizeof end;
        auto *const name = reinterpret_cast<sockaddr *>(&end);
        if ((&end == ends ? libc::real.getsockname(fd, name, &size) : libc::real.getpeername(fd, name, &size)) != 0)
            return false;
        if (end.sin6_family != AF_INET)
            continue;
        sockaddr_in v4 = {};
        memcpy(&v4, &end, sizeof v4);
        end.sin6_addr = sock::mapped(v4.sin_addr);
    }
    memcpy(to.source, &ends[0].sin6_addr, sizeof to.source);
    memcpy(to.address, &ends[1].sin6_addr, sizeof to.address);
    to.source_port = ends[0].sin6_port;
    to.port = ends[1].sin6_port;
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&ends[1].sin6_addr);
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    to.traffic_class = static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_TCLASS : IP_TOS, 0));
    to.hop_limit = static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, 64));
    return true;
}

// tx_lock held.
Way way_of(sock::Socket &s, int fd)
{
    Way way;
    if (!read_ends(fd, way.to))
        return way;
    if (const sock::Stream *const stream = sock::stream_of(s)) {
        way.port = sock::transport(*stream).spans ? nullptr : s.device;
        return way;
    }
    sock::udp::Route *const route = sock::udp::state_of(s).routes.find({});
    if (route == nullptr || route->way != sock::udp::Way::kPort)
        return way;
    const auto ends = way.to;
    way.port = route->port;
    way.to = route->by_port; // with what a group's datagrams have
    memcpy(way.to.source, ends.source, sizeof way.to.source);
    way.to.source_port = ends.source_port;
    return way;
}

// Of a packet without data; what differs from one to the next is 0. Its length.
std::size_t write_transport(bool datagram, const fi_vma_udp_to &to, std::uint8_t *out)
{
    udphdr udp = {};
    tcphdr tcp = {};
    udp.uh_sport = tcp.th_sport = to.source_port;
    udp.uh_dport = tcp.th_dport = to.port;
    udp.uh_ulen = htons(sizeof udp);
    tcp.th_off = sizeof tcp / 4;
    memcpy(out, datagram ? static_cast<const void *>(&udp) : &tcp, datagram ? sizeof udp : sizeof tcp);
    return datagram ? sizeof udp : sizeof tcp;
}

// Its length; 0: it has none.
std::size_t write_header(sock::Socket &s, int fd, std::uint8_t *out)
{
    const bool datagram = sock::protocol(s).messages;
    const sock::LockGuard guard(s.tx_lock); // the port stays open
    const Way way = way_of(s, fd);
    if (way.port == nullptr || way.port->udp == nullptr)
        return 0;
    const std::size_t transport = datagram ? sizeof(udphdr) : sizeof(tcphdr);
    const std::uint8_t protocol = datagram ? IPPROTO_UDP : IPPROTO_TCP;
    const ssize_t n = way.port->udp->headers(way.port->domain, &way.to, protocol, transport, out);
    return n <= 0 ? 0 : static_cast<std::size_t>(n) + write_transport(datagram, way.to, out + n);
}

} // namespace

int get_socket_network_header(int fd, void *header, uint16_t *length)
{
    sock::Socket *const s = sock::lookup(fd);
    if (length == nullptr || s == nullptr)
        return fail(EINVAL);
    std::uint8_t made[kMost];
    const std::size_t bytes = write_header(*s, fd, made);
    if (bytes == 0)
        return fail(ENOTCONN);
    if (header != nullptr && *length < bytes)
        return fail(ENOBUFS);
    *length = static_cast<std::uint16_t>(bytes);
    if (header != nullptr)
        memcpy(header, made, bytes);
    return 0;
}

} // namespace vma::extra
