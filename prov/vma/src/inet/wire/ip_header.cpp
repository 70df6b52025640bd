// SPDX-License-Identifier: BSD-2-Clause
// IP headers written: RFC 791, 3.1 and RFC 8200, 3. Every field is set, so the memory under them need not be clean.
#include "prov/vma/src/inet/wire/ip_header.hpp"

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace vma::inet {
namespace {

void write_ipv4(std::uint8_t *out, const IpOut &ip, std::size_t payload, std::uint16_t fragment)
{
    out[0] = 0x45;
    out[1] = ip.traffic_class;
    store16(out + 2, static_cast<std::uint16_t>(kIpv4Header + payload));
    store16(out + 4, ip.id);
    store16(out + 6, static_cast<std::uint16_t>(fragment | (ip.dont_fragment ? kDontFragment : 0)));
    out[8] = ip.hop_limit;
    out[9] = static_cast<std::uint8_t>(ip.protocol);
    store16(out + 10, 0);
    memcpy(out + 12, ip.source.v4_bytes(), 4);
    memcpy(out + 16, ip.target.v4_bytes(), 4);
    store16(out + 10, finish(sum_fixed<kIpv4Header>(out)));
}

void write_ipv6(std::uint8_t *out, const IpOut &ip, std::size_t payload)
{
    store32(out, 0x60000000u | std::uint32_t{ip.traffic_class} << 20 | (ip.flow_label & 0xfffff));
    store16(out + 4, static_cast<std::uint16_t>(payload));
    out[6] = static_cast<std::uint8_t>(ip.protocol);
    out[7] = ip.hop_limit;
    memcpy(out + 8, ip.source.bytes.data(), 16);
    memcpy(out + 24, ip.target.bytes.data(), 16);
}

} // namespace

std::size_t write_ip_header(std::uint8_t *out, const IpOut &ip, std::size_t payload, std::uint16_t fragment)
{
    if (ip.target.is_v4()) {
        write_ipv4(out, ip, payload, fragment);
        return kIpv4Header;
    }
    write_ipv6(out, ip, payload);
    return kIpv6Header;
}

} // namespace vma::inet
