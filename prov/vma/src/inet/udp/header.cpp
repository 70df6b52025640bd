// SPDX-License-Identifier: BSD-2-Clause
// UDP's header and its checksum, where 0 stands for none, so that a sum of 0 is sent as 0xffff (RFC 768).
#include "prov/vma/src/inet/udp/header.hpp"

#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/src/inet/wire/send_offloads.hpp"

namespace vma::inet {
namespace {

void write_header(std::uint8_t *out, const IpOut &ip, UdpPorts ports, std::size_t data_length, std::uint32_t data_sum)
{
    const std::uint16_t length = static_cast<std::uint16_t>(kUdpHeader + data_length);
    store16(out, ports.source);
    store16(out + 2, ports.target);
    store16(out + 4, length);
    const std::uint32_t header =
        pseudo_sum(ip.source, ip.target, Protocol::kUdp, length) + ports.source + ports.target + length;
    const std::uint16_t checksum = finish(header + data_sum);
    store16(out + 6, checksum ? checksum : 0xffff);
}

} // namespace

UdpParsed parse_udp(const Packet &packet, UdpDatagram &out)
{
    const Bytes payload = packet.payload;
    if (payload.size() < kUdpHeader)
        return UdpParsed::kTruncated;
    const std::size_t length = load16(&payload[4]);
    if (length < kUdpHeader || length > payload.size())
        return UdpParsed::kBadLength;
    const bool summed = load16(&payload[6]) != 0;
    if (!summed && !packet.target.is_v4())
        return UdpParsed::kNoChecksum;
    if (summed && !packet.info.checksums_good) {
        const std::uint32_t pseudo =
            pseudo_sum(packet.source, packet.target, Protocol::kUdp, static_cast<std::uint32_t>(length));
        const bool left_out = packet.info.partial_sums == PartialSums::kAny && is_partial(load16(&payload[6]), pseudo);
        if (!left_out && finish(sum(payload.data(), length, pseudo)) != 0)
            return UdpParsed::kBadChecksum;
    }
    out.source_port = load16(&payload[0]);
    out.target_port = load16(&payload[2]);
    out.data = payload.subspan(kUdpHeader, length - kUdpHeader);
    return out.target_port ? UdpParsed::kDatagram : UdpParsed::kNoPort;
}

std::array<std::uint8_t, kUdpHeader> udp_header(const IpOut &ip, UdpPorts ports, std::span<const Bytes> data)
{
    std::array<std::uint8_t, kUdpHeader> header;
    std::size_t length = 0;
    std::uint32_t total = 0;
    for (const Bytes part : data) {
        total = sum(part.data(), part.size(), total);
        length += part.size();
    }
    write_header(header.data(), ip, ports, length, total);
    return header;
}

std::array<std::uint8_t, kUdpHeader> unsummed_udp_header(const IpOut &ip, UdpPorts ports, std::span<const Bytes> data)
{
    std::array<std::uint8_t, kUdpHeader> header;
    std::size_t length = kUdpHeader;
    for (const Bytes part : data)
        length += part.size();
    store16(header.data(), ports.source);
    store16(header.data() + 2, ports.target);
    store16(header.data() + 4, static_cast<std::uint16_t>(length));
    leave_sum(header.data(), kUdpChecksumAt,
              pseudo_sum(ip.source, ip.target, Protocol::kUdp, static_cast<std::uint32_t>(length)));
    return header;
}

} // namespace vma::inet
