// SPDX-License-Identifier: BSD-2-Clause
#include "flow.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "inet/tcp/segment.hpp"
#include "inet/wire/ip_header.hpp"

namespace vma::guard {

namespace {

// Half of all numbers further: no window is wider than a quarter (RFC 7323, 2.3).
constexpr std::uint32_t kOtherSide = 1U << 31;

// The stamp must not be older than the last that the process has sent, or the peer may be silent (RFC 7323, 5.3). What
// the message was under way comes on top.
constexpr std::uint32_t kStampMargin = 1000; // ms

bool is_host(const inet::IpAddress &address)
{
    return !address.is_any() && !address.is_multicast();
}

std::string text_of(const inet::IpAddress &address, std::uint16_t port)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (address.is_v4()) {
        inet_ntop(AF_INET, address.v4_bytes(), text, sizeof text);
        return std::string(text) + ":" + std::to_string(port);
    }
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(port);
}

} // namespace

FlowKey key_of(const ether::GuardianMessage &message)
{
    return {message.local, message.remote, message.local_port, message.remote_port};
}

FlowState state_of(const ether::GuardianMessage &message, Nanos now)
{
    return {message.seq, message.ack, message.stamp, message.echo, message.timestamps != 0, now};
}

bool is_plausible(const FlowKey &key)
{
    return key.local.is_v4() == key.remote.is_v4() && is_host(key.local) && is_host(key.remote) &&
           key.local_port != 0 && key.remote_port != 0;
}

std::string text_of(const FlowKey &key)
{
    return text_of(key.local, key.local_port) + " to " + text_of(key.remote, key.remote_port);
}

std::size_t write_probe(const FlowKey &key, const FlowState &state, unsigned round, Nanos now, Probe &out)
{
    inet::Segment segment;
    segment.source_port = key.local_port;
    segment.target_port = key.remote_port;
    segment.flags = inet::kAck;
    segment.seq = state.seq + (round % 2 != 0 ? kOtherSide : 0);
    segment.ack = state.ack;
    segment.window = 0xffff;
    if (state.timestamps) {
        segment.options.has_timestamps = true;
        segment.options.timestamp =
            state.stamp + static_cast<std::uint32_t>((now - state.since) / inet::kMillisecond) + kStampMargin;
        segment.options.timestamp_echo = state.echo;
    }
    inet::IpOut header;
    header.source = key.local;
    header.target = key.remote;
    header.protocol = inet::Protocol::kTcp;
    std::uint8_t *const tcp = out.data() + inet::ip_header_size(key.remote);
    const std::size_t length = inet::write_tcp_header(tcp, segment);
    inet::seal_segment(tcp, inet::sum_tcp_header(tcp, length, 0, key.local, key.remote));
    return inet::write_ip_header(out.data(), header, length) + length;
}

} // namespace vma::guard
