// SPDX-License-Identifier: BSD-2-Clause
// Internet addresses of both families, and descriptors.
#pragma once

#include "util/tool/fd.hpp"
#include "util/vma_lat/measure/text.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace vma::lat {

using tool::Fd;

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    int family() const { return storage.ss_family; }
    sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
    std::uint16_t port() const;
    void set_port(std::uint16_t port);
    bool multicast() const;
    std::string text() const; // with the port
    std::string host() const; // without
};

// A name or number, of `family` (AF_UNSPEC: either). An empty host is every address of this machine.
Failure resolve(const std::string &host, std::uint16_t port, int family, Address &address);

// "HOST", "HOST:PORT", "[HOST]:PORT"; a bare IPv6 address is a host. Leaves `port` alone if none is named.
Failure split_host(const std::string &text, std::string &host, std::uint16_t &port);

Address local_address(int fd);
Address peer_address(int fd);

// The number of an interface: by name, by an address of it, or if `text` is empty the one that has the address `local`.
Failure find_interface(const std::string &text, const Address &local, unsigned &index);

} // namespace vma::lat
