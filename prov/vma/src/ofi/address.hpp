// SPDX-License-Identifier: BSD-2-Clause
// Socket addresses as the provider uses them: IPv4 or IPv6, a host part that must be this host's, and a port
// that names an endpoint of one user in one network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

namespace vma::ofi {

struct Address {
    union {
        sockaddr sa;
        sockaddr_in v4;
        sockaddr_in6 v6;
    };

    Address() noexcept : v6{} {}

    // False unless it is a whole IPv4 or IPv6 socket address.
    [[nodiscard]] bool assign(const void *addr, std::size_t length) noexcept;
    // The same of one that the caller vouches to be as long as its family's are. nullptr is none.
    [[nodiscard]] bool assign_whole(const void *addr) noexcept { return assign(addr, sizeof v6); }

    bool empty() const noexcept { return sa.sa_family == AF_UNSPEC; }
    std::size_t size() const noexcept;
    std::uint16_t port() const noexcept;
    void set_port(std::uint16_t port) noexcept;
    bool is_wildcard() const noexcept;
    bool is_loopback() const noexcept; // 127.0.0.0/8 or ::1
    bool same_host(const Address &other) const noexcept;
    // Family, host and port, which make two addresses one; not what else a sockaddr has. For maps.
    std::string key() const;
    // Whether the host part is an address of this host (a wildcard counts as loopback).
    bool is_local() const noexcept;
    // 127.0.0.1 or ::1 in the place of a wildcard.
    Address reachable() const noexcept;
    // "127.0.0.1:5000", for the log.
    const char *text(char *buffer, std::size_t size) const noexcept;
};

struct AddressText {
    char chars[64];
    explicit AddressText(const Address &address) noexcept { address.text(chars, sizeof(chars)); }
    const char *c_str() const noexcept { return chars; }
};

} // namespace vma::ofi
