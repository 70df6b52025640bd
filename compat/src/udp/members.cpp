// SPDX-License-Identifier: BSD-2-Clause
// Whether a socket is to get a datagram that was sent to a group: the kernel knows what it has joined, where, and which
// sources it wants. Its answers are remembered until the socket's options change.
#include <netinet/in.h>
#include <string.h>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/lock.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::size_t kMostSources = 64;

// Of the kernel's answer: too long for a stack of the program's. A poll lock is held, which a fork waits for.
struct Answer {
    Mutex lock;
    alignas(group_filter) char room[GROUP_FILTER_SIZE(kMostSources)];
};
[[VMA_TABLE]] constinit Answer g_answer = {};

bool takes_all(int fd, bool v4)
{
    // 1 of a kernel that doesn't know the option
    return (v4 ? libc::read_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 1)
               : libc::read_option(fd, IPPROTO_IPV6, kIpv6MulticastAll, 1)) != 0;
}

void put_address(sockaddr_storage &out, const in6_addr &address, bool v4)
{
    out = {};
    if (v4) {
        sockaddr_in name = {};
        name.sin_family = AF_INET;
        memcpy(&name.sin_addr, &address.s6_addr[12], sizeof name.sin_addr);
        memcpy(&out, &name, sizeof name);
    } else {
        sockaddr_in6 name = {};
        name.sin6_family = AF_INET6;
        name.sin6_addr = address;
        memcpy(&out, &name, sizeof name);
    }
}

bool ask(int fd, const About &about)
{
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&about.destination);
    const LockGuard guard(g_answer.lock);
    auto *const filter = reinterpret_cast<group_filter *>(g_answer.room);
    socklen_t size = sizeof g_answer.room;
    filter->gf_interface = about.interface;
    filter->gf_numsrc = kMostSources;
    put_address(filter->gf_group, about.destination, v4);
    if (libc::real.getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_MSFILTER, filter, &size) != 0)
        return takes_all(fd, v4);
    bool listed = false;
    for (std::uint32_t i = 0; i < filter->gf_numsrc && i < kMostSources; ++i) {
        sockaddr_in6 source = {};
        listed |= to_v6(&filter->gf_slist[i], source) && IN6_ARE_ADDR_EQUAL(&source.sin6_addr, &about.source);
    }
    return listed == (filter->gf_fmode == MCAST_INCLUDE);
}

} // namespace

bool is_member(Socket &s, const About &about)
{
    State &u = state_of(s);
    for (const Verdict &known : u.verdicts)
        if (known.interface == about.interface && IN6_ARE_ADDR_EQUAL(&known.group, &about.destination) &&
            IN6_ARE_ADDR_EQUAL(&known.source, &about.source))
            return known.takes;
    Verdict &next = u.verdicts[u.next_verdict++ % std::size(u.verdicts)];
    next = {about.destination, about.source, about.interface, ask(s.any_fd.load(std::memory_order_relaxed), about)};
    return next.takes;
}

} // namespace vma::sock::udp
