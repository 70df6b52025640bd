// SPDX-License-Identifier: BSD-2-Clause
// TCP segments: the header and its options, read and written (RFC 9293, 3.1; RFC 7323; RFC 2018).
#pragma once

#include <span>

#include "prov/vma/src/inet/tcp/seq.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

inline constexpr std::uint8_t kFin = 0x01;
inline constexpr std::uint8_t kSyn = 0x02;
inline constexpr std::uint8_t kRst = 0x04;
inline constexpr std::uint8_t kPsh = 0x08;
inline constexpr std::uint8_t kAck = 0x10;
inline constexpr std::uint8_t kUrg = 0x20;
inline constexpr std::uint8_t kEce = 0x40; // RFC 3168, 6.1
inline constexpr std::uint8_t kCwr = 0x80;

inline constexpr std::size_t kTcpHeader = 20;
inline constexpr std::size_t kTcpOffsetAt = 12; // its upper half byte: the header's length in words of 4 bytes
inline constexpr std::size_t kTcpLongestHeader = 60;
inline constexpr std::size_t kTimestampsSize = 12; // with its padding
inline constexpr unsigned kMostSacks = 4;          // RFC 2018, 3: 40 bytes of options
inline constexpr unsigned kLargestShift = 14;      // RFC 7323, 2.3

// [left, right)
struct SeqRange {
    Seq left = 0;
    Seq right = 0;

    bool operator==(const SeqRange &) const = default;
};

struct TcpOptions {
    bool has_timestamps = false;
    bool has_window_scale = false;
    bool sack_permitted = false;
    std::uint8_t window_scale = 0;
    std::uint8_t sacks = 0;
    std::uint16_t mss = 0; // 0: none
    std::uint32_t timestamp = 0;
    std::uint32_t timestamp_echo = 0;
    SeqRange sack[kMostSacks] = {};
};

struct Segment {
    std::uint16_t source_port = 0;
    std::uint16_t target_port = 0;
    Seq seq = 0;
    Seq ack = 0;
    std::uint8_t flags = 0;
    std::uint16_t window = 0; // as it stands in the header
    TcpOptions options;
    std::span<const std::uint8_t> data;

    bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
    std::uint32_t length() const // in sequence numbers
    {
        return static_cast<std::uint32_t>(data.size()) + (has(kSyn) ? 1 : 0) + (has(kFin) ? 1 : 0);
    }
    Seq end() const { return seq + length(); }
};

// What the segment says; the data points into the packet. False: too short, a bad offset or checksum: not a segment.
// A malformed option ends the reading of options, as the kernel does it, and doesn't condemn the segment.
bool parse_segment(const Packet &packet, Segment &segment);

// The options' length, padding included.
std::size_t options_size(const TcpOptions &options);

// Writes header and options in front of `segment.data`'s place; the length. The checksum field is 0: see
// seal_segment().
std::size_t write_tcp_header(std::uint8_t *out, const Segment &segment);

// The checksum in two steps, as the data is copied between them: the sum of what stands before it (an even number of
// bytes), then the field, from the sum over everything.
std::uint32_t sum_tcp_header(const std::uint8_t *header, std::size_t header_len, std::size_t data_len,
                             const IpAddress &source, const IpAddress &target);
void seal_segment(std::uint8_t *header, std::uint32_t partial_sum);

} // namespace vma::inet
