// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/base/addresses.hpp"

#include <ifaddrs.h>
#include <linux/in_route.h>
#include <linux/netconf.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::size_t kAnswerRoom = 2048;

template <typename Message> struct Question {
    nlmsghdr header;
    Message message;
    std::uint8_t attributes[64];
};

template <typename Message> void add(Question<Message> &q, unsigned short type, const void *bytes, std::size_t length)
{
    auto *const attribute =
        reinterpret_cast<rtattr *>(reinterpret_cast<std::uint8_t *>(&q) + NLMSG_ALIGN(q.header.nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = static_cast<unsigned short>(RTA_LENGTH(length));
    memcpy(RTA_DATA(attribute), bytes, length);
    q.header.nlmsg_len = NLMSG_ALIGN(q.header.nlmsg_len) + static_cast<std::uint32_t>(RTA_ALIGN(attribute->rta_len));
}

Question<rtmsg> ask_for(const in6_addr &group, const in6_addr &from, std::uint32_t through)
{
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&group);
    Question<rtmsg> q = {};
    q.header.nlmsg_len = NLMSG_LENGTH(sizeof q.message);
    q.header.nlmsg_type = RTM_GETROUTE;
    q.header.nlmsg_flags = NLM_F_REQUEST;
    q.message.rtm_family = v4 ? AF_INET : AF_INET6;
    q.message.rtm_dst_len = v4 ? 32 : 128;
    add(q, RTA_DST, &group.s6_addr[v4 ? 12 : 0], v4 ? sizeof(in_addr) : sizeof(in6_addr));
    if (v4 && !is_any(from)) {
        q.message.rtm_src_len = 32;
        add(q, RTA_SRC, &from.s6_addr[12], sizeof(in_addr));
    }
    if (through != 0)
        add(q, RTA_OIF, &through, sizeof through);
    return q;
}

// The length of the kernel's answer, 0: none.
template <std::size_t Room> std::size_t ask(const nlmsghdr &question, char (&answer)[Room])
{
    const libc::NotCancelled whole; // the offload lock may be held
    const int fd = libc::real.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return 0;
    ssize_t n = libc::uncancelled::send(fd, &question, question.nlmsg_len, 0);
    if (n > 0)
        n = libc::real.syscall(SYS_recvfrom, fd, answer, Room, 0, nullptr, nullptr);
    libc::real.close(fd);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

// Of one message, whose own part ends at `at`. False: it is another.
template <typename Take>
bool each_attribute(const char *answer, std::size_t length, unsigned type, std::size_t at, Take take)
{
    nlmsghdr header;
    if (length < at)
        return false;
    memcpy(&header, answer, sizeof header);
    if (header.nlmsg_type != type || header.nlmsg_len > length)
        return false;
    while (at + sizeof(rtattr) <= header.nlmsg_len) {
        rtattr attribute;
        memcpy(&attribute, answer + at, sizeof attribute);
        if (attribute.rta_len < RTA_LENGTH(0) || at + attribute.rta_len > header.nlmsg_len)
            break;
        take(attribute.rta_type, answer + at + RTA_LENGTH(0), attribute.rta_len - RTA_LENGTH(0));
        at += RTA_ALIGN(attribute.rta_len);
    }
    return true;
}

void read_attribute(unsigned type, const char *value, std::size_t size, bool v4, GroupRoute &out)
{
    if (type == RTA_OIF && size >= sizeof out.interface)
        memcpy(&out.interface, value, sizeof out.interface);
    if (type == RTA_PREFSRC && v4 && size >= sizeof(in_addr)) {
        in_addr source;
        memcpy(&source, value, sizeof source);
        out.source = mapped(source);
    } else if (type == RTA_PREFSRC && size >= sizeof(in6_addr)) {
        memcpy(&out.source, value, sizeof out.source);
    }
}

bool read_answer(const char *answer, std::size_t length, GroupRoute &out)
{
    rtmsg message;
    if (length < NLMSG_LENGTH(sizeof message))
        return false;
    memcpy(&message, answer + NLMSG_HDRLEN, sizeof message);
    const bool v4 = message.rtm_family == AF_INET;
    out = {};
    out.has_members = !v4 || (message.rtm_flags & RTCF_LOCAL) != 0;
    if (!each_attribute(
            answer, length, RTM_NEWROUTE, NLMSG_LENGTH(sizeof message),
            [&](unsigned type, const char *value, std::size_t size) { read_attribute(type, value, size, v4, out); }))
        return false;
    out.is_loopback = out.interface == kLoopbackInterface;
    return out.interface != 0;
}

std::uint32_t interface_of_address(const in_addr &address)
{
    ifaddrs *all = nullptr;
    std::uint32_t found = 0;
    if (address.s_addr == INADDR_ANY || ::getifaddrs(&all) != 0)
        return 0;
    for (const ifaddrs *one = all; one != nullptr && found == 0; one = one->ifa_next) {
        sockaddr_in name;
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&name, one->ifa_addr, sizeof name);
        if (name.sin_addr.s_addr == address.s_addr)
            found = ::if_nametoindex(one->ifa_name);
    }
    ::freeifaddrs(all);
    return found;
}

} // namespace

bool find_group_route(const in6_addr &group, const in6_addr &from, std::uint32_t through, GroupRoute &out)
{
    alignas(nlmsghdr) char answer[kAnswerRoom];
    const Question<rtmsg> q = ask_for(group, from, through);
    return read_answer(answer, ask(q.header, answer), out);
}

bool is_multicast_router(std::uint32_t interface, bool v4)
{
    alignas(nlmsghdr) char answer[kAnswerRoom];
    Question<netconfmsg> q = {};
    q.header.nlmsg_len = NLMSG_LENGTH(sizeof q.message);
    q.header.nlmsg_type = RTM_GETNETCONF;
    q.header.nlmsg_flags = NLM_F_REQUEST;
    q.message.ncm_family = v4 ? AF_INET : AF_INET6;
    const auto index = static_cast<std::int32_t>(interface);
    add(q, NETCONFA_IFINDEX, &index, sizeof index);
    const std::size_t length = ask(q.header, answer);
    std::int32_t forwards = 0; // of IPv6 a kernel without CONFIG_IPV6_MROUTE says nothing, as it routes none
    const bool told = each_attribute(answer, length, RTM_NEWNETCONF, NLMSG_LENGTH(NLMSG_ALIGN(sizeof q.message)),
                                     [&forwards](unsigned type, const char *value, std::size_t size) {
                                         if (type == NETCONFA_MC_FORWARDING && size >= sizeof forwards)
                                             memcpy(&forwards, value, sizeof forwards);
                                     });
    return !told || forwards != 0;
}

std::uint32_t chosen_interface(int level, const void *value, socklen_t len)
{
    int index = 0;
    if (level == IPPROTO_IPV6) {
        if (len >= sizeof index)
            memcpy(&index, value, sizeof index);
        return static_cast<std::uint32_t>(index);
    }
    ip_mreqn request = {};
    if (len >= sizeof request)
        memcpy(&request, value, sizeof request);
    else if (len >= sizeof(ip_mreq))
        memcpy(&request, value, sizeof(ip_mreq)); // the same places
    else if (len >= sizeof request.imr_address)
        memcpy(&request.imr_address, value, sizeof request.imr_address);
    return request.imr_ifindex != 0 ? static_cast<std::uint32_t>(request.imr_ifindex)
                                    : interface_of_address(request.imr_address);
}

} // namespace vma::sock::udp
