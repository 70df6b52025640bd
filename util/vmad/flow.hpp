// SPDX-License-Identifier: BSD-2-Clause
// A connection that is guarded, and the segment that makes its peer end it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "ether/guardian_message.hpp"
#include "inet/wire/types.hpp"

namespace vma::guard {

using Nanos = inet::Nanos;

// What a connection is known by, in an order for std::map: no choice of addresses makes that slow.
struct FlowKey {
    inet::IpAddress local;
    inet::IpAddress remote;
    std::uint16_t local_port;
    std::uint16_t remote_port;

    bool operator<(const FlowKey &other) const
    {
        return std::tie(local.bytes, remote.bytes, local_port, remote_port) <
               std::tie(other.local.bytes, other.remote.bytes, other.local_port, other.remote_port);
    }
};

struct FlowState {
    std::uint32_t seq;
    std::uint32_t ack;
    std::uint32_t stamp; // at `since`
    std::uint32_t echo;
    bool timestamps;
    Nanos since;
};

FlowKey key_of(const ether::GuardianMessage &message);
FlowState state_of(const ether::GuardianMessage &message, Nanos now);
// Whether it can be a connection: addresses of one family that hosts have, and ports.
bool is_plausible(const FlowKey &key);
std::string text_of(const FlowKey &key);

using Probe = std::array<std::uint8_t, 128>;

// A segment without data that lies outside of any window, in an IP packet: the peer, if it still has the connection,
// answers with an ACK (RFC 9293, 3.10.7.4), and the kernel that hears of no such connection resets it, by the right
// number. Of two successive rounds at least one lies outside, however much was sent since. Bytes written.
std::size_t write_probe(const FlowKey &key, const FlowState &state, unsigned round, Nanos now, Probe &out);

} // namespace vma::guard
