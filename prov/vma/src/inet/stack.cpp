// SPDX-License-Identifier: BSD-2-Clause
// From layer to layer, both ways.
#include "prov/vma/src/inet/stack.hpp"

#include <errno.h>

#include <algorithm>

namespace vma::inet {

namespace {

constexpr unsigned kUdpBlockShift = 11;

} // namespace

Stack::Stack(const StackOptions &options, Nanos start)
    : mac_(options.mac), mtu_(options.mtu), secret_(options.secret), tcp_(options.tcp, options.secret, start),
      udp_blocks_(options.udp_blocks, kUdpBlockShift), udp_(options.udp, udp_blocks_), reassembler_(options.datagrams),
      path_mtus_(options.path_mtus, options.secret[1])
{
    tcp_.next_hops().set_link_mtu(mtu_);
}

void Stack::input(Nanos now, std::span<const std::uint8_t> frame, const FrameInfo &info)
{
    Packet packet;
    FragmentInfo fragment;
    const Parsed parsed = read(frame, info, packet, fragment);
    if (parsed == Parsed::kPacket) [[likely]]
        take(now, packet);
    else if (parsed == Parsed::kFragment)
        join(now, packet, fragment);
}

void Stack::gather(Nanos now, std::span<const std::uint8_t> frame, const FrameInfo &info)
{
    Packet packet;
    FragmentInfo fragment;
    const Parsed parsed = read(frame, info, packet, fragment);
    if (parsed == Parsed::kPacket && packet.protocol == Protocol::kTcp)
        tcp_.gather(now, packet);
    else if (parsed == Parsed::kPacket)
        take(now, packet);
    else if (parsed == Parsed::kFragment)
        join(now, packet, fragment); // what comes of it isn't in the frame, and so not for gather()
}

Parsed Stack::read(std::span<const std::uint8_t> frame, const FrameInfo &info, Packet &packet, FragmentInfo &fragment)
{
    const Parsed parsed = parse_frame(frame, info, packet, fragment);
    ++counters_.parsed[static_cast<std::size_t>(parsed)];
    return parsed;
}

void Stack::join(Nanos now, const Packet &packet, const FragmentInfo &fragment)
{
    Packet whole;
    if (reassembler_.join(packet, fragment, now, whole) == Joined::kWhole)
        take(now, whole);
}

void Stack::take(Nanos now, const Packet &packet)
{
    switch (packet.protocol) {
    case Protocol::kTcp:
        tcp_.input(now, packet);
        break;
    case Protocol::kUdp:
        (void)udp_.deliver(packet); // which counts what becomes of it
        break;
    case Protocol::kIcmp:
    case Protocol::kIcmp6:
        take_icmp(now, packet);
        break;
    default:
        ++counters_.other_protocols;
        break;
    }
}

void Stack::take_icmp(Nanos now, const Packet &packet)
{
    IcmpError error;
    const IcmpParsed parsed = parse_icmp(packet, error);
    ++counters_.icmp[static_cast<std::size_t>(parsed)];
    if (parsed != IcmpParsed::kError)
        return;
    const bool too_big = error.error == EMSGSIZE;
    if (error.protocol ==
        Protocol::kUdp) { // nothing but the quoted ports tells whether it is true: it may lower the path's
        if (udp_.tell_error(error) && too_big) // MTU if they are a socket's (RFC 8201, 4)
            path_mtus_.lower(error.flow.remote.address, error.mtu, now);
        return;
    }
    if (!too_big) {
        tcp_.unreachable(now, error.flow, error.sequence, error.error, error.hard);
        return;
    }
    const auto mtu = static_cast<std::uint16_t>(std::min<std::uint32_t>(error.mtu, mtu_));
    if (tcp_.too_big(now, error.flow, error.sequence, mtu))
        path_mtus_.lower(error.flow.remote.address, error.mtu, now);
    else
        ++counters_.too_big_ignored;
}

void Stack::set_offloads(const SendOffloads &offloads)
{
    offloads_ = offloads;
    tcp_.set_offloads(offloads);
}

std::size_t Stack::output(Nanos now, std::span<std::uint8_t> out)
{
    FrameWork work;
    return output(now, out, work);
}

std::size_t Stack::output(Nanos now, std::span<std::uint8_t> out, FrameWork &work)
{
    work = FrameWork();
    // The segment is written where it will stand; how long the headers before it are is known only then, so they are as
    // long as they can be, and what is shorter is moved to the front. IPv4 without a VLAN, the usual one, is what fits.
    constexpr std::size_t kUsual = kEthernetHeader + kIpv4Header;
    static_assert(kMaxEthernetHeader + kIpv6Header - kUsual <= TcpOut::kMoved);
    TcpOut meta;
    if (!tcp_.output(now, out.subspan(kUsual), meta))
        return 0;
    const NextHop *const next_hop = meta.path != kNoNextHop ? &tcp_.next_hops()[meta.path] : nullptr;
    const L2 l2 = {next_hop != nullptr ? next_hop->mac : meta.mac, mac_,
                   next_hop != nullptr ? next_hop->vlan : meta.vlan};
    IpOut ip;
    ip.source = meta.source;
    ip.target = meta.target;
    ip.protocol = Protocol::kTcp;
    ip.traffic_class = meta.traffic_class;
    ip.hop_limit = meta.hop_limit;
    const std::size_t headers = ethernet_header_size(l2.vlan) + ip_header_size(meta.target);
    if (headers != kUsual)
        memmove(&out[headers], &out[kUsual], meta.length);
    if (meta.partial_sum)
        work = {static_cast<std::uint16_t>(headers), kTcpChecksumAt};
    if (meta.segment_size != 0) {
        work.segment = meta.segment_size;
        work.headers = static_cast<std::uint16_t>(headers + std::size_t{4} * (out[headers + kTcpOffsetAt] >> 4));
    }
    return write_headers(out.data(), l2, ip, meta.length) + meta.length;
}

Nanos Stack::deadline() const
{
    return std::min(tcp_.deadline(), reassembler_.deadline());
}

void Stack::advance(Nanos now)
{
    tcp_.advance(now);
    reassembler_.expire(now);
}

// ---- paths ----------------------------------------------------------------------------------------------------------

std::uint16_t Stack::mtu_to(const IpAddress &remote, Nanos now) const
{
    return static_cast<std::uint16_t>(path_mtus_.get(remote, mtu_, now));
}

NextHopIndex Stack::use_next_hop(Nanos now, const IpAddress &remote)
{
    NextHops &paths = tcp_.next_hops();
    const NextHopIndex index = paths.use(remote);
    if (index == kNoNextHop)
        return kNoNextHop;
    if (paths[index].users == 1)
        paths[index].mtu = mtu_to(remote, now);
    if (!paths[index].ready)
        paths.want(index);
    return index;
}

bool Stack::next_wanted(IpAddress &remote)
{
    const NextHopIndex index = tcp_.next_hops().next_wanted();
    if (index == kNoNextHop)
        return false;
    remote = tcp_.next_hops()[index].remote;
    return true;
}

std::size_t Stack::headers(const IpOut &ip, std::size_t payload, std::uint8_t *out)
{
    const NextHopIndex index = tcp_.next_hops().find(ip.target);
    if (index == kNoNextHop || !tcp_.next_hops()[index].ready)
        return 0;
    const NextHop &to = tcp_.next_hops()[index];
    return write_headers(out, {to.mac, mac_, to.vlan}, ip, payload);
}

void Stack::set_next_hop(Nanos now, const IpAddress &remote, const Mac &mac, std::uint16_t vlan, std::uint16_t link_mtu)
{
    const NextHopIndex index = tcp_.next_hops().find(remote);
    if (index == kNoNextHop)
        return; // nobody uses it any more
    const std::uint32_t mtu = path_mtus_.get(remote, std::min(link_mtu, mtu_), now);
    tcp_.next_hops().set(index, mac, vlan, static_cast<std::uint16_t>(mtu));
    tcp_.next_hop_changed(now, index);
}

void Stack::fail_next_hop(Nanos now, const IpAddress &remote)
{
    if (const NextHopIndex index = tcp_.next_hops().find(remote); index != kNoNextHop)
        tcp_.next_hop_failed(now, index);
}

Fragmenter Stack::datagram(Nanos now, NextHopIndex next_hop, const IpOut &ip, std::span<const Bytes> parts)
{
    const NextHop &to = tcp_.next_hops()[next_hop];
    const std::uint64_t hash =
        hash_flow<SecretHash>(secret_, {{ip.source, 0}, {ip.target, static_cast<std::uint16_t>(ip.protocol)}}, 4);
    const std::uint32_t mtu = path_mtus_.get(ip.target, to.mtu, now);
    return {{to.mac, mac_, to.vlan}, ip, parts, mtu, ids_.next(hash)};
}

std::array<std::uint8_t, kUdpHeader> Stack::datagram_header(const Fragmenter &frames, const IpOut &ip, UdpPorts ports,
                                                            std::span<const Bytes> data, FrameWork &work) const
{
    work = FrameWork();
    if (frames.frames() != 1 || !offloads_.sums(ip.target))
        return udp_header(ip, ports, data);
    work = {static_cast<std::uint16_t>(frames.headers()), kUdpChecksumAt};
    return unsummed_udp_header(ip, ports, data);
}

} // namespace vma::inet
