// SPDX-License-Identifier: BSD-2-Clause
// How a frame is read. The plain case, an untagged IPv4 or IPv6 packet without options, goes through in one line of
// well-predicted branches; the rest is out of line.
#include "prov/vma/src/inet/wire/frame.hpp"

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/src/inet/wire/ethernet.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"

namespace vma::inet {
namespace {

// Option kinds of IPv4 (RFC 791, 3.1) and of IPv6 (RFC 8200, 4.2), and the jumbo payload's (RFC 2675, 2).
constexpr std::uint8_t kEndOfOptions = 0;
constexpr std::uint8_t kNoOperation = 1;
constexpr std::uint8_t kLooseSourceRoute = 131;
constexpr std::uint8_t kStrictSourceRoute = 137;
constexpr std::uint8_t kPad1 = 0;
constexpr std::uint8_t kJumboPayload = 0xc2;
constexpr std::uint8_t kActionIfUnknown =
    0xc0; // the bits that say what to do with an option that is unknown; 0: skip it

// The tags between addresses and ethertype: at most a service provider's and a customer's, of which the first only
// carries a priority. Returns the offset of the ethertype, 0 if there is none for us.
[[gnu::noinline]] std::size_t skip_tags(Bytes frame, std::uint16_t &vlan)
{
    std::size_t at = kEthernetHeader - 2;
    for (unsigned tags = 0; tags < 2; ++tags, at += kVlanTag) {
        const std::uint16_t type = load16(&frame[at]);
        if (type != kEtherVlan && type != kEtherServiceVlan)
            return at;
        if (frame.size() < at + kVlanTag + 2)
            return 0;
        const std::uint16_t id = load16(&frame[at + 2]) & kVlanIdMask;
        if (id && (vlan || type == kEtherServiceVlan || id == kVlanIdMask))
            return 0;
        vlan |= id;
    }
    return at;
}

// RFC 791, 3.1 and RFC 1122, 3.2.1.8: what isn't a source route says nothing that a host must obey.
[[gnu::noinline]] Parsed check_ipv4_options(Bytes options)
{
    while (!options.empty() && options[0] != kEndOfOptions) {
        if (options[0] == kNoOperation) {
            options = options.subspan(1);
            continue;
        }
        if (options.size() < 2 || options[1] < 2 || options[1] > options.size())
            return Parsed::kBadOptions;
        if (options[0] == kLooseSourceRoute || options[0] == kStrictSourceRoute)
            return Parsed::kSourceRouted;
        options = options.subspan(options[1]);
    }
    return Parsed::kPacket;
}

// Addresses in host byte order. To a source that is a group or broadcast no answer can go.
bool is_group_ipv4(std::uint32_t host)
{
    return host >> 28 == 0xe || host == 0xffffffff;
}

bool is_inner_ipv4(std::uint32_t host) // "this host", loopback: never on a wire
{
    return host >> 24 == 0 || host >> 24 == 127;
}

// :: and ::1; and an IPv4 address in IPv6's clothes, which would be taken for the IPv4 host's own (RFC 4942, 2.2).
bool is_inner_ipv6(const std::uint8_t *wire)
{
    const std::uint64_t low = load_be<std::uint64_t>(wire + 8);
    return load_be<std::uint64_t>(wire) == 0 && (low <= 1 || low >> 32 == 0xffff);
}

Parsed parse_ipv4(Bytes bytes, Packet &out, FragmentInfo &fragment)
{
    if (bytes.size() < kIpv4Header)
        return Parsed::kTruncated;
    const std::uint8_t *const p = bytes.data();
    if (p[0] >> 4 != 4)
        return Parsed::kBadVersion;
    const std::size_t header = std::size_t{4} * (p[0] & 0xf);
    const std::size_t total = load16(p + 2);
    if (header < kIpv4Header || total < header || total > bytes.size())
        return Parsed::kBadLength;
    const bool plain = header == kIpv4Header;
    if (!out.info.checksums_good && finish(plain ? sum_fixed<kIpv4Header>(p) : sum(p, header)) != 0)
        return Parsed::kBadHeaderChecksum;
    if (!plain)
        if (const Parsed bad = check_ipv4_options(bytes.subspan(kIpv4Header, header - kIpv4Header));
            bad != Parsed::kPacket)
            return bad;
    const std::uint32_t source = load32(p + 12);
    const std::uint32_t target = load32(p + 16);
    if (is_inner_ipv4(source) || is_group_ipv4(source) || is_inner_ipv4(target))
        return Parsed::kMartian;
    out.source = IpAddress::v4(p + 12);
    out.target = IpAddress::v4(p + 16);
    out.protocol = static_cast<Protocol>(p[9]);
    out.traffic_class = p[1];
    out.hop_limit = p[8];
    out.payload = bytes.subspan(header, total - header);
    if (out.protocol == Protocol::kTcp && is_group_ipv4(target))
        return Parsed::kMartian;
    const std::uint16_t flags = load16(p + 6);
    if ((flags & (kMoreFragments | kFragmentOffset)) == 0)
        return Parsed::kPacket;
    fragment.id = load16(p + 4);
    fragment.offset = static_cast<std::uint16_t>((flags & kFragmentOffset) * 8);
    fragment.more = (flags & kMoreFragments) != 0;
    return Parsed::kFragment;
}

Parsed parse_ipv6(Bytes bytes, Packet &out, FragmentInfo &fragment)
{
    if (bytes.size() < kIpv6Header)
        return Parsed::kTruncated;
    const std::uint8_t *const p = bytes.data();
    const std::uint32_t first = load32(p);
    if (first >> 28 != 6)
        return Parsed::kBadVersion;
    const std::size_t length = load16(p + 4);
    if (length > bytes.size() - kIpv6Header)
        return Parsed::kBadLength;
    if (is_inner_ipv6(p + 8) || p[8] == 0xff || is_inner_ipv6(p + 24))
        return Parsed::kMartian;
    out.source = IpAddress::v6(p + 8);
    out.target = IpAddress::v6(p + 24);
    out.protocol = static_cast<Protocol>(p[6]);
    out.traffic_class = static_cast<std::uint8_t>(first >> 20);
    out.hop_limit = p[7];
    out.payload = bytes.subspan(kIpv6Header, length);
    Parsed parsed = Parsed::kPacket;
    if (out.protocol != Protocol::kTcp && out.protocol != Protocol::kUdp) {
        if (length == 0 && p[6] == kHopByHop) // the length stands in an option then, or nowhere
            return Parsed::kJumbogram;
        parsed = walk_extensions(out, &fragment);
    }
    return out.protocol == Protocol::kTcp && out.target.is_multicast() ? Parsed::kMartian : parsed;
}

// The options of a hop-by-hop or destination options header (RFC 8200, 4.2).
Parsed check_ipv6_options(Bytes options)
{
    unsigned known = 0;
    while (!options.empty()) {
        if (options[0] == kPad1) {
            options = options.subspan(1);
            continue;
        }
        if (options.size() < 2 || std::size_t{2} + options[1] > options.size() || ++known > kMaxExtensions)
            return Parsed::kBadOptions;
        if (options[0] == kJumboPayload)
            return Parsed::kJumbogram;
        if (options[0] & kActionIfUnknown)
            return Parsed::kUnsupportedExtension;
        options = options.subspan(std::size_t{2} + options[1]);
    }
    return Parsed::kPacket;
}

// RFC 8200, 4.4: a host that is the last to be visited ignores the header, whatever its type.
Parsed check_routing(Bytes header)
{
    return header[2] == 0 || header[3] != 0 ? Parsed::kSourceRouted : Parsed::kPacket;
}

Parsed read_fragment_header(Bytes header, FragmentInfo &fragment)
{
    const std::uint16_t field = load16(&header[2]);
    fragment.id = load32(&header[4]);
    fragment.offset = field & 0xfff8;
    fragment.more = (field & 1) != 0;
    return fragment.offset || fragment.more ? Parsed::kFragment : Parsed::kPacket;
}

} // namespace

Parsed walk_extensions(Packet &packet, FragmentInfo *fragment)
{
    Bytes rest = packet.payload;
    std::uint8_t next = static_cast<std::uint8_t>(packet.protocol);
    Parsed parsed = Parsed::kPacket;
    for (unsigned count = 0;; ++count) {
        const bool options = next == kHopByHop || next == kDestinationOptions;
        if (!options && next != kRouting && next != kFragmentHeader)
            break;
        if (rest.size() < 8)
            return Parsed::kTruncated;
        const std::size_t length = next == kFragmentHeader ? kIpv6FragmentHeader : (std::size_t{rest[1]} + 1) * 8;
        if (length > rest.size())
            return Parsed::kBadLength;
        if (count == kMaxExtensions || (next == kHopByHop && (count || !fragment)))
            return Parsed::kBadOptions;
        const Bytes header = rest.first(length);
        if (next == kFragmentHeader) {
            if (!fragment)
                return Parsed::kBadOptions;
            parsed = read_fragment_header(header, *fragment);
        } else {
            parsed = options ? check_ipv6_options(header.subspan(2)) : check_routing(header);
        }
        if (parsed != Parsed::kPacket && parsed != Parsed::kFragment)
            return parsed;
        if (next == kFragmentHeader)
            fragment = nullptr; // one of them is all that a sender can have written
        next = header[0];
        rest = rest.subspan(length);
        if (parsed == Parsed::kFragment)
            break; // headers after it are walked when the whole is there
    }
    if (next == kAuthentication && parsed == Parsed::kPacket)
        return Parsed::kUnsupportedExtension;
    packet.protocol = static_cast<Protocol>(next);
    packet.payload = rest;
    return parsed;
}

Parsed parse_frame(std::span<const std::uint8_t> frame, const FrameInfo &info, Packet &out, FragmentInfo &fragment)
{
    if (frame.size() < kEthernetHeader)
        return Parsed::kTruncated;
    std::size_t at = kEthernetHeader - 2;
    std::uint16_t type = load16(&frame[at]);
    out.vlan = 0;
    if (type == kEtherVlan || type == kEtherServiceVlan) {
        at = skip_tags(frame, out.vlan);
        if (!at)
            return Parsed::kNotIp;
        type = load16(&frame[at]);
    }
    out.info.checksums_good = info.checksums_good; // one by one, as they have just been written by the caller
    out.info.partial_sums = info.partial_sums;
    out.info.arrived = info.arrived;
    out.info.hardware = info.hardware;
    memcpy(out.source_mac.bytes.data(), &frame[6], 6);
    const Bytes bytes = frame.subspan(at + 2);
    if (type != kEtherIpv4 && type != kEtherIpv6)
        return Parsed::kNotIp;
    const Parsed parsed = type == kEtherIpv4 ? parse_ipv4(bytes, out, fragment) : parse_ipv6(bytes, out, fragment);
    // A TCP segment that came to every host of the link was not meant for one (RFC 1122, 3.3.6).
    if ((frame[0] & 1) && parsed <= Parsed::kFragment && out.protocol == Protocol::kTcp)
        return Parsed::kMartian;
    return parsed;
}

} // namespace vma::inet
