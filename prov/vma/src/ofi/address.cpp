// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/address.hpp"

#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace vma::ofi {

bool Address::assign(const void *addr, std::size_t length) noexcept
{
    v6 = {};
    if (addr == nullptr || length < sizeof(sa_family_t))
        return false;
    sa_family_t family;
    std::memcpy(&family, addr, sizeof(family));
    const std::size_t need = family == AF_INET ? sizeof(v4) : family == AF_INET6 ? sizeof(v6) : SIZE_MAX;
    if (length < need)
        return false;
    std::memcpy(&v6, addr, need);
    return true;
}

std::size_t Address::size() const noexcept
{
    return sa.sa_family == AF_INET ? sizeof(v4) : sa.sa_family == AF_INET6 ? sizeof(v6) : 0;
}

std::uint16_t Address::port() const noexcept
{
    return ntohs(sa.sa_family == AF_INET ? v4.sin_port : v6.sin6_port);
}

void Address::set_port(std::uint16_t port) noexcept
{
    if (sa.sa_family == AF_INET)
        v4.sin_port = htons(port);
    else
        v6.sin6_port = htons(port);
}

std::string Address::key() const
{
    const bool v6_host = sa.sa_family == AF_INET6;
    std::string key(1, v6_host ? '6' : '4');
    const std::uint16_t number = port();
    key.append(reinterpret_cast<const char *>(&number), sizeof number);
    if (v6_host)
        key.append(reinterpret_cast<const char *>(&v6.sin6_addr), sizeof(in6_addr));
    else
        key.append(reinterpret_cast<const char *>(&v4.sin_addr), sizeof(in_addr));
    return key;
}

bool Address::is_loopback() const noexcept
{
    if (sa.sa_family == AF_INET)
        return (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    return sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool Address::is_wildcard() const noexcept
{
    if (sa.sa_family == AF_INET)
        return v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

namespace {

in6_addr as_v6(const Address &address) noexcept
{
    if (address.sa.sa_family == AF_INET6)
        return address.v6.sin6_addr;
    in6_addr mapped{};
    mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
    std::memcpy(&mapped.s6_addr[12], &address.v4.sin_addr, sizeof(in_addr));
    return mapped;
}

} // namespace

bool Address::same_host(const Address &other) const noexcept
{
    const in6_addr mine = as_v6(*this);
    const in6_addr theirs = as_v6(other);
    return std::memcmp(&mine, &theirs, sizeof(mine)) == 0;
}

bool Address::is_local() const noexcept
{
    if (is_wildcard() || is_loopback())
        return true;
    // Whether the kernel lets a socket have it is cheaper to ask than the list of interfaces.
    // By its number: the preload library's own socket() is not meant for us.
    const long probe = ::syscall(SYS_socket, sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0)
        return false;
    Address bound = *this;
    bound.set_port(0);
    const bool local = ::syscall(SYS_bind, probe, &bound.sa, static_cast<socklen_t>(bound.size())) == 0;
    ::syscall(SYS_close, probe);
    return local;
}

Address Address::reachable() const noexcept
{
    Address result = *this;
    if (!is_wildcard())
        return result;
    if (sa.sa_family == AF_INET)
        result.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        result.v6.sin6_addr = in6addr_loopback;
    return result;
}

const char *Address::text(char *buffer, std::size_t size) const noexcept
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (sa.sa_family == AF_INET) {
        ::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
        std::snprintf(buffer, size, "%s:%u", host, unsigned{port()});
    } else if (sa.sa_family == AF_INET6) {
        ::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
        std::snprintf(buffer, size, "[%s]:%u", host, unsigned{port()});
    } else {
        std::snprintf(buffer, size, "none");
    }
    return buffer;
}

} // namespace vma::ofi
