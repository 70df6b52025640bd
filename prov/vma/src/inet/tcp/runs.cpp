// SPDX-License-Identifier: BSD-2-Clause
// Runs of segments (gro.hpp) on their way in. One that is just what its connection waits for is taken as one segment:
// one look-up, one acknowledgement read, one event; what it means for our acknowledgements is still reckoned segment by
// segment, so that the peer can't tell. Any other is taken apart again.
#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

void Tcp::gather(Nanos now, const Packet &packet)
{
    if (!gro_.is_on()) {
        input(now, packet);
        return;
    }
    if (gro_.is_full())
        flush(now);
    if (!read(packet, gro_.place()))
        return;
    if (Gro::Run *const run = gro_.find(packet); run != nullptr) {
        if (gro_.append(*run, packet))
            return;
        gro_.close(*run); // what is in front of it; or of another flow, whose slot is wanted
        take_run(now, *run);
    }
    if (!gro_.begin(packet))
        take(now, packet, gro_.place());
}

void Tcp::flush(Nanos now)
{
    gro_.clear([this, now](const Gro::Run &run) { take_run(now, run); });
}

void Tcp::take_run(Nanos now, const Gro::Run &run)
{
    const Segment &first = run.segment;
    if (run.count == 1) {
        take(now, run.packet, first);
        return;
    }
    const Flow flow = {{run.packet.target, first.target_port}, {run.packet.source, first.source_port}};
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    Connection *const c = find_flow(flow, value, hash);
    if (c != nullptr && is_awaited(*c, run)) [[likely]] {
        take_merged(*c, run, now);
        if (starved_) [[unlikely]]
            feed_starved();
        return;
    }
    Segment segment = first;
    for (std::uint8_t i = run.first, left = run.count; left != 0; --left) {
        i = take_piece(segment, i);
        take(now, run.packet, segment);
        segment.seq = segment.end();
    }
}

// The segment that a piece was is the run's first one with these; the next piece.
std::uint8_t Tcp::take_piece(Segment &segment, std::uint8_t index) const
{
    const Gro::Piece &piece = gro_.piece(index);
    segment.data = piece.data;
    segment.ack = piece.ack;
    segment.window = piece.window;
    segment.flags = piece.flags;
    return piece.next;
}

// In order, whole in the window, with nothing behind a hole, no end in sight, and nothing to be checked that isn't
// checked here.
bool Tcp::is_awaited(const Connection &c, const Gro::Run &run) const
{
    const Segment &first = run.segment;
    if (!c.synchronized() || c.receive.fin_received || c.receive.have_fin || c.orphan || c.urgent ||
        c.receive.behind.count != 0)
        return false;
    if (c.agreed.timestamps &&
        (!first.options.has_timestamps || before(first.options.timestamp, c.receive.stamp_recent))) // RFC 7323, 5
        return false;
    return first.seq == c.receive.next && run.bytes() <= c.receive.advertised - c.receive.next &&
           at_or_before(c.una, first.ack) && at_or_before(gro_.piece(run.last).ack, c.nxt);
}

void Tcp::take_merged(Connection &c, const Gro::Run &run, Nanos now)
{
    Segment segment = run.segment;
    note_heard(c, segment, now);
    take_piece(segment, run.last); // whose acknowledgement and window say what all say
    segment.seq = run.end - static_cast<std::uint32_t>(segment.data.size());
    take_ack(c, segment, now);
    if (c.state == TcpState::kClosed)
        return;
    const std::uint8_t ecn = run.packet.traffic_class & kEcnMask;
    const std::size_t from = c.receive.in.size();
    std::size_t bytes = 0;
    std::uint8_t index = run.first;
    std::uint8_t left = run.count;
    bool due = false;
    for (; left != 0; --left) {
        const std::span<const std::uint8_t> data = gro_.piece(index).data;
        if (!c.receive.in.write_at(blocks_, from + bytes, data.data(), data.size())) [[unlikely]]
            break;
        index = gro_.piece(index).next;
        bytes += data.size();
        note_marks(c, segment, ecn);
        note_size(c, data.size());
        due = count_unacked(c, data.size()) || due;
    }
    if (bytes != 0)
        extend_input(c, bytes);
    c.segments_received += run.count - left;
    counters_.merged += run.count - left;
    ask_for_ack(c, due, now);
    for (segment.seq = c.receive.next; left != 0; --left) { // those that no memory was left for
        index = take_piece(segment, index);
        process(c, segment, now, ecn);
        segment.seq = segment.end();
    }
}

} // namespace vma::inet
