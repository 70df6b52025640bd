// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/info/host_addresses.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/sysfs.hpp"

namespace vma::ofi {
namespace {

struct HostAddress {
    Address address;
    std::string interface;
    int rank = 0; // of reachable_addresses()
};

std::vector<HostAddress> list_interfaces()
{
    std::vector<HostAddress> found;
    ifaddrs *list = nullptr;
    if (::getifaddrs(&list) != 0)
        return found;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs *item = list; item != nullptr; item = item->ifa_next) {
            if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != family || (item->ifa_flags & IFF_UP) == 0)
                continue;
            Address address;
            if (!address.assign(item->ifa_addr, sizeof(sockaddr_in6)))
                continue;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr))
                continue;
            found.push_back({address, item->ifa_name, 0});
        }
    }
    return found;
}

// The source of what goes to the rest of the world; empty without a route there. Addresses of documentation (RFC 5737,
// RFC 3849): nothing is sent.
Address world_source(int family)
{
    Address world;
    world.sa.sa_family = static_cast<sa_family_t>(family);
    if (::inet_pton(family, family == AF_INET ? "192.0.2.1" : "2001:db8::1",
                    family == AF_INET ? static_cast<void *>(&world.v4.sin_addr) : &world.v6.sin6_addr) != 1)
        return {};
    return route_source(world);
}

// The lower the better: RDMA devices', the default route's, others, loopback's. A bridge of containers, say, has an
// address that each host has.
void rank(std::vector<HostAddress> &list)
{
    const Address world[] = {world_source(AF_INET), world_source(AF_INET6)};
    for (HostAddress &one : list) {
        const Address &source = world[one.address.sa.sa_family == AF_INET6 ? 1 : 0];
        if (one.address.is_loopback())
            one.rank = 3;
        else if (core::rdma_port_of(one.interface))
            one.rank = 0;
        else
            one.rank = !source.empty() && source.same_host(one.address) ? 1 : 2;
    }
}

std::vector<Address> addresses_of(const std::vector<HostAddress> &list)
{
    std::vector<Address> addresses;
    addresses.reserve(list.size());
    for (const HostAddress &one : list)
        addresses.push_back(one.address);
    return addresses;
}

} // namespace

std::vector<Address> host_addresses()
{
    return addresses_of(list_interfaces());
}

std::vector<Address> reachable_addresses(int family)
{
    std::vector<HostAddress> list = list_interfaces();
    std::erase_if(list,
                  [=](const HostAddress &one) { return family != AF_UNSPEC && one.address.sa.sa_family != family; });
    if (list.empty())
        return {};
    rank(list);
    const HostAddress best = *std::ranges::min_element(list, {}, &HostAddress::rank);
    std::erase_if(list, [&](const HostAddress &one) {
        return best.rank == 0 ? one.rank != 0 || one.address.sa.sa_family != best.address.sa.sa_family
                              : !one.address.same_host(best.address);
    });
    return addresses_of(list);
}

// By the numbers of the calls: the preload library's own socket() is not meant for us.
Address route_source(const Address &destination) noexcept
{
    Address source;
    const auto fd = static_cast<int>(::syscall(SYS_socket, destination.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return source;
    Address target = destination;
    target.set_port(9); // any but 0; nothing is sent
    Address found;
    socklen_t length = sizeof found.v6;
    if (::syscall(SYS_connect, fd, &target.sa, static_cast<socklen_t>(target.size())) == 0 &&
        ::syscall(SYS_getsockname, fd, &found.sa, &length) == 0)
        source = found;
    ::syscall(SYS_close, fd);
    source.set_port(0);
    return source;
}

} // namespace vma::ofi
