// SPDX-License-Identifier: BSD-2-Clause
// What an acknowledgement says: what has arrived, what is lost, and how fast to go on. Losses are found by RACK (RFC 8985)
// from SACK's scoreboard (RFC 2018, 6675), or by duplicate acknowledgements where the peer has no SACK (RFC 6582).
#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr std::uint32_t kDuplicates = 3;  // RFC 5681, 3.2
constexpr std::uint8_t kWindowLasts = 16; // recoveries: RFC 8985, 6.2
constexpr std::uint8_t kMostSteps = 254;
constexpr std::int32_t kFarBehind = 1 << 30;

} // namespace

void Tcp::take_ack(Connection &c, const Segment &segment, Nanos now)
{
    const std::uint32_t flight_before = c.nxt - c.una;
    Ack work;
    count_duplicates(c, segment, work);
    if (before(c.una, segment.ack))
        advance_una(c, segment.ack, now, work);
    if (c.sack && segment.options.sacks != 0)
        take_sacks(c, segment, now, work);
    take_window(c, segment);
    if (c.tail.active)
        answer_tail_probe(c, segment, work, now);
    if (work.rtt != kNever)
        c.rtt.sample(work.rtt, now);
    if (work.acked != 0) {
        c.retries = 0;
        c.rtt.forget_backoff();
        c.last_progress = now;
    }
    const bool undone = c.can_undo && work.acked != 0 && try_undo(c, segment, now);
    if (c.sack)
        rack_loss(c, now, work);
    if (c.phase != Phase::kOpen && at_or_before(c.recover, c.una))
        leave_recovery(c, now);
    if (c.sent.lost() != 0 && c.phase == Phase::kOpen && !undone)
        enter_recovery(c, now);
    if (c.phase == Phase::kRecovery)
        prr(c, work);
    else if (work.delivered != 0 && c.window_limited)
        c.congestion.on_ack(now, work.delivered, c.rtt.smoothed());
    if (c.ecn && segment.has(kEce) && !segment.has(kSyn))
        answer_ecn(c, now);
    if (c.nxt - c.una != flight_before || work.sacked || work.lost)
        set_alarm(c, now);
    if (c.fin_sent && c.una == c.nxt) { // our FIN is acknowledged
        if (c.state == TcpState::kFinWait1) {
            set_state(c, TcpState::kFinWait2);
            if (c.orphan)
                set(c, TcpTimer::kLife, now + TimeWaits::kLength);
        } else if (c.state == TcpState::kClosing) {
            enter_time_wait(c, now);
            return;
        } else if (c.state == TcpState::kLastAck) {
            end(c);
            return;
        }
    }
    schedule(c);
}

void Tcp::take_window(Connection &c, const Segment &segment)
{
    if (!before(c.window_seq, segment.seq) && (c.window_seq != segment.seq || !at_or_before(c.window_ack, segment.ack)))
        return;
    c.window = std::uint32_t{segment.window} << c.send_shift;
    c.most_window = std::max(c.most_window, c.window);
    c.window_seq = segment.seq;
    c.window_ack = segment.ack;
    if (c.alarm == Alarm::kPersist && c.window != 0) {
        c.rtt.forget_backoff();
        c.last_progress = c.last_heard;
    }
}

void Tcp::delivered(Connection &c, const Sent &sent, Nanos now, Ack &work)
{
    if (sent.sacked)
        return;
    work.delivered += sent.length();
    const Nanos rtt = now - sent.at;
    if (!sent.retransmitted)
        work.rtt = rtt;
    else if (rtt < c.rtt.least())
        return; // the first transmission's acknowledgement, not this one's: RFC 8985, 6.2 step 2
    if (c.rack.sent < sent.at || (c.rack.sent == sent.at && before(c.rack.end, sent.end))) {
        c.rack.sent = sent.at;
        c.rack.end = sent.end;
        c.rack.rtt = rtt;
    }
    if (!sent.retransmitted && before(sent.end, c.rack.highest))
        c.rack.reordering = true;
    c.rack.highest = later(c.rack.highest, sent.end);
}

void Tcp::advance_una(Connection &c, Seq ack, Nanos now, Ack &work)
{
    work.acked = ack - c.una;
    bool again = false; // something that was sent twice
    while (!c.sent.empty()) {
        const Sent &sent = sent_[c.sent.first()];
        if (before(ack, sent.end)) {
            if (before(sent.seq, ack)) {
                if (!sent.sacked)
                    work.delivered += ack - sent.seq;
                c.sent.trim_front(sent_, ack);
            }
            break;
        }
        again = again || (sent.retransmitted && !sent.sacked);
        delivered(c, sent, now, work);
        c.sent.pop_front(sent_);
    }
    records_freed();
    if (again) // what lies behind it had to wait for it at the receiver: no round trip either (RFC 6298, 3)
        work.rtt = kNever;
    c.una = ack;
    if (c.phase == Phase::kOpen && distance(c.recover, ack) > kFarBehind)
        c.recover = ack - 1; // before it comes round to the other side
    if (c.rack.in_dsack_round && !before(ack, c.rack.dsack_round))
        c.rack.in_dsack_round = false;
    const std::size_t bytes = std::min<std::size_t>(ack - c.data_from, c.out.size());
    c.data_from += static_cast<Seq>(bytes);
    c.out.pop(blocks_, bytes);
    if (c.out.size() == 0)
        c.out.clear(blocks_);
    if (c.writable_wanted && c.out.size() <= c.settings.send_buffer / 2) {
        c.writable_wanted = false;
        tell(c, kWritable);
    }
    if (c.phase == Phase::kRecovery && !c.sack && before(ack, c.recover)) { // a partial one: RFC 6582, 3.2
        const std::uint32_t left = work.acked / c.mss; // those that the duplicates told of, and the one that was lost
        c.dup_acks -= std::min(c.dup_acks, left != 0 ? left - 1 : 0);
        if (!c.sent.empty()) {
            c.sent.mark_lost(sent_, c.sent.first());
            work.lost = true;
        }
    }
}

// ---- SACK ------------------------------------------------------------------------------------------------------------

void Tcp::take_sacks(Connection &c, const Segment &segment, Nanos now, Ack &work)
{
    const TcpOptions &o = segment.options;
    const SeqRange &first = o.sack[0];
    const bool inside =
        o.sacks > 1 && at_or_before(o.sack[1].left, first.left) && at_or_before(first.right, o.sack[1].right);
    if (at_or_before(first.right, segment.ack) || inside) { // RFC 2883, 4
        work.dsack = true;
        note_dsack(c);
    }
    SeqRange blocks[kMostSacks]; // the lowest first: else the lower ones would look as if they had come late
    unsigned count = 0;
    for (unsigned i = work.dsack ? 1 : 0; i < o.sacks; ++i) {
        const SeqRange &block = o.sack[i];
        if (!before(block.left, block.right) || !before(c.una, block.left) || !at_or_before(block.right, c.nxt))
            continue;
        unsigned at = count++;
        for (; at != 0 && before(block.left, blocks[at - 1].left); --at)
            blocks[at] = blocks[at - 1];
        blocks[at] = block;
    }
    for (unsigned i = 0; i < count; ++i)
        take_sack(c, blocks[i], now, work);
}

void Tcp::take_sack(Connection &c, const SeqRange &block, Nanos now, Ack &work)
{
    SentIndex i = c.sent.find(sent_, block.left);
    while (i != kNoSent && before(sent_[i].seq, block.right)) {
        if (sent_[i].sacked) {
            i = sent_[i].next;
            continue;
        }
        if (before(sent_[i].seq, block.left)) { // only its end was received
            if (!c.sent.split(sent_, i, block.left))
                return;
            i = sent_[i].next;
        }
        if (before(block.right, sent_[i].end) && !c.sent.split(sent_, i, block.right))
            return;
        delivered(c, sent_[i], now, work);
        c.sent.mark_sacked(sent_, i);
        work.sacked = true;
        i = sent_[i].next;
    }
}

// A segment arrived twice: some loss was none. RACK waits longer (RFC 8985, 6.2 step 4), once a round trip.
void Tcp::note_dsack(Connection &c)
{
    Rack &r = c.rack;
    if (r.in_dsack_round)
        return;
    r.in_dsack_round = true;
    r.dsack_round = c.nxt;
    if (r.window_steps < kMostSteps)
        ++r.window_steps;
    r.window_persists = kWindowLasts;
}

// ---- finding losses --------------------------------------------------------------------------------------------------

// RFC 8985, 6.2 step 4.
Nanos Tcp::reorder_window(const Connection &c) const
{
    if (!c.rack.reordering && (c.phase != Phase::kOpen || c.sent.sacked() >= kDuplicates * c.mss))
        return 0;
    if (c.rtt.least() == kNever)
        return 0;
    return std::min(c.rack.window_steps * (c.rtt.least() / 4), c.rtt.smoothed());
}

// RFC 8985, 6.2 step 5: who was sent before one that has arrived, by more than the reordering window, is lost.
void Tcp::rack_loss(Connection &c, Nanos now, Ack &work)
{
    const Rack &r = c.rack;
    if (r.sent == 0)
        return;
    const Nanos window = reorder_window(c);
    Nanos wait = 0;
    for (SentIndex i = c.sent.oldest(); i != kNoSent;) {
        const Sent &sent = sent_[i];
        const SentIndex next = sent.younger;
        if (sent.at > r.sent || (sent.at == r.sent && !before(sent.end, r.end)))
            break;
        const Nanos due = sent.at + r.rtt + window;
        if (due <= now) {
            c.sent.mark_lost(sent_, i);
            work.lost = true;
        } else {
            wait = std::max(wait, due - now);
        }
        i = next;
    }
    if (wait != 0) {
        c.alarm = Alarm::kReorder;
        set(c, TcpTimer::kRetransmit, now + wait);
    } else if (c.alarm == Alarm::kReorder) {
        c.alarm = Alarm::kNone;
        set_alarm(c, now);
    }
}

// Without SACK: RFC 5681, 2 says what a duplicate is, 3.2 what three of them mean.
void Tcp::count_duplicates(Connection &c, const Segment &segment, Ack &work)
{
    if (c.sack || c.sent.empty())
        return;
    const bool duplicate =
        segment.ack == c.una && segment.length() == 0 && (std::uint32_t{segment.window} << c.send_shift) == c.window;
    if (!duplicate) {
        if (before(c.una, segment.ack) && c.phase == Phase::kOpen)
            c.dup_acks = 0;
        return;
    }
    ++c.dup_acks;
    work.duplicate = true;
    if (c.phase != Phase::kOpen)
        work.delivered += std::min<std::uint32_t>(c.mss, c.nxt - c.una);
    else if (c.dup_acks == kDuplicates && before(c.recover, c.una)) { // RFC 6582, 3.2: not again for the same window
        c.sent.mark_lost(sent_, c.sent.first());
        work.lost = true;
    }
}

// ---- recovery --------------------------------------------------------------------------------------------------------

void Tcp::enter_recovery(Connection &c, Nanos)
{
    const bool answered = c.ecn_answered && before(c.una, c.recover); // the window has answered for this round trip
    ++counters_.recoveries;
    c.phase = Phase::kRecovery;
    c.recover = c.nxt;
    c.prr_delivered = 0;
    c.prr_out = 0;
    c.prr_flight = c.nxt - c.una;
    c.can_undo = false;
    c.tail.active = c.tail.pending = false;
    if (!answered)
        c.congestion.on_loss(c.nxt - c.una);
}

void Tcp::leave_recovery(Connection &c, Nanos now)
{
    if (c.phase == Phase::kRecovery)
        c.congestion.end_recovery(now);
    c.phase = Phase::kOpen;
    c.dup_acks = 0;
    c.can_undo = false;
    if (c.rack.window_persists != 0 && --c.rack.window_persists == 0)
        c.rack.window_steps = 1;
}

// Proportional rate reduction (RFC 6937): in recovery as much leaves as arrives, in the proportion of the reduction.
void Tcp::prr(Connection &c, const Ack &work)
{
    const std::uint32_t threshold = c.congestion.threshold();
    const std::uint32_t flight = in_network(c);
    c.prr_delivered += work.delivered;
    std::uint32_t send = 0;
    if (flight > threshold) {
        const std::uint64_t share =
            (std::uint64_t{c.prr_delivered} * threshold + c.prr_flight - 1) / std::max(c.prr_flight, 1U);
        send = share > c.prr_out ? static_cast<std::uint32_t>(share) - c.prr_out : 0;
    } else {
        const std::uint32_t owed = c.prr_delivered > c.prr_out ? c.prr_delivered - c.prr_out : 0;
        std::uint32_t limit = std::max(owed, work.delivered);
        if (work.acked != 0 && !work.lost) // slow-start reduction bound: nothing more was lost
            limit += c.mss;
        send = std::min(threshold - flight, limit);
    }
    if (c.prr_out == 0)
        send = std::max<std::uint32_t>(send, c.mss); // the first retransmission goes at once
    c.congestion.set_window(flight + send);
}

// Eifel (RFC 3522, 4015): the acknowledgement echoes a time stamp from before the retransmission, so nothing had been lost.
bool Tcp::try_undo(Connection &c, const Segment &segment, Nanos)
{
    if (!c.timestamps || !segment.options.has_timestamps || !before(c.undo_from, c.una) ||
        !before(segment.options.timestamp_echo, c.undo_stamp))
        return false;
    ++counters_.undone;
    for (SentIndex i = c.sent.first(); i != kNoSent; i = sent_[i].next)
        c.sent.unmark_lost(sent_, i);
    c.congestion.undo();
    c.phase = Phase::kOpen;
    c.can_undo = false;
    c.dup_acks = 0;
    return true;
}

// RFC 8985, 7.4.2: was the probe, which may have covered a loss, needed? The acknowledgement of its end alone doesn't tell: the
// original may have brought it, and a second one for the probe is on its way. Only one beyond it says that none came.
void Tcp::answer_tail_probe(Connection &c, const Segment &segment, const Ack &work, Nanos)
{
    if (before(segment.ack, c.tail.end))
        return;
    const bool beyond = before(c.tail.end, segment.ack);
    const bool twice = work.dsack || (work.acked == 0 && !work.sacked && segment.length() == 0);
    const bool original =
        c.timestamps && c.undo_stamp != 0 && work.acked != 0 && before(segment.options.timestamp_echo, c.undo_stamp);
    if (c.tail.retransmission && !beyond && !twice && !original)
        return;
    c.tail.active = false;
    if (!c.tail.retransmission || twice || original || c.phase != Phase::kOpen)
        return;
    c.congestion.on_loss(c.nxt - c.una + work.acked); // one loss, repaired already: the window still has to answer it
    c.congestion.end_recovery(0);
}

// RFC 3168, 6.1.2: as a loss, at most once a window, and without a retransmission.
void Tcp::answer_ecn(Connection &c, Nanos now)
{
    if (c.ecn_answered && before(c.una, c.recover))
        return;
    if (c.phase != Phase::kOpen)
        return;
    c.ecn_answered = true;
    c.cwr_due = true;
    c.recover = c.nxt;
    c.congestion.on_loss(c.nxt - c.una);
    c.congestion.end_recovery(now);
}

} // namespace vma::inet
