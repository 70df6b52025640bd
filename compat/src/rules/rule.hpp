// SPDX-License-Identifier: BSD-2-Clause
// What a rule of libvma.conf is, and whether it meets a socket's addresses. No file, no log, no state: the preload
// library and libvma-check share it. man/libvma.conf.5 is the specification.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

namespace vma::rules {

// What a socket does. The first address is the one that decides, and the second is that of the other side:
enum class Role : std::uint8_t {
    kTcpServer,   // local
    kTcpClient,   // remote, local
    kUdpReceiver, // local, or a group
    kUdpSender,   // remote
    kUdpConnect,  // remote, local
};
inline constexpr std::size_t kRoles = 5;
extern const char *const kRoleNames[kRoles];

constexpr bool has_second(Role role)
{
    return role == Role::kTcpClient || role == Role::kUdpConnect;
}

enum class Transport : std::uint8_t { kOs, kVma, kSdp, kSa, kAny };
inline constexpr std::size_t kTransports = 5;
extern const char *const kTransportNames[kTransports];

// Of addresses in their v4-mapped form.
struct Range {
    bool any_address = true;
    in6_addr address = {};
    unsigned bits = 0; // of 128; a v4 prefix has 96 more
    std::uint16_t first_port = 0;
    std::uint16_t last_port = 65535;
};

struct Rule {
    Role role = Role::kTcpServer;
    Transport transport = Transport::kVma;
    Range first;
    Range second; // everything, unless it was given
    unsigned line = 0;
};

// An AF_INET6 address, v4-mapped if it is one of IPv4; network byte order. `second` may be null: it is not known.
bool matches(const Rule &rule, const sockaddr_in6 &first, const sockaddr_in6 *second);

// Whether a socket that the rule is the first to match is the kernel's. "sdp" and "sa" match nothing. "*" is the
// kernel's for roles that connect, and ours for the others: so libvma has it.
bool means_kernel(const Rule &rule);

} // namespace vma::rules
