// SPDX-License-Identifier: BSD-2-Clause
// ICMP errors read: RFC 792, RFC 1122, 3.2.2, RFC 1191 and RFC 1812, 5.2.7 for IPv4; RFC 4443 and RFC 8201 for IPv6.
#include "prov/vma/src/inet/wire/icmp.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/src/inet/wire/frame.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"

namespace vma::inet {
namespace {

constexpr std::size_t kIcmpHeader = 8;
constexpr std::size_t kQuotedTransport = 8; // bytes of it that a quote must have: ports, and TCP's sequence number

constexpr std::uint8_t kUnreachable4 = 3;
constexpr std::uint8_t kTimeExceeded4 = 11;
constexpr std::uint8_t kParameterProblem4 = 12;
constexpr std::uint8_t kUnreachable6 = 1;
constexpr std::uint8_t kPacketTooBig6 = 2;
constexpr std::uint8_t kTimeExceeded6 = 3;
constexpr std::uint8_t kParameterProblem6 = 4;

// What Linux makes of each code, so a program sees here what it sees there.
struct Meaning {
    int error;
    bool hard;
};
constexpr Meaning kUnreachableCodes4[] = {
    {ENETUNREACH, false},  // net
    {EHOSTUNREACH, false}, // host
    {ENOPROTOOPT, true},   // protocol
    {ECONNREFUSED, true},  // port
    {EMSGSIZE, false},     // fragmentation needed
    {EOPNOTSUPP, false},   // source route failed
    {ENETUNREACH, true},   // net unknown
    {EHOSTDOWN, true},     // host unknown
    {ENONET, true},        // source host isolated
    {ENETUNREACH, true},   // net prohibited
    {EHOSTUNREACH, true},  // host prohibited
    {ENETUNREACH, false},  // net, for this type of service
    {EHOSTUNREACH, false}, // host, for this type of service
    {EHOSTUNREACH, true},  // communication prohibited
    {EHOSTUNREACH, true},  // host precedence violation
    {EHOSTUNREACH, true},  // precedence cutoff
};
constexpr Meaning kUnreachableCodes6[] = {
    {ENETUNREACH, false},  // no route
    {EACCES, true},        // prohibited
    {EHOSTUNREACH, false}, // beyond the scope of the source
    {EHOSTUNREACH, false}, // address
    {ECONNREFUSED, true},  // port
    {EACCES, true},        // source address failed a policy
    {EACCES, true},        // reject route
};

// error 0: nothing that a transport is told.
Meaning meaning4(std::uint8_t type, std::uint8_t code)
{
    if (type == kUnreachable4 && code < std::size(kUnreachableCodes4))
        return kUnreachableCodes4[code];
    if (type == kTimeExceeded4)
        return {EHOSTUNREACH, false};
    if (type == kParameterProblem4)
        return {EPROTO, true};
    return {};
}

Meaning meaning6(std::uint8_t type, std::uint8_t code)
{
    if (type == kUnreachable6)
        return code < std::size(kUnreachableCodes6) ? kUnreachableCodes6[code] : Meaning{EPROTO, true};
    if (type == kPacketTooBig6)
        return {EMSGSIZE, false};
    if (type == kTimeExceeded6)
        return {EHOSTUNREACH, false};
    if (type == kParameterProblem6)
        return {EPROTO, true};
    return {};
}

// The packet quoted, up to its transport's header. `length`: what its header said of it, IP header included.
IcmpParsed read_quote4(Bytes quote, Packet &sent, std::size_t &length)
{
    if (quote.size() < kIpv4Header)
        return IcmpParsed::kTruncated;
    const std::size_t header = std::size_t{4} * (quote[0] & 0xf);
    if (quote[0] >> 4 != 4 || header < kIpv4Header)
        return IcmpParsed::kBadQuote;
    if (quote.size() < header)
        return IcmpParsed::kTruncated;
    length = load16(&quote[2]);
    sent.source = IpAddress::v4(&quote[12]);
    sent.target = IpAddress::v4(&quote[16]);
    sent.protocol = static_cast<Protocol>(quote[9]);
    sent.payload = quote.subspan(header);
    return load16(&quote[6]) & kFragmentOffset ? IcmpParsed::kNoPorts : IcmpParsed::kError;
}

IcmpParsed read_quote6(Bytes quote, Packet &sent, std::size_t &length)
{
    if (quote.size() < kIpv6Header)
        return IcmpParsed::kTruncated;
    if (quote[0] >> 4 != 6)
        return IcmpParsed::kBadQuote;
    length = kIpv6Header + load16(&quote[4]);
    sent.source = IpAddress::v6(&quote[8]);
    sent.target = IpAddress::v6(&quote[24]);
    sent.protocol = static_cast<Protocol>(quote[6]);
    sent.payload = quote.subspan(kIpv6Header);
    FragmentInfo fragment;
    const Parsed parsed = walk_extensions(sent, &fragment);
    if (parsed > Parsed::kFragment)
        return IcmpParsed::kBadQuote;
    return fragment.offset ? IcmpParsed::kNoPorts : IcmpParsed::kError;
}

// RFC 1191, 7.1: what a router that names no MTU, as they did before that RFC, may have meant.
std::uint32_t next_plateau(std::size_t length)
{
    for (const std::uint32_t plateau : {32000u, 17914u, 8166u, 4352u, 2002u, 1492u, 576u})
        if (plateau < length)
            return plateau;
    return kMinPathMtu4;
}

// `length`: of the packet that was too big. 0: what the message says can't be.
std::uint32_t mtu4(Bytes message, std::size_t length)
{
    const std::uint32_t said = load16(&message[6]);
    const std::uint32_t mtu = said ? said : next_plateau(length);
    if (mtu < 68 || length <= mtu) // RFC 791, 3.2
        return 0;
    return std::max(mtu, kMinPathMtu4);
}

std::uint32_t mtu6(Bytes message, std::size_t length)
{
    const std::uint32_t mtu = load32(&message[4]);
    return mtu < kMinPathMtu6 || length <= mtu ? 0 : mtu; // RFC 8201, 4
}

bool checksum_good(const Packet &packet, bool ipv6)
{
    const std::uint32_t length = static_cast<std::uint32_t>(packet.payload.size());
    const std::uint32_t pseudo = ipv6 ? pseudo_sum(packet.source, packet.target, Protocol::kIcmp6, length) : 0;
    return finish(sum(packet.payload.data(), length, pseudo)) == 0;
}

} // namespace

IcmpParsed parse_icmp(const Packet &packet, IcmpError &out)
{
    const bool ipv6 = packet.protocol == Protocol::kIcmp6;
    const Bytes message = packet.payload;
    if (ipv6 == packet.target.is_v4())
        return IcmpParsed::kNotError;
    if (message.size() < kIcmpHeader)
        return IcmpParsed::kTruncated;
    if (!checksum_good(packet, ipv6))
        return IcmpParsed::kBadChecksum;
    const Meaning meaning = ipv6 ? meaning6(message[0], message[1]) : meaning4(message[0], message[1]);
    if (!meaning.error)
        return IcmpParsed::kNotError;
    Packet sent;
    std::size_t length = 0;
    const Bytes quote = message.subspan(kIcmpHeader);
    const IcmpParsed read = ipv6 ? read_quote6(quote, sent, length) : read_quote4(quote, sent, length);
    if (read != IcmpParsed::kError)
        return read;
    if (sent.source != packet.target || packet.target.is_multicast())
        return IcmpParsed::kBadQuote;
    if (sent.protocol != Protocol::kTcp && sent.protocol != Protocol::kUdp)
        return IcmpParsed::kNoPorts;
    if (sent.payload.size() < kQuotedTransport)
        return IcmpParsed::kTruncated;
    const std::uint32_t mtu = meaning.error != EMSGSIZE ? 0 : ipv6 ? mtu6(message, length) : mtu4(message, length);
    if (meaning.error == EMSGSIZE && !mtu)
        return IcmpParsed::kBadMtu;
    out.flow = {{sent.source, load16(&sent.payload[0])}, {sent.target, load16(&sent.payload[2])}};
    out.protocol = sent.protocol;
    out.hard = meaning.hard;
    out.type = message[0];
    out.code = message[1];
    out.error = meaning.error;
    out.mtu = mtu;
    out.sequence = sent.protocol == Protocol::kTcp ? load32(&sent.payload[4]) : 0;
    out.reporter = packet.source;
    out.quoted = sent.payload;
    return IcmpParsed::kError;
}

} // namespace vma::inet
