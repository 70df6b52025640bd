// SPDX-License-Identifier: BSD-2-Clause
// A whole UDP frame for tests: the stack writes one in two steps, the header and what follows it.
#pragma once

#include <algorithm>

#include "prov/vma/src/inet/udp/header.hpp"

namespace vma::inet {

// `out`: room for the frame. Returns its bytes.
inline std::size_t write_udp_frame(std::uint8_t *out, const L2 &l2, const IpOut &ip, UdpPorts ports,
                                   std::span<const Bytes> data)
{
    std::size_t length = kUdpHeader;
    for (const Bytes part : data)
        length += part.size();
    std::uint8_t *to = out + write_headers(out, l2, ip, length);
    to = std::ranges::copy(udp_header(ip, ports, data), to).out;
    for (const Bytes part : data)
        to = std::ranges::copy(part, to).out;
    return static_cast<std::size_t>(to - out);
}

} // namespace vma::inet
