// SPDX-License-Identifier: BSD-2-Clause
// See address.hpp.
#include "fabtests/sockets/programs/datagrams/address.hpp"

#include <arpa/inet.h>

namespace fabtest {

std::uint16_t Address::port() const
{
    // The port stands at the same place in both families.
    return ntohs(reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

void Address::set_port(std::uint16_t port)
{
    reinterpret_cast<sockaddr_in *>(&storage)->sin_port = htons(port);
}

std::string Address::host() const
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (family() == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr, text, sizeof text);
    else if (family() == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr, text, sizeof text);
    return text;
}

std::array<unsigned char, 18> Address::bytes() const
{
    std::array<unsigned char, 18> all{};
    if (family() == AF_INET) {
        all[10] = all[11] = 0xff;
        std::memcpy(&all[12], &reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr, 4);
    } else {
        std::memcpy(all.data(), &reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr, 16);
    }
    const std::uint16_t number = port();
    std::memcpy(&all[16], &number, 2);
    return all;
}

Address make_address(const char *host, std::uint16_t port)
{
    Address made;
    auto *in = reinterpret_cast<sockaddr_in *>(&made.storage);
    auto *in6 = reinterpret_cast<sockaddr_in6 *>(&made.storage);
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        made.len = sizeof *in;
    } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        made.len = sizeof *in6;
    } else {
        die("no address: %s", host);
    }
    made.set_port(port);
    return made;
}

Address local_address(int fd)
{
    Address found;
    must(::getsockname(fd, found.get(), &found.len), "getsockname");
    return found;
}

Address peer_address(int fd)
{
    Address found;
    must(::getpeername(fd, found.get(), &found.len), "getpeername");
    return found;
}

int udp_socket(int family, int flags)
{
    return must(::socket(family, SOCK_DGRAM | flags, 0), "socket");
}

int bound_socket(const Address &address)
{
    const int fd = udp_socket(address.family());
    must(bind_to(fd, address), "bind");
    return fd;
}

int int_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof value;
    must(::getsockopt(fd, level, name, &value, &len), "getsockopt");
    return value;
}

} // namespace fabtest
