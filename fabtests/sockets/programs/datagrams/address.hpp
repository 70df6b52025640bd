// SPDX-License-Identifier: BSD-2-Clause
// UDP sockets and their addresses, for the datagram programs: short forms of what each of them needs, no checks of
// their own but that a call that has to succeed does.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

struct Address {
    sockaddr_storage storage{};
    socklen_t len = sizeof(sockaddr_storage);

    sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
    int family() const { return storage.ss_family; }
    std::uint16_t port() const;
    void set_port(std::uint16_t port);
    std::string host() const;                    // "127.0.0.1", "::1", "::ffff:127.0.0.1"
    std::array<unsigned char, 18> bytes() const; // IPv6 or v4-mapped address and port: equal for equal end points
};

Address make_address(const char *host, std::uint16_t port); // of either family
Address local_address(int fd);
Address peer_address(int fd);

int udp_socket(int family, int flags = SOCK_CLOEXEC);
int bound_socket(const Address &address);

template <typename T> int set_option(int fd, int level, int name, const T &value)
{
    return ::setsockopt(fd, level, name, &value, sizeof value);
}

int int_option(int fd, int level, int name); // getsockopt

inline int bind_to(int fd, const Address &address)
{
    return ::bind(fd, address.get(), address.len);
}

inline int connect_to(int fd, const Address &address)
{
    return ::connect(fd, address.get(), address.len);
}

inline ssize_t send_to(int fd, const void *data, std::size_t len, const Address &to, int flags = 0)
{
    return ::sendto(fd, data, len, flags, to.get(), to.len);
}

} // namespace fabtest
