// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <cstring>
#include <memory>

namespace vma::lat {

namespace {

// The bytes of an address without the port. An IPv4 address mapped into IPv6 is the IPv4 address.
std::string_view address_bytes(const sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return {reinterpret_cast<const char *>(&reinterpret_cast<const sockaddr_in *>(address)->sin_addr), 4};
    const auto *six = &reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr;
    const auto *bytes = reinterpret_cast<const char *>(six);
    if (IN6_IS_ADDR_V4MAPPED(six))
        return {bytes + 12, 4};
    return {bytes, 16};
}

bool same_host(const sockaddr *a, const sockaddr *b)
{
    return address_bytes(a) == address_bytes(b);
}

// An IPv4 address that a socket of both families knows as an IPv6 one is an IPv4 address again.
Address unmapped(const Address &address)
{
    if (address.family() != AF_INET6)
        return address;
    sockaddr_in6 six{};
    std::memcpy(&six, &address.storage, sizeof six);
    if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return address;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = six.sin6_port;
    std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof four.sin_addr);
    Address out;
    std::memcpy(&out.storage, &four, sizeof four);
    out.length = sizeof four;
    return out;
}

} // namespace

std::uint16_t Address::port() const
{
    return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_port
                                      : reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

void Address::set_port(std::uint16_t port)
{
    if (family() == AF_INET6)
        reinterpret_cast<sockaddr_in6 *>(&storage)->sin6_port = htons(port);
    else
        reinterpret_cast<sockaddr_in *>(&storage)->sin_port = htons(port);
}

bool Address::multicast() const
{
    if (family() == AF_INET6)
        return IN6_IS_ADDR_MULTICAST(&reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr);
    return IN_MULTICAST(ntohl(reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr.s_addr));
}

std::string Address::host() const
{
    char name[NI_MAXHOST] = "?";
    getnameinfo(get(), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
    return name;
}

std::string Address::text() const
{
    return format(family() == AF_INET6 ? "[%s]:%u" : "%s:%u", host().c_str(), port());
}

Failure resolve(const std::string &host, std::uint16_t port, int family, Address &address)
{
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
    addrinfo *found = nullptr;
    const int result = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (result != 0)
        return error(kExitUsage, "'%s' is no host that is known here: %s", host.c_str(),
                     result == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(result));
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.length = found->ai_addrlen;
    freeaddrinfo(found);
    return {};
}

Failure split_host(const std::string &text, std::string &host, std::uint16_t &port)
{
    const std::size_t colon = text.rfind(':');
    const bool brackets = text.starts_with('[');
    const std::size_t end = brackets ? text.find(']') : text.size();
    const bool has_port = colon != std::string::npos && (brackets ? colon == end + 1 : colon == text.find(':'));
    if (brackets && (end == std::string::npos || (!has_port && end + 1 != text.size())))
        return error(kExitUsage, "'%s' is no host: HOST, HOST:PORT or [IPV6]:PORT is expected", text.c_str());
    host = brackets ? text.substr(1, end - 1) : has_port ? text.substr(0, colon) : text;
    if (!has_port)
        return {};
    const char *first = text.data() + colon + 1;
    const char *last = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(first, last, port);
    if (problem != std::errc() || rest != last || port == 0)
        return error(kExitUsage, "'%s' in '%s' is no port: 1 to 65535 is expected", first, text.c_str());
    return {};
}

Address local_address(int fd)
{
    Address address;
    address.length = sizeof address.storage;
    getsockname(fd, address.get(), &address.length);
    return unmapped(address);
}

Address peer_address(int fd)
{
    Address address;
    address.length = sizeof address.storage;
    getpeername(fd, address.get(), &address.length);
    return unmapped(address);
}

Failure find_interface(const std::string &text, const Address &local, unsigned &index)
{
    Address wanted = local;
    if (!text.empty()) {
        index = if_nametoindex(text.c_str());
        if (index != 0)
            return {};
        if (resolve(text, 0, AF_UNSPEC, wanted))
            return error(kExitUsage, "--interface: '%s' is neither an interface nor an address of one", text.c_str());
    }
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0)
        return system_error("getifaddrs");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> free(list, freeifaddrs);
    for (const ifaddrs *each = list; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr != nullptr &&
            (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6) &&
            same_host(each->ifa_addr, wanted.get())) {
            index = if_nametoindex(each->ifa_name);
            return {};
        }
    }
    return error(kExitUsage, "no interface has the address %s: name one with --interface", wanted.host().c_str());
}

} // namespace vma::lat
