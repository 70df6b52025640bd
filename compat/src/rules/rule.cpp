// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rules/rule.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace vma::rules {

const char *const kRoleNames[kRoles] = {"tcp_server", "tcp_client", "udp_receiver", "udp_sender", "udp_connect"};
const char *const kTransportNames[kTransports] = {"os", "vma", "sdp", "sa", "*"};

namespace {

bool starts_alike(const in6_addr &a, const in6_addr &b, unsigned bits)
{
    const unsigned bytes = bits / 8;
    if (std::memcmp(a.s6_addr, b.s6_addr, bytes) != 0)
        return false;
    const unsigned rest = bits % 8;
    return rest == 0 || ((a.s6_addr[bytes] ^ b.s6_addr[bytes]) >> (8 - rest)) == 0;
}

bool is_in(const Range &range, const sockaddr_in6 &address)
{
    const std::uint16_t port = ntohs(address.sin6_port);
    return port >= range.first_port && port <= range.last_port &&
           (range.any_address || starts_alike(range.address, address.sin6_addr, range.bits));
}

} // namespace

bool matches(const Rule &rule, const sockaddr_in6 &first, const sockaddr_in6 *second)
{
    if (rule.transport == Transport::kSdp || rule.transport == Transport::kSa)
        return false;
    return is_in(rule.first, first) && (second == nullptr || is_in(rule.second, *second));
}

bool means_kernel(const Rule &rule)
{
    return rule.transport == Transport::kOs || (rule.transport == Transport::kAny && has_second(rule.role));
}

} // namespace vma::rules
