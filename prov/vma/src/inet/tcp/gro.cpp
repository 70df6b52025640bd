// SPDX-License-Identifier: BSD-2-Clause
// Which segments continue which.
#include "prov/vma/src/inet/tcp/gro.hpp"

#include "prov/vma/src/inet/base/flow_table.hpp"

namespace vma::inet {

namespace {

constexpr std::uint32_t kMixer = 0x9e3779b1; // Fibonacci hashing; what collides costs a run, no more

// Written out, as the compiler makes calls of operator==.
bool is_same(const IpAddress &a, const IpAddress &b)
{
    return ((words(a, 0) ^ words(b, 0)) | (words(a, 1) ^ words(b, 1))) == 0;
}

bool is_same(const Mac &a, const Mac &b)
{
    std::uint32_t low[2];
    std::uint16_t high[2];
    memcpy(&low[0], a.bytes.data(), 4);
    memcpy(&low[1], b.bytes.data(), 4);
    memcpy(&high[0], &a.bytes[4], 2);
    memcpy(&high[1], &b.bytes[4], 2);
    return low[0] == low[1] && high[0] == high[1];
}

} // namespace

std::uint8_t Gro::slot_of(const Packet &packet, const Segment &segment)
{
    const auto ports = std::uint32_t{segment.source_port} << 16 | segment.target_port;
    const auto peer = static_cast<std::uint32_t>(words(packet.source, 1) >> 32);
    return static_cast<std::uint8_t>(((ports ^ peer) * kMixer) >> (32 - kSlotBits));
}

bool Gro::is_plain(const Packet &packet, const Segment &segment)
{
    const std::size_t header = packet.payload.size() - segment.data.size();
    return (segment.flags & ~kPsh) == kAck && !segment.data.empty() &&
           (header == kTcpHeader || (header == kTcpHeader + kTimestampsSize && segment.options.has_timestamps));
}

std::uint8_t Gro::add(const Segment &segment)
{
    pieces_[pieces_used_] = {segment.data, segment.ack, segment.window, segment.flags, kNone};
    return static_cast<std::uint8_t>(pieces_used_++);
}

Gro::Run *Gro::find(const Packet &packet)
{
    slot_ = slot_of(packet, place());
    const std::uint8_t index = slots_[slot_];
    return index == kNone ? nullptr : &runs_[index];
}

bool Gro::append(Run &run, const Packet &packet)
{
    const Segment &next = place();
    const Segment &first = run.segment;
    if (next.seq != run.end || next.source_port != first.source_port || next.target_port != first.target_port ||
        !is_same(packet.source, run.packet.source) || !is_same(packet.target, run.packet.target))
        return false;
    if (!is_plain(packet, next) || packet.traffic_class != run.packet.traffic_class || packet.vlan != run.packet.vlan ||
        !is_same(packet.source_mac, run.packet.source_mac))
        return false;
    if (next.options.has_timestamps != first.options.has_timestamps ||
        next.options.timestamp != first.options.timestamp ||
        next.options.timestamp_echo != first.options.timestamp_echo)
        return false;
    if (!at_or_before(first.ack, next.ack) || !at_or_before(pieces_[run.last].ack, next.ack))
        return false;
    const std::uint8_t index = add(next);
    pieces_[run.last].next = index;
    run.last = index;
    run.end += static_cast<std::uint32_t>(next.data.size());
    ++run.count;
    return true;
}

bool Gro::begin(const Packet &packet)
{
    Run &run = runs_[runs_used_];
    if (!is_plain(packet, run.segment) || open_ >= streams_)
        return false;
    run.packet = packet;
    run.end = run.segment.end();
    run.first = run.last = add(run.segment);
    run.count = 1;
    run.slot = slot_;
    run.open = true;
    slots_[slot_] = static_cast<std::uint8_t>(runs_used_++);
    ++open_;
    return true;
}

} // namespace vma::inet
