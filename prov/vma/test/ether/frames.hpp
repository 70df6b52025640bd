// SPDX-License-Identifier: BSD-2-Clause
// Frames for the tests of steering: a few headers with what steering looks at, all else zero.
#pragma once

#include <cstdint>
#include <vector>

#include "inet/wire/bytes.hpp"
#include "inet/wire/types.hpp"

namespace frames {

using Bytes = std::vector<std::uint8_t>;

inline void put16(Bytes &frame, unsigned value)
{
    frame.push_back(static_cast<std::uint8_t>(value >> 8));
    frame.push_back(static_cast<std::uint8_t>(value));
}

// An Ethernet header with those VLAN tags, the outer one first. `tags`: tag protocol << 16 | tag.
inline Bytes ethernet(unsigned type, std::initializer_list<std::uint32_t> tags = {})
{
    Bytes frame(12);
    for (const std::uint32_t tag : tags) {
        put16(frame, tag >> 16);
        put16(frame, tag & 0xffff);
    }
    put16(frame, type);
    return frame;
}

struct Ip {
    vma::inet::Flow flow; // of the receiver: the frame is from its remote side
    std::uint8_t protocol = 17;
    unsigned options = 0;  // words of IPv4's
    unsigned fragment = 0; // IPv4's field: flags and offset; IPv6: a fragment header with this in it, if has_fragment
    bool has_fragment = false;
};

// Appends the IP header, the ports and eight bytes more.
inline void append(Bytes &frame, const Ip &ip)
{
    const vma::inet::IpAddress &from = ip.flow.remote.address;
    const vma::inet::IpAddress &to = ip.flow.local.address;
    if (from.is_v4()) {
        Bytes header(20 + 4 * ip.options);
        header[0] = static_cast<std::uint8_t>(0x45 + ip.options);
        vma::inet::store16(&header[6], static_cast<std::uint16_t>(ip.fragment));
        header[9] = ip.protocol;
        memcpy(&header[12], from.v4_bytes(), 4);
        memcpy(&header[16], to.v4_bytes(), 4);
        frame.insert(frame.end(), header.begin(), header.end());
    } else {
        Bytes header(40);
        header[0] = 0x60;
        header[6] = ip.has_fragment ? 44 : ip.protocol;
        memcpy(&header[8], from.bytes.data(), 16);
        memcpy(&header[24], to.bytes.data(), 16);
        if (ip.has_fragment) {
            header.resize(48);
            header[40] = ip.protocol;
            vma::inet::store16(&header[42], static_cast<std::uint16_t>(ip.fragment));
        }
        frame.insert(frame.end(), header.begin(), header.end());
    }
    put16(frame, ip.flow.remote.port);
    put16(frame, ip.flow.local.port);
    frame.resize(frame.size() + 8);
}

inline Bytes make(const Ip &ip, std::initializer_list<std::uint32_t> tags = {})
{
    Bytes frame = ethernet(ip.flow.remote.address.is_v4() ? 0x0800 : 0x86dd, tags);
    append(frame, ip);
    return frame;
}

} // namespace frames
