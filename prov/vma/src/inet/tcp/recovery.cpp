// SPDX-License-Identifier: BSD-2-Clause
// What an acknowledgement says: what has arrived, what is lost, and how fast to go on. Losses are found by RACK (RFC
// 8985) from SACK's scoreboard (RFC 2018, 6675), or by duplicate acknowledgements where the peer has no SACK (RFC
// 6582).
#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr std::uint32_t kDuplicates = 3; // RFC 5681, 3.2
constexpr std::int32_t kFarBehind = 1 << 30;

} // namespace

void Tcp::take_ack(Connection &c, const Segment &segment, Nanos now)
{
    const std::uint32_t flight_before = c.nxt - c.una;
    Ack work;
    count_duplicates(c, segment, work);
    if (before(c.una, segment.ack))
        advance_una(c, segment.ack, now, work);
    if (c.agreed.sack && segment.options.sacks != 0)
        take_sacks(c, segment, now, work);
    take_window(c, segment);
    if (c.recovery.tail.active)
        answer_tail_probe(c, segment, work, now);
    if (work.rtt != kNever)
        c.rtt.sample(work.rtt, now);
    if (work.acked != 0) {
        c.retries = 0;
        c.rtt.forget_backoff();
        c.last_progress = now;
    }
    const bool undone = c.recovery.can_undo && work.acked != 0 && try_undo(c, segment, now);
    if (c.agreed.sack)
        rack_loss(c, now, work);
    if (c.recovery.phase != Phase::kOpen && at_or_before(c.recovery.recover, c.una))
        leave_recovery(c, now);
    if (c.sent.lost() != 0 && c.recovery.phase == Phase::kOpen && !undone)
        enter_recovery(c, now);
    if (c.recovery.phase == Phase::kRecovery)
        prr(c, work);
    else if (work.delivered != 0 && c.window_limited)
        c.congestion.on_ack(now, work.delivered, c.rtt.smoothed());
    if (c.agreed.ecn && segment.has(kEce) && !segment.has(kSyn))
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
    c.window = std::uint32_t{segment.window} << c.agreed.send_shift;
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
    if (c.recovery.rack.sent < sent.at || (c.recovery.rack.sent == sent.at && before(c.recovery.rack.end, sent.end))) {
        c.recovery.rack.sent = sent.at;
        c.recovery.rack.end = sent.end;
        c.recovery.rack.rtt = rtt;
    }
    if (!sent.retransmitted && before(sent.end, c.recovery.rack.highest))
        c.recovery.rack.reordering = true;
    c.recovery.rack.highest = later(c.recovery.rack.highest, sent.end);
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
    if (c.recovery.phase == Phase::kOpen && distance(c.recovery.recover, ack) > kFarBehind)
        c.recovery.recover = ack - 1; // before it comes round to the other side
    if (c.recovery.rack.in_dsack_round && !before(ack, c.recovery.rack.dsack_round))
        c.recovery.rack.in_dsack_round = false;
    const std::size_t bytes = std::min<std::size_t>(ack - c.data_from, c.out.size());
    c.data_from += static_cast<Seq>(bytes);
    c.out.pop(blocks_, bytes);
    if (c.out.size() == 0)
        c.out.clear(blocks_);
    if (c.writable_wanted && c.out.size() <= c.settings.send_buffer / 2) {
        c.writable_wanted = false;
        tell(c, kWritable);
    }
    if (c.recovery.phase == Phase::kRecovery && !c.agreed.sack &&
        before(ack, c.recovery.recover)) {             // a partial one: RFC 6582, 3.2
        const std::uint32_t left = work.acked / c.mss; // those that the duplicates told of, and the one that was lost
        c.recovery.dup_acks -= std::min(c.recovery.dup_acks, left != 0 ? left - 1 : 0);
        if (!c.sent.empty()) {
            c.sent.mark_lost(sent_, c.sent.first());
            work.lost = true;
        }
    }
}

// ---- SACK -----------------------------------------------------------------------------------------------------------

void Tcp::take_sacks(Connection &c, const Segment &segment, Nanos now, Ack &work)
{
    const TcpOptions &o = segment.options;
    const SeqRange &first = o.sack[0];
    const bool inside =
        o.sacks > 1 && at_or_before(o.sack[1].left, first.left) && at_or_before(first.right, o.sack[1].right);
    if (at_or_before(first.right, segment.ack) || inside) { // RFC 2883, 4
        work.dsack = true;
        c.recovery.rack.note_dsack(c.nxt);
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

// ---- finding losses -------------------------------------------------------------------------------------------------

// RFC 8985, 6.2 step 4.
Nanos Tcp::reorder_window(const Connection &c) const
{
    const Rack &r = c.recovery.rack;
    if (!r.reordering && (c.recovery.phase != Phase::kOpen || c.sent.sacked() >= kDuplicates * c.mss))
        return 0;
    if (c.rtt.least() == kNever)
        return 0;
    return std::min(r.window_steps * (c.rtt.least() / 4), c.rtt.smoothed());
}

// RFC 8985, 6.2 step 5: who was sent before one that has arrived, by more than the reordering window, is lost.
void Tcp::rack_loss(Connection &c, Nanos now, Ack &work)
{
    const Rack &r = c.recovery.rack;
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
    if (c.agreed.sack || c.sent.empty())
        return;
    const bool duplicate = segment.ack == c.una && segment.length() == 0 &&
                           (std::uint32_t{segment.window} << c.agreed.send_shift) == c.window;
    if (!duplicate) {
        if (before(c.una, segment.ack) && c.recovery.phase == Phase::kOpen)
            c.recovery.dup_acks = 0;
        return;
    }
    ++c.recovery.dup_acks;
    work.duplicate = true;
    if (c.recovery.phase != Phase::kOpen)
        work.delivered += std::min<std::uint32_t>(c.mss, c.nxt - c.una);
    else if (c.recovery.dup_acks == kDuplicates &&
             before(c.recovery.recover, c.una)) { // RFC 6582, 3.2: not again for the same window
        c.sent.mark_lost(sent_, c.sent.first());
        work.lost = true;
    }
}

// ---- recovery -------------------------------------------------------------------------------------------------------

void Tcp::enter_recovery(Connection &c, Nanos)
{
    Recovery &r = c.recovery;
    const bool answered = r.ecn_answered && before(c.una, r.recover); // the window has answered for this round trip
    ++counters_.recoveries;
    r.enter(c.una, c.nxt);
    if (!answered)
        c.congestion.on_loss(c.nxt - c.una);
}

void Tcp::leave_recovery(Connection &c, Nanos now)
{
    if (c.recovery.phase == Phase::kRecovery)
        c.congestion.end_recovery(now);
    c.recovery.leave();
}

// Proportional rate reduction (RFC 6937): in recovery as much leaves as arrives, in the proportion of the reduction.
void Tcp::prr(Connection &c, const Ack &work)
{
    Recovery &r = c.recovery;
    const std::uint32_t threshold = c.congestion.threshold();
    const std::uint32_t flight = in_network(c);
    r.prr_delivered += work.delivered;
    std::uint32_t send = 0;
    if (flight > threshold) {
        const std::uint64_t share =
            (std::uint64_t{r.prr_delivered} * threshold + r.prr_flight - 1) / std::max(r.prr_flight, 1U);
        send = share > r.prr_out ? static_cast<std::uint32_t>(share) - r.prr_out : 0;
    } else {
        const std::uint32_t owed = r.prr_delivered > r.prr_out ? r.prr_delivered - r.prr_out : 0;
        std::uint32_t limit = std::max(owed, work.delivered);
        if (work.acked != 0 && !work.lost) // slow-start reduction bound: nothing more was lost
            limit += c.mss;
        send = std::min(threshold - flight, limit);
    }
    if (r.prr_out == 0)
        send = std::max<std::uint32_t>(send, c.mss); // the first retransmission goes at once
    c.congestion.set_window(flight + send);
}

// Eifel (RFC 3522, 4015): the acknowledgement echoes a time stamp from before the retransmission, so nothing had been
// lost.
bool Tcp::try_undo(Connection &c, const Segment &segment, Nanos)
{
    Recovery &r = c.recovery;
    if (!c.agreed.timestamps || !segment.options.has_timestamps || !before(r.undo_from, c.una) ||
        !before(segment.options.timestamp_echo, r.undo_stamp))
        return false;
    ++counters_.undone;
    for (SentIndex i = c.sent.first(); i != kNoSent; i = sent_[i].next)
        c.sent.unmark_lost(sent_, i);
    c.congestion.undo();
    r.open();
    return true;
}

// RFC 8985, 7.4.2: was the probe, which may have covered a loss, needed? The acknowledgement of its end alone doesn't
// tell: the original may have brought it, and a second one for the probe is on its way. Only one beyond it says that
// none came.
void Tcp::answer_tail_probe(Connection &c, const Segment &segment, const Ack &work, Nanos)
{
    if (before(segment.ack, c.recovery.tail.end))
        return;
    const bool beyond = before(c.recovery.tail.end, segment.ack);
    const bool twice = work.dsack || (work.acked == 0 && !work.sacked && segment.length() == 0);
    const bool original = c.agreed.timestamps && c.recovery.undo_stamp != 0 && work.acked != 0 &&
                          before(segment.options.timestamp_echo, c.recovery.undo_stamp);
    if (c.recovery.tail.retransmission && !beyond && !twice && !original)
        return;
    c.recovery.tail.active = false;
    if (!c.recovery.tail.retransmission || twice || original || c.recovery.phase != Phase::kOpen)
        return;
    c.congestion.on_loss(c.nxt - c.una + work.acked); // one loss, repaired already: the window still has to answer it
    c.congestion.end_recovery(0);
}

// RFC 3168, 6.1.2: as a loss, at most once a window, and without a retransmission.
void Tcp::answer_ecn(Connection &c, Nanos now)
{
    if (c.recovery.ecn_answered && before(c.una, c.recovery.recover))
        return;
    if (c.recovery.phase != Phase::kOpen)
        return;
    c.recovery.ecn_answered = true;
    c.cwr_due = true;
    c.recovery.recover = c.nxt;
    c.congestion.on_loss(c.nxt - c.una);
    c.congestion.end_recovery(now);
}

} // namespace vma::inet
