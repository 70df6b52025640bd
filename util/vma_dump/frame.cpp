// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/frame.hpp"

#include <string.h>

#include <algorithm>
#include <utility>

#include "inet/wire/bytes.hpp"
#include "inet/wire/checksum.hpp"
#include "inet/wire/ethernet.hpp"
#include "inet/wire/ip_header.hpp"
#include "inet/wire/types.hpp"

namespace vma_dump {

namespace {

using namespace vma::inet;
using vma::stats::CaptureRecord;

constexpr std::size_t kTcpHeader = 20;
constexpr std::size_t kUdpHeader = 8;
constexpr std::uint8_t kAckPush = 0x18;
constexpr std::uint32_t kFirstByte = 1; // of a stream: behind the SYN, which nobody sees

bool is_udp(const CaptureRecord &r)
{
    return (r.flags & vma::stats::kCaptureUdp) != 0;
}

// Who sends it first. Both of one family: an address that is not known is that family's 0.
std::pair<Endpoint, Endpoint> ends_of(const CaptureRecord &r)
{
    Endpoint local = {IpAddress::v6(r.local), r.local_port};
    const Endpoint peer = {IpAddress::v6(r.peer), r.peer_port};
    if (local.address.is_v4() != peer.address.is_v4())
        local.address = peer.address.is_v4() ? IpAddress::v4(std::uint32_t{0}) : IpAddress{};
    return (r.flags & vma::stats::kCaptureOut) != 0 ? std::pair{local, peer} : std::pair{peer, local};
}

// Of a network that there is not: locally administered, with the end of the address. That of a group is the group's
// own (RFC 1112, 6.4; RFC 2464, 7).
Mac mac_of(const IpAddress &address)
{
    Mac mac = {{0x02, 0x00, 0, 0, 0, 0}};
    std::copy(address.bytes.end() - 4, address.bytes.end(), mac.bytes.begin() + 2);
    if (!address.is_multicast())
        return mac;
    if (!address.is_v4()) {
        mac.bytes[0] = mac.bytes[1] = 0x33;
        return mac;
    }
    mac.bytes[0] = 0x01;
    mac.bytes[2] = 0x5e;
    mac.bytes[3] = mac.bytes[3] & 0x7f;
    return mac;
}

void write_tcp(std::uint8_t *out, const CaptureRecord &r, const Endpoint &from, const Endpoint &to)
{
    store16(out, from.port);
    store16(out + 2, to.port);
    store32(out + 4, static_cast<std::uint32_t>(r.before) + kFirstByte);
    store32(out + 8, static_cast<std::uint32_t>(r.other) + kFirstByte);
    out[12] = kTcpHeader / 4 << 4;
    out[13] = kAckPush;
    store16(out + 14, 0xffff);
    store32(out + 16, 0); // checksum, urgent pointer
}

void write_udp(std::uint8_t *out, const CaptureRecord &r, const Endpoint &from, const Endpoint &to)
{
    store16(out, from.port);
    store16(out + 2, to.port);
    store16(out + 4, static_cast<std::uint16_t>(kUdpHeader + r.length));
    store16(out + 6, 0);
}

} // namespace

bool is_sound(const CaptureRecord &head)
{
    return head.length <= vma::stats::kMostPayload && head.copied <= head.length &&
           head.size % vma::stats::kCaptureCell == 0 && head.size >= vma::stats::capture_record_size(head.copied) &&
           head.size <= vma::stats::capture_record_size(vma::stats::kMostPayload);
}

bool Message::take(const CaptureRecord &head, const CaptureRecord *record)
{
    head_ = head;
    if (!is_sound(head_))
        return false;
    memcpy(room_.data() + kHeaders, record + 1, head_.copied);
    return true;
}

Frame Message::frame(std::uint32_t snap)
{
    const auto [from, to] = ends_of(head_);
    const Protocol protocol = is_udp(head_) ? Protocol::kUdp : Protocol::kTcp;
    const std::size_t transport = is_udp(head_) ? kUdpHeader : kTcpHeader;
    const std::size_t headers = kEthernetHeader + ip_header_size(to.address) + transport;
    std::uint8_t *const begin = room_.data() + kHeaders - headers;
    const L2 l2 = {mac_of(to.address), mac_of(from.address)};
    const IpOut ip = {from.address, to.address, protocol};
    std::uint8_t *const segment = begin + write_headers(begin, l2, ip, transport + head_.length);
    (is_udp(head_) ? write_udp : write_tcp)(segment, head_, from, to);
    if (head_.copied == head_.length) { // else it can't be known
        const auto length = static_cast<std::uint32_t>(transport + head_.length);
        const std::uint32_t pseudo = pseudo_sum(from.address, to.address, protocol, length);
        const std::uint16_t checksum = finish(sum(segment, length, pseudo));
        store16(segment + (is_udp(head_) ? 6 : 16), checksum != 0 || !is_udp(head_) ? checksum : 0xffff);
    }
    const auto whole = static_cast<std::uint32_t>(headers + head_.length);
    const auto there = static_cast<std::uint32_t>(headers + head_.copied);
    return {begin, std::min(there, snap), whole};
}

} // namespace vma_dump
