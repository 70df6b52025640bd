// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/udp/rules.hpp"
#include "compat/src/base/addresses.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include "compat/src/config/log.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/rules/rules.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::uint32_t kAllInterfaces = 0;

bool is_kernels(const in6_addr &address, in_port_t port)
{
    sockaddr_in6 local = {};
    local.sin6_family = AF_INET6;
    local.sin6_addr = address;
    local.sin6_port = port;
    return rules::says_kernel(rules::Role::kUdpReceiver, local);
}

bool one_is_kernels(const ifaddrs *list, std::uint32_t interface, in_port_t port)
{
    for (const ifaddrs *one = list; one != nullptr; one = one->ifa_next) {
        sockaddr_in6 address = {};
        if (one->ifa_addr == nullptr || !to_v6(one->ifa_addr, address) ||
            (interface != kAllInterfaces && ::if_nametoindex(one->ifa_name) != interface))
            continue;
        if (is_kernels(address.sin6_addr, port))
            return true;
    }
    return false;
}

bool may_come(int fd, std::uint32_t interface)
{
    sockaddr_in6 local = {};
    if (!rules::exist() || !read_address(fd, Side::kLocal, local))
        return true;
    if (!is_any(local.sin6_addr))
        return !is_kernels(local.sin6_addr, local.sin6_port);
    ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0)
        return false;
    const bool kernels = one_is_kernels(list, interface, local.sin6_port);
    ::freeifaddrs(list);
    return !kernels;
}

} // namespace

bool may_come_from_here(const State &u, int fd)
{
    if (!rules::exist())
        return true;
    for (std::uint32_t i = 0; u.groups && i < u.groups->count; ++i)
        if (group_is_kernels(u.groups->list[i], fd))
            return false;
    return may_come(fd, kAllInterfaces);
}

bool may_come_by_port(int fd, std::uint32_t interface)
{
    return may_come(fd, interface);
}

bool group_is_kernels(const in6_addr &group, int fd)
{
    sockaddr_in6 local = {};
    return rules::exist() && read_address(fd, Side::kLocal, local) && is_kernels(group, local.sin6_port);
}

bool destination_is_kernels(int fd, const Destination &to)
{
    sockaddr_in6 remote = {};
    return rules::exist() && read_destination(fd, to, remote) && rules::says_kernel(rules::Role::kUdpSender, remote);
}

void follow_connection_rule(Socket &s, int fd)
{
    sockaddr_in6 remote = {};
    sockaddr_in6 local = {};
    if (!rules::exist() || s.mode.load(std::memory_order_acquire) == Mode::kKernel ||
        !read_address(fd, Side::kPeer, remote) || !read_address(fd, Side::kLocal, local) ||
        !rules::says_kernel(rules::Role::kUdpConnect, remote, &local))
        return;
    char name[kNameMax];
    VMA_LOG(kDetails, "%s: not accelerated: %s", name_of(fd, name), rules::kReason);
    s.told = true;
    pin_to_kernel(s, rules::kReason);
}

void follow_group_rule(Socket &s, int fd)
{
    if (!rules::exist() || !state_of(s).named.load(std::memory_order_relaxed))
        return;
    const LockGuard offload(g_offload.lock);
    if (!may_come_from_here(state_of(s), fd))
        udp::fall_back(s, true);
}

} // namespace vma::sock::udp
