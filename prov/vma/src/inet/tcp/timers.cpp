// SPDX-License-Identifier: BSD-2-Clause
// What happens when nothing comes: retransmission (RFC 6298), the tail loss probe (RFC 8985, 7), window probes (RFC
// 9293, 3.8.6.1), keep-alive (3.8.4), delayed acknowledgements, and giving up (3.8.3). A timer that moves to later
// costs nothing: the heap's entry stays, fires early and finds nothing due.
#include <errno.h>

#include <algorithm>
#include <utility>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr Nanos kWorstAckDelay = 200 * kMillisecond; // RFC 8985, 7.2: WCDelAckT
constexpr unsigned kOrphanRetries = 8;               // as the kernel's tcp_orphan_retries
constexpr unsigned kProbesOfClosedWindow = 15;

} // namespace

Nanos Tcp::deadline() const
{
    return timers_.next();
}

void Tcp::advance(Nanos now)
{
    while (timers_.next() <= now)
        fire(connections_[timers_.owner()], now);
    expire_time_waits(now);
}

void Tcp::set(Connection &c, TcpTimer timer, Nanos at)
{
    c.at[static_cast<unsigned>(timer)] = at;
    if (at < c.armed) {
        c.armed = at;
        timers_.set(number(c), at);
    }
}

void Tcp::fire(Connection &c, Nanos now)
{
    const auto due = [&c, now](TcpTimer timer) {
        Nanos &at = c.at[static_cast<unsigned>(timer)];
        if (at > now)
            return false;
        at = kNever;
        return true;
    };
    const auto alive = [&c, generation = c.generation] {
        return c.generation == generation && c.state != TcpState::kClosed;
    };
    if (due(TcpTimer::kDelayedAck)) {
        c.ack_due = true;
        schedule(c);
    }
    if (due(TcpTimer::kPace))
        schedule(c);
    if (due(TcpTimer::kRetransmit))
        alarm(c, now);
    if (alive() && due(TcpTimer::kKeepalive))
        keepalive(c, now);
    if (alive() && due(TcpTimer::kLife))
        end(c);
    if (!alive())
        return;
    c.armed = *std::min_element(std::begin(c.at), std::end(c.at));
    timers_.set(number(c), c.armed);
}

// ---- the retransmission timer ---------------------------------------------------------------------------------------

// RFC 6298, 5.1 and 5.3; RFC 8985, 7.2.
void Tcp::set_alarm(Connection &c, Nanos now)
{
    if (!c.synchronized())
        return;
    if (c.sent.empty()) {
        if (c.alarm != Alarm::kPersist) {
            c.alarm = Alarm::kNone;
            set(c, TcpTimer::kRetransmit, kNever);
        }
        return;
    }
    if (c.alarm == Alarm::kReorder && c.at[static_cast<unsigned>(TcpTimer::kRetransmit)] != kNever)
        return; // sooner than anything else, and it sets the next
    Nanos at = now + c.rtt.rto();
    c.alarm = Alarm::kTimeout;
    if (c.agreed.sack && c.recovery.phase == Phase::kOpen && c.sent.sacked() == 0 && c.sent.lost() == 0 &&
        !c.recovery.tail.active) {
        Nanos probe = c.rtt.known() ? 2 * c.rtt.smoothed() : kSecond;
        if (c.sent.first() == c.sent.last())
            probe += kWorstAckDelay;
        if (now + probe < at) {
            at = now + probe;
            c.alarm = Alarm::kProbe;
        }
    }
    if (c.settings.user_timeout != 0)
        at = std::min(at, std::max(now + 1, c.last_progress + c.settings.user_timeout));
    set(c, TcpTimer::kRetransmit, at);
}

void Tcp::alarm(Connection &c, Nanos now)
{
    switch (std::exchange(c.alarm, Alarm::kNone)) {
    case Alarm::kTimeout:
        timed_out(c, now);
        break;
    case Alarm::kProbe:
        if (gave_up(c, now)) {
            timed_out(c, now);
            break;
        }
        c.recovery.tail.pending = true;
        schedule(c);
        c.alarm = Alarm::kTimeout; // in case that it can't be sent
        set(c, TcpTimer::kRetransmit, now + c.rtt.rto());
        break;
    case Alarm::kReorder: {
        Ack work;
        rack_loss(c, now, work);
        if (work.lost && c.recovery.phase == Phase::kOpen)
            enter_recovery(c, now);
        if (work.lost && c.recovery.phase == Phase::kRecovery)
            prr(c, work);
        if (c.alarm == Alarm::kNone)
            set_alarm(c, now);
        schedule(c);
        break;
    }
    case Alarm::kPersist:
        probe_window(c, now);
        break;
    case Alarm::kNone:
        break;
    }
}

bool Tcp::gave_up(const Connection &c, Nanos now) const
{
    if (c.settings.user_timeout != 0)
        return now - c.last_progress >= c.settings.user_timeout;
    return c.retries >= (c.orphan ? kOrphanRetries : c.settings.retries);
}

void Tcp::syn_timed_out(Connection &c, Nanos now)
{
    const bool over = c.settings.user_timeout != 0 && c.state == TcpState::kSynSent
                          ? now - c.last_progress >= c.settings.user_timeout
                          : c.retries >= c.settings.syn_retries;
    if (over) {
        fail(c, c.soft_error != 0 ? c.soft_error : ETIMEDOUT);
        return;
    }
    ++c.retries;
    c.rtt.back_off();
    c.syn_due = true;
    schedule(c);
}

void Tcp::timed_out(Connection &c, Nanos now)
{
    if (!c.synchronized()) {
        syn_timed_out(c, now);
        return;
    }
    if (c.sent.empty())
        return;
    if (gave_up(c, now)) {
        send_reset(c);
        fail(c, c.soft_error != 0 ? c.soft_error : ETIMEDOUT);
        return;
    }
    ++counters_.timeouts;
    ++c.retries;
    if (sent_[c.sent.first()].sacked) // the receiver has thrown away what it had reported: RFC 2018, 8
        c.sent.forget_sacks(sent_);
    for (SentIndex i = c.sent.first(); i != kNoSent; i = sent_[i].next)
        c.sent.mark_lost(sent_, i);
    c.congestion.on_timeout(c.nxt - c.una, c.recovery.phase != Phase::kLoss);
    if (c.recovery.phase != Phase::kLoss)
        c.recovery.can_undo = false; // the stamp of this one's first retransmission counts
    c.recovery.phase = Phase::kLoss;
    c.recovery.recover = c.nxt;
    c.recovery.dup_acks = 0;
    c.recovery.tail = TailProbe();
    c.window_limited = true;
    c.rtt.back_off();
    set_alarm(c, now);
    schedule(c);
}

// The window stays closed, or too small for a segment.
void Tcp::probe_window(Connection &c, Nanos now)
{
    if (c.probes >= kProbesOfClosedWindow || (c.settings.user_timeout != 0 && gave_up(c, now))) {
        send_reset(c);
        fail(c, c.soft_error != 0 ? c.soft_error : ETIMEDOUT);
        return;
    }
    ++c.probes;
    c.probe_due = true;
    c.rtt.back_off();
    c.alarm = Alarm::kPersist;
    set(c, TcpTimer::kRetransmit, now + c.rtt.rto());
    schedule(c);
}

void Tcp::keepalive(Connection &c, Nanos now)
{
    if (!c.settings.keepalive)
        return;
    const Nanos idle = now - c.last_heard;
    if (idle < c.settings.keepalive_idle) {
        set(c, TcpTimer::kKeepalive, c.last_heard + c.settings.keepalive_idle);
        return;
    }
    if (!c.sent.empty() || c.unsent() != 0) { // those have timers of their own
        set(c, TcpTimer::kKeepalive, now + c.settings.keepalive_idle);
        return;
    }
    const bool over = c.settings.user_timeout != 0 ? c.probes != 0 && idle >= c.settings.user_timeout
                                                   : c.probes >= c.settings.keepalive_probes;
    if (over) {
        send_reset(c);
        fail(c, c.soft_error != 0 ? c.soft_error : ETIMEDOUT);
        return;
    }
    ++c.probes;
    c.probe_due = true;
    schedule(c);
    set(c, TcpTimer::kKeepalive, now + c.settings.keepalive_interval);
}

} // namespace vma::inet
