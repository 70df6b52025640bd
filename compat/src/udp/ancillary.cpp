// SPDX-License-Identifier: BSD-2-Clause
// The sender's address and the ancillary data of a datagram that came by the endpoint, in the kernel's order:
// socket(7), then ip(7) or ipv6(7).
#include <sys/time.h>
#include <time.h>

#include <linux/errqueue.h> // needs timespec

#include <algorithm>

#include "compat/src/base/control_writer.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

timespec to_timespec(std::int64_t ns)
{
    return {static_cast<time_t>(ns / kNanoseconds), static_cast<long>(ns % kNanoseconds)};
}

void put_time(ControlWriter &out, const Wanted &wanted, const About &about)
{
    const timespec stamp = to_timespec(about.arrived_ns);
    if (wanted.timestamp_ns && about.arrived_ns != 0)
        out.put(SOL_SOCKET, SCM_TIMESTAMPNS, stamp);
    else if (wanted.timestamp && about.arrived_ns != 0)
        out.put(SOL_SOCKET, SCM_TIMESTAMP, timeval{stamp.tv_sec, stamp.tv_nsec / 1000});
    const bool software = wanted.timestamping && about.arrived_ns != 0;
    const bool hardware = wanted.hardware && about.hardware_ns != 0;
    if (software || hardware) // each or both; zero is none, as the kernel has it
        out.put(SOL_SOCKET, SCM_TIMESTAMPING,
                scm_timestamping{
                    {software ? stamp : timespec{}, {}, hardware ? to_timespec(about.hardware_ns) : timespec{}}});
}

in_addr to_v4(const in6_addr &mapped)
{
    in_addr out;
    std::memcpy(&out, &mapped.s6_addr[12], sizeof out);
    return out;
}

void put_ipv4(ControlWriter &out, const Wanted &wanted, const About &about)
{
    if (wanted.packet_info) {
        in_pktinfo info = {};
        info.ipi_ifindex = static_cast<int>(about.interface);
        info.ipi_addr = to_v4(about.destination);
        info.ipi_spec_dst = IN_MULTICAST(ntohl(info.ipi_addr.s_addr)) ? to_v4(about.source) : info.ipi_addr;
        out.put(IPPROTO_IP, IP_PKTINFO, info);
    }
    if (wanted.ttl)
        out.put(IPPROTO_IP, IP_TTL, int{about.ttl});
    if (wanted.tos)
        out.put(IPPROTO_IP, IP_TOS, about.tos);
}

void put_packet_info6(ControlWriter &out, const About &about)
{
    in6_pktinfo info = {};
    info.ipi6_addr = about.destination;
    info.ipi6_ifindex = about.interface;
    out.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
}

void put_ipv6(ControlWriter &out, const Wanted &wanted, const About &about)
{
    if (wanted.hop_limit6)
        out.put(IPPROTO_IPV6, IPV6_HOPLIMIT, int{about.ttl});
    if (wanted.traffic_class6)
        out.put(IPPROTO_IPV6, IPV6_TCLASS, int{about.tos});
}

void put_name(const State &u, const About &about, msghdr *msg)
{
    if (u.family == AF_INET) {
        sockaddr_in name = {};
        name.sin_family = AF_INET;
        name.sin_port = about.source_port;
        name.sin_addr = to_v4(about.source);
        std::memcpy(msg->msg_name, &name, std::min<std::size_t>(sizeof name, msg->msg_namelen));
        msg->msg_namelen = sizeof name;
        return;
    }
    sockaddr_in6 name = {};
    name.sin6_family = AF_INET6;
    name.sin6_port = about.source_port;
    name.sin6_addr = about.source;
    std::memcpy(msg->msg_name, &name, std::min<std::size_t>(sizeof name, msg->msg_namelen));
    msg->msg_namelen = sizeof name;
}

} // namespace

void describe(const Socket &s, const About &about, msghdr *msg)
{
    const State &u = state_of(s);
    if (msg->msg_name != nullptr)
        put_name(u, about, msg);
    if (!u.wanted.any || (msg->msg_control != nullptr && !libc::can_update(msg->msg_control, msg->msg_controllen))) {
        msg->msg_controllen = 0;
        return;
    }
    ControlWriter out(msg);
    if (about.arrived_ns != 0 || about.hardware_ns != 0)
        put_time(out, u.wanted, about);
    if (const std::uint32_t dropped = u.losses.all(); u.wanted.overflows && dropped != 0)
        out.put(SOL_SOCKET, SO_RXQ_OVFL, dropped);
    if (u.family == AF_INET6 && u.wanted.packet_info6)
        put_packet_info6(out, about);
    if (IN6_IS_ADDR_V4MAPPED(&about.destination))
        put_ipv4(out, u.wanted, about);
    else
        put_ipv6(out, u.wanted, about);
}

namespace {

// The kernel's control message of its losses; nullptr: it has put none, as long as there is none, or found no room.
std::uint8_t *find_overflows(msghdr *msg, std::uint32_t &count)
{
    for (cmsghdr *c = CMSG_FIRSTHDR(msg); c != nullptr; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_RXQ_OVFL || c->cmsg_len < CMSG_LEN(sizeof count))
            continue;
        std::memcpy(&count, CMSG_DATA(c), sizeof count);
        return CMSG_DATA(c);
    }
    return nullptr;
}

void put_behind(msghdr *msg, std::size_t capacity, std::uint32_t count)
{
    if (count == 0 || msg->msg_control == nullptr) // the kernel, too, is silent as long as nothing is lost
        return;
    msghdr rest = *msg;
    rest.msg_control = static_cast<std::uint8_t *>(msg->msg_control) + msg->msg_controllen;
    rest.msg_controllen = capacity - msg->msg_controllen;
    {
        ControlWriter out(&rest);
        out.put(SOL_SOCKET, SO_RXQ_OVFL, count);
    }
    msg->msg_controllen += rest.msg_controllen;
    msg->msg_flags = rest.msg_flags;
}

} // namespace

void learn_overflows(Socket &s, msghdr *msg)
{
    if (std::uint32_t kernels = 0; find_overflows(msg, kernels) != nullptr)
        state_of(s).losses.learn(kernels);
}

void add_overflows(Socket &s, msghdr *msg, std::size_t capacity)
{
    std::uint32_t kernels = 0;
    std::uint8_t *const told = find_overflows(msg, kernels);
    const std::uint32_t all = state_of(s).losses.beside(kernels);
    if (told != nullptr)
        std::memcpy(told, &all, sizeof all);
    else
        put_behind(msg, capacity, all);
}

} // namespace vma::sock::udp
