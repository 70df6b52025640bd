// SPDX-License-Identifier: BSD-2-Clause
// A segment's way in (RFC 9293, 3.10.7): whose it is, whether it may be believed (RFC 7323, 5961), and then to its
// acknowledgement (recovery.cpp) and its data (receive.cpp). What is not believed changes nothing.
#include <errno.h>

#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr Nanos kStampLasts = Nanos{24} * 24 * 3600 * kSecond; // RFC 7323, 5.5

} // namespace

void Tcp::input(Nanos now, const Packet &packet)
{
    if (!gro_.is_empty())
        flush(now); // what came before it
    Segment segment;
    if (read(packet, segment))
        take(now, packet, segment);
}

bool Tcp::read(const Packet &packet, Segment &segment)
{
    ++counters_.in;
    if (parse_segment(packet, segment))
        return true;
    ++counters_.malformed;
    return false;
}

void Tcp::take(Nanos now, const Packet &packet, const Segment &segment)
{
    const Flow flow = {{packet.target, segment.target_port}, {packet.source, segment.source_port}};
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    Connection *c = find_flow(flow, value, hash);
    if (c != nullptr && c->state == TcpState::kSynReceived && c->listener != kNobody && segment.ack != c->iss + 1 &&
        is_cookie(segment, flow,
                  now)) { // its first SYN was answered with one, and only then there was room for a second
        end(*c);
        c = nullptr;
        value = FlowTable::kNone;
    }
    if (c != nullptr) [[likely]]
        process(*c, segment, now, packet.traffic_class & kEcnMask);
    else if (value != FlowTable::kNone)
        process_time_wait(value & ~kTimeWaitBit, packet, segment, flow, hash, now);
    else
        passive_open(now, packet, segment, flow, hash);
    if (starved_) [[unlikely]]
        feed_starved();
}

void Tcp::process(Connection &c, const Segment &segment, Nanos now, std::uint8_t ecn)
{
    ++c.segments_received;
    if (c.state == TcpState::kSynSent) {
        syn_sent(c, segment, now);
        return;
    }
    if (!check_timestamps(c, segment, now) || !check_sequence(c, segment, now))
        return;
    if (segment.has(kRst)) {
        if (segment.seq != c.receive.next) { // RFC 5961, 3.2
            challenge(c, now);
            return;
        }
        ++counters_.resets_in;
        const bool refused = c.state == TcpState::kSynReceived && c.listener == kNobody;
        fail(c, refused ? ECONNREFUSED : c.state == TcpState::kCloseWait ? EPIPE : ECONNRESET);
        return;
    }
    if (segment.has(kSyn)) {
        if (c.state == TcpState::kSynReceived &&
            segment.seq == c.receive.irs) { // our SYN-ACK was lost, or both have sent SYNs
            if (!segment.has(kAck)) {
                c.syn_due = true;
                schedule(c);
                return;
            }
        } else {
            challenge(c, now); // RFC 5961, 4.2
            return;
        }
    }
    if (!segment.has(kAck))
        return;
    if (c.state == TcpState::kSynReceived && !complete_open(c, segment, now))
        return;
    if (!check_ack(c, segment, now))
        return;
    note_heard(c, segment, now);
    take_ack(c, segment, now);
    if (c.state == TcpState::kClosed)
        return;
    if (c.adopted && (c.urgent || segment.has(kUrg)) && !c.orphan) [[unlikely]]
        leave_urgent(c);
    else if (segment.length() != 0)
        take_data(c, segment, now, ecn);
}

// Urgent data (RFC 6093) has its mark, its signal and its place beside the stream in the TCP that the connection is
// from. What isn't taken is not acknowledged either, so that TCP gets it when it is sent again: with its mark, as long
// as that is ahead.
void Tcp::leave_urgent(Connection &c)
{
    if (!c.urgent)
        tell(c, kUrgent);
    c.urgent = true;
}

// The peer lives, and its clock says what we shall echo (RFC 7323, 4.3).
void Tcp::note_heard(Connection &c, const Segment &segment, Nanos now)
{
    c.last_heard = now;
    c.probes = 0;
    if (c.agreed.timestamps && segment.options.has_timestamps && at_or_before(segment.seq, c.receive.acked) &&
        (at_or_before(c.receive.stamp_recent, segment.options.timestamp) ||
         now - c.receive.stamp_recent_at > kStampLasts)) {
        c.receive.stamp_recent = segment.options.timestamp;
        c.receive.stamp_recent_at = now;
    }
}

// PAWS. RST is exempt (RFC 7323, 5.2); the absence of time stamps that were agreed on drops the segment (3.2).
bool Tcp::check_timestamps(Connection &c, const Segment &segment, Nanos now)
{
    if (!c.agreed.timestamps || segment.has(kRst))
        return true;
    if (segment.options.has_timestamps) {
        if (at_or_before(c.receive.stamp_recent, segment.options.timestamp) ||
            now - c.receive.stamp_recent_at > kStampLasts)
            return true;
        if ((segment.length() != 0 || segment.seq != c.receive.next) && may_answer(c, segment, now))
            want_ack(c, 0, true, now);
    }
    ++counters_.old_timestamps;
    return false;
}

// RFC 9293, 3.10.7.4: is any of it in the window? Bytes outside of it are cut off where the data is taken.
bool Tcp::check_sequence(Connection &c, const Segment &segment, Nanos now)
{
    const std::uint32_t window = c.receive.advertised - c.receive.next;
    const std::int32_t from = distance(c.receive.next, segment.seq);
    const std::int32_t to = distance(c.receive.next, segment.end());
    const auto edge = static_cast<std::int32_t>(window);
    if (from == 0 || (from < edge && (to > 0 || from > 0))) [[likely]]
        return true;
    if (segment.has(kRst))
        return false;
    ++counters_.out_of_window;
    if (segment.has(kSyn) && c.state == TcpState::kSynReceived && segment.seq == c.receive.irs)
        return true; // its SYN again
    if (!may_answer(c, segment, now))
        return false;
    if (from < 0 && segment.data.size() != 0) {
        ++counters_.duplicates;
        c.receive.dsack_due = c.agreed.sack; // RFC 2883
        c.receive.dsack = {segment.seq, earlier(segment.end(), c.receive.next)};
    }
    if (segment.has(kFin) && to == 0 && c.receive.fin_received) // it hasn't seen our answer to its FIN
        c.ack_due = true;
    want_ack(c, 0, true, now);
    return false;
}

// RFC 5961, 5.2: what acknowledges the future, or a past beyond the largest window, was guessed. But a TCP that we have
// a connection from may have sent some of its last bytes after it told how many.
bool Tcp::check_ack(Connection &c, const Segment &segment, Nanos now)
{
    if (c.adopted && before(c.nxt, segment.ack) && at_or_before(segment.ack, c.adopted_end)) [[unlikely]]
        c.nxt = segment.ack;
    if (before(c.nxt, segment.ack) ||
        distance(segment.ack, c.una) > static_cast<std::int32_t>(std::max(c.most_window, 1U << 16))) {
        ++counters_.bad_acks;
        challenge(c, now);
        return false;
    }
    return true;
}

// RFC 5961, 7. Data or a FIN that lies as far behind as our window reaches is what the peer sends when it has not heard
// us; all else may be a guess, or the other half of a loop of acknowledgements.
bool Tcp::may_answer(Connection &c, const Segment &segment, Nanos now)
{
    const std::int64_t behind = -std::int64_t{distance(c.receive.next, segment.seq)};
    const std::uint32_t reach = std::max({c.settings.receive_buffer, c.receive.advertised - c.receive.next, 1U << 16});
    const bool duplicate = segment.length() != 0 && !segment.has(kSyn) && behind > 0 && behind <= std::int64_t{reach};
    if (duplicate ? c.duplicate_answers.take(now, kDuplicateAnswers) : c.answers.take(now, kGuessAnswers))
        return true;
    ++counters_.challenges_held;
    return false;
}

void Tcp::challenge(Connection &c, Nanos now)
{
    if (!c.answers.take(now, kGuessAnswers)) {
        ++counters_.challenges_held;
        return;
    }
    ++counters_.challenges;
    c.ack_due = true;
    schedule(c);
}

void Tcp::refuse(const Packet &packet, const Segment &segment, const Flow &flow)
{
    ++counters_.unmatched;
    if (segment.has(kRst))
        return;
    Reply r;
    r.flow = flow;
    r.mac = packet.source_mac;
    r.vlan = packet.vlan;
    if (segment.has(kAck)) {
        r.segment.flags = kRst;
        r.segment.seq = segment.ack;
    } else {
        r.segment.flags = kRst | kAck;
        r.segment.ack = segment.end();
    }
    if (reply(r))
        ++counters_.resets_out;
}

// RFC 9293, 3.10.7.4 for TIME-WAIT; a new SYN may take the place (RFC 6191, RFC 1122, 4.2.2.13); an RST doesn't (RFC
// 1337).
void Tcp::process_time_wait(std::uint32_t index, const Packet &packet, const Segment &segment, const Flow &flow,
                            std::uint32_t hash, Nanos now)
{
    TimeWait &old = time_waits_[index];
    const bool stamped = old.timestamps && segment.options.has_timestamps;
    if (old.until <= now) {
        expire_time_waits(now);
        passive_open(now, packet, segment, flow, hash);
        return;
    }
    if (segment.has(kRst) || old.mute)
        return;
    if (segment.has(kSyn) && !segment.has(kAck) &&
        (before(old.rcv, segment.seq) || (stamped && before(old.stamp_recent, segment.options.timestamp)))) {
        old.dead = true;
        flows_.erase(hash, index | kTimeWaitBit);
        passive_open(now, packet, segment, flow, hash);
        return;
    }
    if (segment.length() == 0 && segment.seq == old.rcv)
        return;
    Reply r;
    r.flow = flow;
    r.mac = packet.source_mac;
    r.vlan = packet.vlan;
    r.segment.flags = kAck;
    r.segment.seq = old.nxt;
    r.segment.ack = old.rcv;
    r.segment.window = old.window;
    if (old.timestamps) {
        r.segment.options.has_timestamps = true;
        r.segment.options.timestamp = static_cast<std::uint32_t>(now / kMillisecond) + old.stamp_offset;
        r.segment.options.timestamp_echo = old.stamp_recent;
    }
    if (old.answers.take(now, kGuessAnswers))
        reply(r);
    else
        ++counters_.challenges_held;
    if (!segment.has(kFin) || time_waits_.full())
        return;
    TimeWait again = old; // the wait begins anew
    again.until = now + TimeWaits::kLength;
    old.dead = true;
    flows_.replace(hash, index | kTimeWaitBit, time_waits_.push(again) | kTimeWaitBit);
}

// ---- ICMP -----------------------------------------------------------------------------------------------------------

bool Tcp::too_big(Nanos now, const Flow &flow, Seq quoted, std::uint16_t mtu)
{
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    Connection *const c = find_flow(flow, value, hash);
    if (c == nullptr || before(quoted, c->una) || !before(quoted, c->nxt)) // RFC 5927, 4
        return false;
    if (mtu < next_hops_[c->path].mtu) {
        next_hops_[c->path].mtu = mtu;
        next_hop_changed(now, c->path);
    }
    return true;
}

void Tcp::next_hop_failed(Nanos now, NextHopIndex path)
{
    constexpr Nanos kPatience = 5 * kSecond / 2; // the kernel asks three times, a second after one another
    for (std::uint32_t i = 0; i < fresh_; ++i) {
        Connection &c = connections_[i];
        if (c.path != path || c.state == TcpState::kClosed)
            continue;
        if (c.state == TcpState::kSynSent && now - c.last_progress >= kPatience)
            fail(c, EHOSTUNREACH);
        else
            c.soft_error = EHOSTUNREACH;
    }
}

void Tcp::next_hop_changed(Nanos now, NextHopIndex path)
{
    for (std::uint32_t i = 0; i < fresh_; ++i) {
        Connection &c = connections_[i];
        if (c.path != path || c.state == TcpState::kClosed)
            continue;
        if (c.synchronized()) {
            const std::uint16_t before_mss = c.mss;
            set_mss(c);
            if (c.mss < before_mss) // what is under way was too long: RFC 1191, 6.5
                for (SentIndex s = c.sent.first(); s != kNoSent; s = sent_[s].next)
                    if (sent_[s].length() > c.mss)
                        c.sent.mark_lost(sent_, s);
        }
        set_alarm(c, now);
        schedule(c);
    }
}

void Tcp::unreachable(Nanos, const Flow &flow, Seq quoted, int error, bool hard)
{
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    Connection *const c = find_flow(flow, value, hash);
    if (c == nullptr || before(quoted, c->una) || before(c->nxt, quoted))
        return;
    if (hard && (c->state == TcpState::kSynSent || c->state == TcpState::kSynReceived))
        fail(*c, error); // RFC 5461, 4.1: while it opens; later it is only a hint
    else
        c->soft_error = error;
}

} // namespace vma::inet
