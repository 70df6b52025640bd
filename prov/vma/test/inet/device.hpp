// SPDX-License-Identifier: BSD-2-Clause
// A device that does what the stack has left to it, byte by byte and with nothing of the stack's: checksums of TCP and
// UDP, and the cutting of TCP segments.
#pragma once

#include "prov/vma/test/inet/frames.hpp"

#include "prov/vma/src/inet/wire/send_offloads.hpp"

namespace frames {

// RFC 1071, 4.1, as it stands there.
inline std::uint16_t plain_sum(std::span<const std::uint8_t> bytes, std::uint32_t start = 0)
{
    std::uint32_t total = start;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        total += i % 2 == 0 ? std::uint32_t{bytes[i]} << 8 : bytes[i];
    while (total >> 16 != 0)
        total = (total & 0xffff) + (total >> 16);
    return static_cast<std::uint16_t>(total);
}

// Of an untagged or tagged frame without IP options.
struct Layout {
    explicit Layout(std::span<const std::uint8_t> frame)
        : ip(frame[12] == 0x81 ? 18 : 14), ipv6(frame[ip] >> 4 == 6), transport(ip + (ipv6 ? 40U : 20U)),
          end(ip + (ipv6 ? 40U + frame[ip + 4] * 256U + frame[ip + 5] : frame[ip + 2] * 256U + frame[ip + 3])),
          protocol(frame[ip + (ipv6 ? 6 : 9)])
    {
    }

    std::uint32_t pseudo(std::span<const std::uint8_t> frame) const
    {
        const std::size_t from = ip + (ipv6 ? 8 : 12);
        return std::uint32_t{plain_sum(frame.subspan(from, ipv6 ? 32 : 8))} + protocol +
               static_cast<std::uint32_t>(end - transport);
    }
    bool sums_are_right(std::span<const std::uint8_t> frame) const
    {
        return (ipv6 || plain_sum(frame.subspan(ip, 20)) == 0xffff) &&
               plain_sum(frame.subspan(transport, end - transport), pseudo(frame)) == 0xffff;
    }

    std::size_t ip;
    bool ipv6;
    std::size_t transport;
    std::size_t end; // of the packet
    unsigned protocol;
};

// The checksum is what the field and all behind it give (the kernel's skb_checksum_help()).
inline void complete(std::span<std::uint8_t> frame, const FrameWork &work)
{
    const Layout at(frame);
    const auto sum = static_cast<std::uint16_t>(~plain_sum(frame.subspan(work.transport, at.end - work.transport)));
    const std::uint16_t field = sum == 0 ? 0xffff : sum;
    frame[std::size_t{work.transport} + work.checksum] = static_cast<std::uint8_t>(field >> 8);
    frame[std::size_t{work.transport} + work.checksum + 1] = static_cast<std::uint8_t>(field);
}

// Each segment with the headers of the whole. The ids go up, as RFC 791 wants them where there may be fragments.
inline std::vector<Frame> cut(const Frame &whole, const FrameWork &work)
{
    if (work.segment == 0)
        return {whole};
    std::vector<Frame> pieces;
    const Layout at(whole);
    const auto number = [](Frame &frame, std::size_t from, std::size_t bytes, std::size_t value) {
        for (std::size_t i = 0; i < bytes; ++i)
            frame[from + i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
    };
    for (std::size_t from = work.headers; from < at.end; from += work.segment) {
        const std::size_t to = std::min(from + work.segment, at.end);
        Frame piece(whole.begin(), whole.begin() + work.headers);
        piece.insert(piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(from),
                     whole.begin() + static_cast<std::ptrdiff_t>(to));
        number(piece, at.ip + (at.ipv6 ? 4 : 2), 2, piece.size() - at.ip - (at.ipv6 ? 40 : 0));
        if (!at.ipv6) {
            number(piece, at.ip + 4, 2, whole[at.ip + 4] * 256U + whole[at.ip + 5] + pieces.size());
            number(piece, at.ip + 10, 2, 0);
            number(piece, at.ip + 10, 2, 0xffff ^ plain_sum(std::span(piece).subspan(at.ip, 20)));
        }
        std::size_t sequence = 0;
        for (std::size_t i = 4; i < 8; ++i)
            sequence = sequence * 256 + whole[at.transport + i];
        sequence += from - work.headers;
        number(piece, at.transport + 4, 4, sequence);
        if (from != work.headers)
            piece[at.transport + 13] &= 0x7f; // CWR
        if (to != at.end)
            piece[at.transport + 13] &= 0xf6; // PSH, FIN
        number(piece, at.transport + 16, 2, 0);
        number(piece, at.transport + 16, 2,
               0xffff ^ plain_sum(std::span(piece).subspan(at.transport), Layout(piece).pseudo(piece)));
        pieces.push_back(std::move(piece));
    }
    return pieces;
}

} // namespace frames
