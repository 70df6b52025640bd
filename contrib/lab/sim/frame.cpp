// SPDX-License-Identifier: BSD-2-Clause
#include "contrib/lab/sim/frame.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>

namespace vma::sim {
namespace {

constexpr std::size_t kEthernet = 14;
constexpr std::size_t kTag = 4;
constexpr std::size_t kIpv4 = 20;
constexpr std::size_t kIpv6 = 40;
constexpr std::uint16_t kFragment = 0x3fff; // more fragments, and the offset

std::uint16_t wire16(const std::uint8_t *at)
{
    std::uint16_t field;
    std::memcpy(&field, at, sizeof field);
    return field;
}

std::uint16_t host16(const std::uint8_t *at)
{
    return ntohs(wire16(at));
}

void parse_ports(std::span<const std::uint8_t> frame, Headers &headers)
{
    const std::size_t least = headers.protocol == IPPROTO_TCP ? 20 : 8;
    if ((headers.protocol != IPPROTO_TCP && headers.protocol != IPPROTO_UDP) ||
        headers.end < headers.transport_at + least)
        return;
    headers.ports_known = true;
    headers.source_port = wire16(&frame[headers.transport_at]);
    headers.target_port = wire16(&frame[headers.transport_at + 2]);
}

void parse_ipv4(std::span<const std::uint8_t> frame, Headers &headers)
{
    const std::uint8_t *const ip = frame.data() + headers.ip_at;
    const std::size_t room = frame.size() - headers.ip_at;
    const std::size_t header = room < kIpv4 ? 0 : std::size_t{4} * (ip[0] & 0xf);
    if (header < kIpv4 || ip[0] >> 4 != 4 || host16(ip + 2) < header || host16(ip + 2) > room)
        return;
    headers.ip = Headers::Ip::v4;
    headers.source = ip + 12;
    headers.target = ip + 16;
    headers.protocol = ip[9];
    headers.transport_at = headers.ip_at + header;
    headers.end = headers.ip_at + host16(ip + 2);
    if ((host16(ip + 6) & kFragment) == 0)
        parse_ports(frame, headers);
}

void parse_ipv6(std::span<const std::uint8_t> frame, Headers &headers)
{
    const std::uint8_t *const ip = frame.data() + headers.ip_at;
    const std::size_t room = frame.size() - headers.ip_at;
    if (room < kIpv6 || ip[0] >> 4 != 6 || host16(ip + 4) > room - kIpv6)
        return;
    headers.ip = Headers::Ip::v6;
    headers.source = ip + 8;
    headers.target = ip + 24;
    headers.protocol = ip[6]; // extension headers hide what is behind them
    headers.transport_at = headers.ip_at + kIpv6;
    headers.end = headers.transport_at + host16(ip + 4);
    parse_ports(frame, headers);
}

std::uint32_t add(std::uint32_t sum, std::span<const std::uint8_t> bytes)
{
    for (std::size_t i = 0; i < bytes.size(); ++i)
        sum += i % 2 == 0 ? std::uint32_t{bytes[i]} << 8 : bytes[i];
    return sum;
}

std::uint16_t finish(std::uint32_t sum)
{
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return static_cast<std::uint16_t>(~sum);
}

std::uint16_t sum_of_ip(std::span<const std::uint8_t> frame, const Headers &headers)
{
    return finish(add(0, frame.subspan(headers.ip_at, headers.transport_at - headers.ip_at)));
}

std::uint16_t sum_of_transport(std::span<const std::uint8_t> frame, const Headers &headers)
{
    const std::size_t length = headers.end - headers.transport_at;
    const std::size_t address = headers.ip == Headers::Ip::v4 ? 4 : 16;
    std::uint32_t sum = headers.protocol + static_cast<std::uint32_t>(length);
    sum = add(sum, {headers.source, address});
    sum = add(sum, {headers.target, address});
    return finish(add(sum, frame.subspan(headers.transport_at, length)));
}

std::size_t checksum_at(const Headers &headers)
{
    return headers.transport_at + (headers.protocol == IPPROTO_TCP ? 16 : 6);
}

void put(std::span<std::uint8_t> frame, std::size_t at, std::uint16_t value)
{
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
}

} // namespace

bool parse(std::span<const std::uint8_t> frame, Headers &headers)
{
    if (frame.size() < kEthernet)
        return false;
    headers.target_mac = frame.data();
    headers.source_mac = frame.data() + 6;
    headers.ip_at = kEthernet;
    if (host16(&frame[12]) == 0x8100 && frame.size() >= kEthernet + kTag) {
        headers.vlan_tag = wire16(&frame[14]);
        headers.ip_at += kTag;
    }
    headers.ether_type = wire16(&frame[headers.ip_at - 2]);
    if (headers.ether_type == htons(0x0800))
        parse_ipv4(frame, headers);
    else if (headers.ether_type == htons(0x86dd))
        parse_ipv6(frame, headers);
    return true;
}

bool checksums_right(std::span<const std::uint8_t> frame, const Headers &headers)
{
    if (!headers.ports_known || (headers.ip == Headers::Ip::v4 && sum_of_ip(frame, headers) != 0))
        return false;
    const bool none = headers.protocol == IPPROTO_UDP && wire16(&frame[checksum_at(headers)]) == 0;
    return none || sum_of_transport(frame, headers) == 0;
}

void write_checksums(std::span<std::uint8_t> frame, const Headers &headers)
{
    if (!headers.ports_known)
        return;
    if (headers.ip == Headers::Ip::v4) {
        put(frame, headers.ip_at + 10, 0);
        put(frame, headers.ip_at + 10, sum_of_ip(frame, headers));
    }
    put(frame, checksum_at(headers), 0);
    const std::uint16_t sum = sum_of_transport(frame, headers);
    put(frame, checksum_at(headers), sum == 0 ? 0xffff : sum);
}

bool cut(std::span<const std::uint8_t> header, std::span<const std::uint8_t> data, std::size_t size,
         std::vector<std::vector<std::uint8_t>> &frames)
{
    constexpr std::size_t kTcp = 20;
    constexpr std::uint8_t kLastOnly = 0x08 | 0x01; // PSH, FIN
    constexpr std::uint8_t kFirstOnly = 0x80;       // CWR
    std::vector<std::uint8_t> whole(header.begin(), header.end());
    whole.insert(whole.end(), data.begin(), data.end());
    Headers headers;
    if (data.empty() || !parse(whole, headers) || !headers.ports_known || headers.protocol != IPPROTO_TCP ||
        header.size() < headers.transport_at + kTcp ||
        headers.transport_at + std::size_t{4} * (whole[headers.transport_at + 12] >> 4) != header.size())
        return false;
    const std::size_t ip = headers.ip_at;
    const std::size_t tcp = headers.transport_at;
    const bool v4 = headers.ip == Headers::Ip::v4;
    const std::uint32_t sequence = std::uint32_t{host16(&whole[tcp + 4])} << 16 | host16(&whole[tcp + 6]);
    for (std::size_t at = 0; at < data.size(); at += size) {
        const std::span piece = data.subspan(at, std::min(size, data.size() - at));
        std::vector<std::uint8_t> &frame = frames.emplace_back(header.begin(), header.end());
        frame.insert(frame.end(), piece.begin(), piece.end());
        put(frame, ip + (v4 ? 2 : 4), static_cast<std::uint16_t>(frame.size() - (v4 ? ip : tcp)));
        if (v4)
            put(frame, ip + 4, static_cast<std::uint16_t>(host16(&header[ip + 4]) + frames.size() - 1));
        const auto number = sequence + static_cast<std::uint32_t>(at);
        put(frame, tcp + 4, static_cast<std::uint16_t>(number >> 16));
        put(frame, tcp + 6, static_cast<std::uint16_t>(number));
        if (at != 0)
            frame[tcp + 13] &= static_cast<std::uint8_t>(~kFirstOnly);
        if (at + piece.size() != data.size())
            frame[tcp + 13] &= static_cast<std::uint8_t>(~kLastOnly);
    }
    return true;
}

} // namespace vma::sim
