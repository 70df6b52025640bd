// SPDX-License-Identifier: BSD-2-Clause
// A segment's way out: which connection sends next, what (RFC 9293, 3.8.6.2.1 and 3.7.4: the sender's side of the silly
// window, Nagle), and the segment itself. A caller without room asks for nothing, so nothing is queued twice.
#include <algorithm>
#include <cstring>

#include "prov/vma/src/core/probes.hpp"
#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace vma::inet {

bool Tcp::output(Nanos now, std::span<std::uint8_t> out, TcpOut &meta)
{
    meta = TcpOut();
    left_ = Left();
    if (replies_used_ != 0)
        return output_reply(out, meta);
    while (ready_.head != kNobody) {
        Connection &c = connections_[ready_.head];
        unlink(ready_, &Connection::ready, c);
        const std::size_t length = emit(c, now, out);
        if (length == 0)
            continue; // who could not send is scheduled again by what lets it
        schedule(c);  // one segment a turn, so that all come to theirs
        meta.length = length;
        meta.partial_sum = left_.sum;
        meta.segment_size = left_.segment_size;
        meta.source = c.flow.local.address;
        meta.target = c.flow.remote.address;
        meta.path = c.path;
        meta.hop_limit = c.settings.hop_limit;
        meta.traffic_class = static_cast<std::uint8_t>((c.settings.traffic_class & ~kEcnMask) |
                                                       (c.capable_transport ? kEcnCapable0 : kEcnNotCapable));
        counters_.out += left_.segments;
        return true;
    }
    return false;
}

bool Tcp::output_reply(std::span<std::uint8_t> out, TcpOut &meta)
{
    Reply &r = replies_[replies_from_];
    replies_from_ = (replies_from_ + 1) % limits_.replies;
    --replies_used_;
    r.segment.source_port = r.flow.local.port;
    r.segment.target_port = r.flow.remote.port;
    const std::size_t header = write_tcp_header(out.data(), r.segment);
    seal_segment(out.data(), sum_tcp_header(out.data(), header, 0, r.flow.local.address, r.flow.remote.address));
    meta.length = header;
    meta.source = r.flow.local.address;
    meta.target = r.flow.remote.address;
    meta.mac = r.mac;
    meta.vlan = r.vlan;
    ++counters_.out;
    return true;
}

// What is most urgent. 0: nothing can be sent.
std::size_t Tcp::emit(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    if (c.state == TcpState::kClosed || c.path == kNoNextHop)
        return 0;
    if (!next_hops_[c.path].ready) {
        next_hops_.want(c.path);
        return 0;
    }
    c.capable_transport = false;
    if (!c.synchronized())
        return c.syn_due ? emit_syn(c, now, out) : 0;
    std::size_t length = 0;
    if (c.recovery.tail.pending)
        length = emit_tail_probe(c, now, out);
    if (length == 0 && c.sent.lost() != 0)
        length = emit_again(c, now, out);
    if (length == 0)
        length = emit_new(c, now, out);
    if (length == 0 && c.probe_due) // an old number: the peer has to answer it (RFC 9293, 3.8.4)
        length = emit_probe(c, now, out);
    if (length == 0 && (c.ack_due || c.receive.duplicates_due != 0))
        length = emit_ack(c, now, out);
    return length;
}

std::uint32_t Tcp::stamp(const Connection &c, Nanos now) const
{
    return static_cast<std::uint32_t>(now / kMillisecond) + c.stamp_offset;
}

unsigned Tcp::sacks_due(const Connection &c) const
{
    if (!c.agreed.sack)
        return 0;
    const unsigned fit = (c.mss - 5U) / 8; // into the path's MTU, with a byte of data: of 68 bytes 16 are left
    const unsigned most = std::min(fit, c.agreed.timestamps ? kMostSacks - 1 : kMostSacks); // RFC 2018, 3
    return std::min(most, c.receive.behind.count + (c.receive.dsack_due ? 1U : 0U));
}

// Bytes of data that a segment can have now.
std::uint32_t Tcp::segment_room(const Connection &c, std::span<std::uint8_t> out) const
{
    const unsigned sacks = sacks_due(c);
    const std::uint32_t mss = c.mss - (sacks != 0 ? 4 + 8 * sacks : 0);
    return std::min(mss, static_cast<std::uint32_t>(out.size() - kTcpLongestHeader));
}

// Bytes of data that the device takes at a time. It must leave the layers below room for longer headers than theirs
// usually are.
std::uint32_t Tcp::segment_limit(const Connection &c, std::span<std::uint8_t> out) const
{
    constexpr std::size_t kHeaders = kTcpLongestHeader + TcpOut::kMoved;
    const std::size_t most = out.size() > kHeaders ? out.size() - kHeaders : 0;
    return std::min(offloads_.limit(c.flow.remote.address), static_cast<std::uint32_t>(most));
}

[[gnu::always_inline]] inline void Tcp::write_data(const Connection &c, const Segment &segment, std::size_t len,
                                                   std::size_t header, std::uint8_t *out) const
{
    std::uint32_t partial = sum_tcp_header(out, header, len, c.flow.local.address, c.flow.remote.address);
    std::uint8_t *to = out + header;
    if (len != 0)
        c.out.for_each(blocks_, segment.seq - c.data_from, len, [&](const std::uint8_t *piece, std::size_t n) {
            partial = copy_and_sum(to, piece, n, partial);
            to += n;
        });
    seal_segment(out, partial);
}

// Header, options, `len` bytes of data from segment.seq on, checksum; and what sending an acknowledgement settles.
std::size_t Tcp::write(Connection &c, Segment &segment, std::size_t len, Nanos now, std::span<std::uint8_t> out)
{
    segment.source_port = c.flow.local.port;
    segment.target_port = c.flow.remote.port;
    const unsigned shift = segment.has(kSyn) ? 0 : c.agreed.receive_shift;
    if (c.state != TcpState::kSynSent) {
        const std::uint32_t window = std::min<std::uint32_t>(window_of(c) >> shift, 0xffff);
        segment.window = static_cast<std::uint16_t>(window);
        segment.flags |= kAck;
        segment.ack = c.receive.next;
        c.receive.advertised = later(c.receive.advertised, c.receive.next + (window << shift));
        c.receive.acked = c.receive.next;
        c.receive.unacked = 0;
        c.ack_due = false;
        c.at[static_cast<unsigned>(TcpTimer::kDelayedAck)] = kNever;
    } else {
        segment.window = static_cast<std::uint16_t>(std::min<std::uint32_t>(c.settings.receive_buffer, 0xffff));
    }
    if (c.receive.ece_due && !segment.has(kSyn))
        segment.flags |= kEce;
    TcpOptions &options = segment.options;
    if (c.agreed.timestamps) {
        options.has_timestamps = true;
        options.timestamp = stamp(c, now);
        options.timestamp_echo = c.receive.stamp_recent;
    }
    const unsigned sacks = segment.has(kSyn) ? 0 : sacks_due(c);
    for (unsigned i = 0; i < sacks; ++i)
        options.sack[options.sacks++] = c.receive.dsack_due ? (i == 0 ? c.receive.dsack : c.receive.behind.range[i - 1])
                                                            : c.receive.behind.range[i];
    c.receive.dsack_due = false;
    const std::size_t header = write_tcp_header(out.data(), segment);
    left_.sum = len != 0 && offloads_.sums(c.flow.remote.address); // a header's alone is no work
    if (left_.sum)
        write_unsummed_data(c, segment, len, header, out.data());
    else
        write_data(c, segment, len, header, out.data());
    c.last_sent = now;
    c.segments_sent += left_.segments;
    return header + len;
}

[[gnu::noinline]] void Tcp::write_unsummed_data(const Connection &c, const Segment &segment, std::size_t len,
                                                std::size_t header, std::uint8_t *out) const
{
    std::uint8_t *to = out + header;
    c.out.for_each(blocks_, segment.seq - c.data_from, len, [&](const std::uint8_t *piece, std::size_t n) {
        memcpy(to, piece, n);
        to += n;
    });
    leave_sum(out, kTcpChecksumAt,
              pseudo_sum(c.flow.local.address, c.flow.remote.address, Protocol::kTcp,
                         static_cast<std::uint32_t>(header + len)));
}

std::size_t Tcp::emit_syn(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    Segment segment;
    segment.flags = kSyn;
    segment.seq = c.iss;
    TcpOptions &o = segment.options;
    o.mss = offered_mss(c);
    const bool answers = c.state == TcpState::kSynReceived;
    o.sack_permitted = answers ? c.agreed.sack : c.settings.sack;
    o.has_window_scale = answers ? c.agreed.scaling : c.settings.window_scaling;
    o.window_scale = shift_for(c.settings);
    if (!answers && c.settings.timestamps) {
        o.has_timestamps = true;
        o.timestamp = stamp(c, now);
    }
    if (answers && c.agreed.ecn)
        segment.flags |= kEce;
    else if (!answers && c.settings.ecn && c.retries < 2) // RFC 3168, 6.1.1.1: a box on the way may drop it for that
        segment.flags |= kEce | kCwr;
    c.syn_due = false;
    const std::size_t length = write(c, segment, 0, now, out);
    c.alarm = Alarm::kTimeout;
    set(c, TcpTimer::kRetransmit, now + c.rtt.rto());
    return length;
}

std::size_t Tcp::emit_probe(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    c.probe_due = false;
    Segment segment;
    segment.seq = c.una - 1;
    return write(c, segment, 0, now, out);
}

// A peer that has taken back a part of its window (RFC 9293, 3.8.6; Linux does, out of memory) drops what is beyond,
// with the acknowledgement in it: both sides would send the same for ever.
std::size_t Tcp::emit_ack(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    if (c.receive.acked == c.receive.next && c.receive.duplicates_due != 0)
        --c.receive.duplicates_due;
    Segment segment;
    segment.seq = c.nxt;
    if (c.nxt - c.una > c.window) [[unlikely]]
        segment.seq = c.una + (c.window != 0 ? c.window - 1 : 0);
    return write(c, segment, 0, now, out);
}

// ---- data -----------------------------------------------------------------------------------------------------------

std::uint32_t Tcp::in_network(const Connection &c) const
{
    const std::uint32_t flight = c.sent.flight();
    if (c.agreed.sack)
        return flight;
    // Each duplicate says that something has left the network (RFC 5681, 3.2), the first two as well (RFC 3042).
    return flight - std::min(flight, c.recovery.dup_acks * c.mss);
}

bool Tcp::window_allows(const Connection &c, std::uint32_t len) const
{
    const std::uint32_t flight = in_network(c);
    return flight == 0 || flight + len <= c.congestion.window();
}

bool Tcp::paced(Connection &c, Nanos now)
{
    if (c.settings.rate == 0 || c.pace_at <= now)
        return false;
    set(c, TcpTimer::kPace, c.pace_at);
    return true;
}

// Nothing under way that would bring an update of the window: it has to be asked for (RFC 9293, 3.8.6.1).
std::uint32_t Tcp::wait_for_window(Connection &c, Nanos now)
{
    if (c.sent.empty() && c.alarm != Alarm::kPersist) {
        c.alarm = Alarm::kPersist;
        set(c, TcpTimer::kRetransmit, now + c.rtt.rto());
    }
    return 0;
}

// How many bytes of new data a segment may take now, and whether the FIN goes with them.
std::uint32_t Tcp::sendable(Connection &c, Nanos now, std::uint32_t mss, bool probe, bool &fin)
{
    const std::uint32_t unsent = c.unsent();
    const bool fin_next = c.fin_wanted && !c.fin_sent;
    fin = false;
    if (unsent == 0 && !fin_next) {
        if (c.sent.flight() < c.congestion.window() / 2)
            c.window_limited = false; // the program is what limits
        return 0;
    }
    const std::uint32_t in_use = c.nxt - c.una;
    const std::uint32_t room = c.window > in_use ? c.window - in_use : 0;
    const std::uint32_t len = std::min({unsent, mss, room});
    if (!probe && !window_allows(c, std::max(len, 1U))) {
        c.window_limited = true;
        return 0;
    }
    if (!probe && paced(c, now))
        return 0;
    const bool all = len == unsent;
    if (!all && len < mss && (len == 0 || len < c.most_window / 2) && !c.probe_due)
        return wait_for_window(c, now);
    fin = fin_next && all && (room > len || c.probe_due);
    if (fin_next && unsent == 0 && !fin)
        return wait_for_window(c, now);
    if (len < mss && !fin && !probe && all && (c.settings.cork || (!c.settings.nodelay && c.has_small_out()))) // Nagle
        return 0;
    return len;
}

// Bytes that were never sent are under way from now on, as one segment.
[[gnu::always_inline]] inline bool Tcp::record_new(Connection &c, std::uint32_t len, bool fin, Nanos now,
                                                   Segment &segment)
{
    const Seq end = c.nxt + len + (fin ? 1 : 0);
    if (!c.sent.append(sent_, c.nxt, end, fin, now)) {
        c.record_wanted = records_wanted_ = true; // others' acknowledgements free some
        return false;
    }
    if (len == c.unsent())
        segment.flags |= kPsh;
    if (c.settings.rate != 0)
        c.pace_at = std::max(c.pace_at, now) + std::uint64_t{len} * kSecond / c.settings.rate;
    if (fin)
        segment.flags |= kFin;
    c.fin_sent = fin;
    c.nxt = end;
    if (len < c.mss)
        c.small_end = end;
    c.bytes_sent += len;
    if (c.recovery.phase == Phase::kRecovery)
        c.recovery.prr_out += len;
    return true;
}

std::size_t Tcp::emit_new(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    bool fin = false;
    const std::uint32_t room = segment_room(c, out);
    std::uint32_t len = sendable(c, now, room, c.recovery.tail.pending, fin);
    if (len == 0 && !fin)
        return 0;
    if (c.sent.empty() && now - c.last_sent > c.rtt.rto() && c.bytes_sent != 0)
        c.congestion.after_idle();
    Segment segment;
    segment.seq = c.nxt;
    const std::uint32_t limit = offloads_.segment_limit != 0 ? segment_limit(c, out) : 0;
    const bool more = len == room && !fin && limit > room && !c.recovery.tail.pending && !c.probe_due;
    if (!record_new(c, len, fin, now, segment))
        return 0;
    if (more)
        len += append_segments(c, room, limit - len, now, segment);
    c.capable_transport = c.agreed.ecn && len != 0; // RFC 3168, 6.1: on new data alone
    if (c.cwr_due) {
        segment.flags |= kCwr;
        c.cwr_due = false;
    }
    const std::size_t length = write(c, segment, len, now, out);
    c.probe_due = false;
    set_alarm(c, now);
    return length;
}

// Further segments of `size` bytes, and a last one that may be shorter, go with the one in `segment`: what their own
// turns would have sent now. `most`: bytes. What they have.
[[gnu::noinline]] std::uint32_t Tcp::append_segments(Connection &c, std::uint32_t size, std::uint32_t most, Nanos now,
                                                     Segment &segment)
{
    std::uint32_t total = 0;
    for (std::uint32_t len = size; len == size && total + size <= most;) {
        bool fin = false;
        len = sendable(c, now, size, false, fin);
        if (len == 0 || !record_new(c, len, fin, now, segment)) // a FIN alone is a segment of its own
            break;
        total += len;
        ++left_.segments;
    }
    if (total != 0)
        left_.segment_size = static_cast<std::uint16_t>(size);
    return total;
}

std::size_t Tcp::emit_again(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    const SentIndex index = c.sent.next_lost(sent_);
    if (index == kNoSent || paced(c, now))
        return 0;
    const std::uint32_t room = segment_room(c, out);
    const Sent &sent = sent_[index];
    if (sent.length() - (sent.fin ? 1 : 0) > room && !c.sent.split(sent_, index, sent.seq + room))
        return 0;
    const std::uint32_t len = sent.length() - (sent.fin ? 1 : 0);
    if (!window_allows(c, sent.length())) {
        c.window_limited = true;
        return 0;
    }
    if (!c.recovery.can_undo) {
        c.recovery.can_undo = c.agreed.timestamps;
        c.recovery.undo_stamp = stamp(c, now);
        c.recovery.undo_from = sent.seq;
    }
    ++c.retransmissions;
    ++counters_.retransmissions;
    if (c.settings.rate != 0)
        c.pace_at = std::max(c.pace_at, now) + std::uint64_t{len} * kSecond / c.settings.rate;
    Segment segment;
    segment.seq = sent.seq;
    if (sent.fin)
        segment.flags |= kFin;
    c.sent.retransmitted(sent_, index, now);
    probe::retransmit(c.flow.local.port, c.flow.remote.port, sent.seq, len, false);
    if (c.recovery.phase == Phase::kRecovery)
        c.recovery.prr_out += len;
    const std::size_t length = write(c, segment, len, now, out);
    set_alarm(c, now);
    return length;
}

// RFC 8985, 7.3: new data if there is any, else the last segment again. Neither asks the congestion window.
std::size_t Tcp::emit_tail_probe(Connection &c, Nanos now, std::span<std::uint8_t> out)
{
    std::size_t length = 0;
    c.recovery.tail.retransmission = false;
    if (c.unsent() != 0)
        length = emit_new(c, now, out);
    c.recovery.tail.pending = false;
    const SentIndex last = c.sent.last();
    if (length == 0 && last != kNoSent && !sent_[last].sacked) {
        const std::uint32_t room = segment_room(c, out);
        if (sent_[last].length() - (sent_[last].fin ? 1 : 0) > room)
            return 0;
        c.recovery.tail.retransmission = true;
        c.recovery.undo_stamp = stamp(c, now);
        Segment segment;
        segment.seq = sent_[last].seq;
        if (sent_[last].fin)
            segment.flags |= kFin;
        const std::uint32_t len = sent_[last].length() - (sent_[last].fin ? 1 : 0);
        c.sent.retransmitted(sent_, last, now);
        probe::retransmit(c.flow.local.port, c.flow.remote.port, segment.seq, len, true);
        ++c.retransmissions;
        ++counters_.retransmissions;
        length = write(c, segment, len, now, out);
    }
    if (length != 0) {
        ++counters_.tail_probes;
        c.recovery.tail.active = true;
        c.recovery.tail.end = c.nxt;
    }
    set_alarm(c, now);
    return length;
}

} // namespace vma::inet
