// SPDX-License-Identifier: BSD-2-Clause
// Reading and writing of TCP's header. The common options, time stamps with two paddings before them, have a short way.
#include "prov/vma/src/inet/tcp/segment.hpp"

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace vma::inet {

namespace {

enum OptionKind : std::uint8_t {
    kEnd = 0,
    kNop = 1,
    kMss = 2,
    kWindowScale = 3,
    kSackPermitted = 4,
    kSack = 5,
    kTimestamps = 8,
};

constexpr std::uint32_t kAlignedTimestamps = 0x0101080a; // NOP, NOP, kind, length

void read_timestamps(const std::uint8_t *value, TcpOptions &options)
{
    options.has_timestamps = true;
    options.timestamp = load32(value);
    options.timestamp_echo = load32(value + 4);
}

void read_option(std::uint8_t kind, const std::uint8_t *value, std::size_t len, TcpOptions &options)
{
    switch (kind) {
    case kMss:
        if (len == 2)
            options.mss = load16(value);
        break;
    case kWindowScale:
        if (len == 1) {
            options.has_window_scale = true;
            options.window_scale = value[0] < kLargestShift ? value[0] : kLargestShift;
        }
        break;
    case kSackPermitted:
        options.sack_permitted = options.sack_permitted || len == 0;
        break;
    case kSack:
        for (std::size_t at = 0; at + 8 <= len && options.sacks < kMostSacks; at += 8)
            options.sack[options.sacks++] = {load32(value + at), load32(value + at + 4)};
        break;
    case kTimestamps:
        if (len == 8)
            read_timestamps(value, options);
        break;
    default:
        break;
    }
}

void read_options(const std::uint8_t *p, std::size_t len, TcpOptions &options)
{
    while (len != 0) {
        if (*p == kEnd)
            return;
        if (*p == kNop) {
            ++p;
            --len;
            continue;
        }
        if (len < 2 || p[1] < 2 || p[1] > len)
            return;
        read_option(p[0], p + 2, std::size_t{p[1]} - 2, options);
        len -= p[1];
        p += p[1];
    }
}

bool is_left_out(const Packet &packet)
{
    constexpr std::size_t kChecksumAt = 16;
    return packet.info.partial_sums != PartialSums::kNone &&
           is_partial(load16(&packet.payload[kChecksumAt]),
                      pseudo_sum(packet.source, packet.target, Protocol::kTcp,
                                 static_cast<std::uint32_t>(packet.payload.size())));
}

} // namespace

bool parse_segment(const Packet &packet, Segment &segment)
{
    const std::span<const std::uint8_t> bytes = packet.payload;
    if (bytes.size() < kTcpHeader)
        return false;
    const std::uint8_t *const p = bytes.data();
    const std::size_t header = std::size_t{p[12]} >> 4 << 2;
    if (header < kTcpHeader || header > bytes.size())
        return false;
    if (!packet.info.checksums_good && !is_left_out(packet) &&
        finish(sum_tcp_header(p, bytes.size(), 0, packet.source, packet.target)) != 0)
        return false;
    segment.source_port = load16(p);
    segment.target_port = load16(p + 2);
    segment.seq = load32(p + 4);
    segment.ack = load32(p + 8);
    segment.flags = p[13];
    segment.window = load16(p + 14);
    segment.options = TcpOptions();
    segment.data = bytes.subspan(header);
    if (header == kTcpHeader + kTimestampsSize && load32(p + kTcpHeader) == kAlignedTimestamps)
        read_timestamps(p + kTcpHeader + 4, segment.options);
    else if (header != kTcpHeader)
        read_options(p + kTcpHeader, header - kTcpHeader, segment.options);
    return true;
}

std::size_t options_size(const TcpOptions &options)
{
    std::size_t size = 0;
    if (options.mss != 0)
        size += 4;
    if (options.has_window_scale)
        size += 4;
    if (options.has_timestamps)
        size += kTimestampsSize;
    if (options.sack_permitted)
        size += 4;
    if (options.sacks != 0)
        size += 4 + 8 * std::size_t{options.sacks};
    return size;
}

std::size_t write_tcp_header(std::uint8_t *out, const Segment &segment)
{
    const TcpOptions &options = segment.options;
    const std::size_t header = kTcpHeader + options_size(options);
    store16(out, segment.source_port);
    store16(out + 2, segment.target_port);
    store32(out + 4, segment.seq);
    store32(out + 8, segment.has(kAck) ? segment.ack : 0);
    out[12] = static_cast<std::uint8_t>(header << 2);
    out[13] = segment.flags;
    store16(out + 14, segment.window);
    store32(out + 16, 0); // checksum, urgent pointer
    std::uint8_t *p = out + kTcpHeader;
    if (options.mss != 0) {
        store32(p, std::uint32_t{kMss} << 24 | 4U << 16 | options.mss);
        p += 4;
    }
    if (options.has_window_scale) {
        store32(p, std::uint32_t{kNop} << 24 | std::uint32_t{kWindowScale} << 16 | 3U << 8 | options.window_scale);
        p += 4;
    }
    if (options.sack_permitted) {
        store32(p, std::uint32_t{kNop} << 24 | std::uint32_t{kNop} << 16 | std::uint32_t{kSackPermitted} << 8 | 2);
        p += 4;
    }
    if (options.has_timestamps) {
        store32(p, kAlignedTimestamps);
        store32(p + 4, options.timestamp);
        store32(p + 8, options.timestamp_echo);
        p += kTimestampsSize;
    }
    if (options.sacks != 0) {
        store32(p, std::uint32_t{kNop} << 24 | std::uint32_t{kNop} << 16 | std::uint32_t{kSack} << 8 |
                       (2U + 8U * options.sacks));
        p += 4;
        for (unsigned i = 0; i < options.sacks; ++i, p += 8) {
            store32(p, options.sack[i].left);
            store32(p + 4, options.sack[i].right);
        }
    }
    return header;
}

std::uint32_t sum_tcp_header(const std::uint8_t *header, std::size_t header_len, std::size_t data_len,
                             const IpAddress &source, const IpAddress &target)
{
    return sum(header, header_len,
               pseudo_sum(source, target, Protocol::kTcp, static_cast<std::uint32_t>(header_len + data_len)));
}

void seal_segment(std::uint8_t *header, std::uint32_t partial_sum)
{
    store16(header + 16, finish(partial_sum));
}

} // namespace vma::inet
