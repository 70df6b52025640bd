// SPDX-License-Identifier: BSD-2-Clause
// Connections that another TCP has opened, and that it gets back. What was received behind a hole is not passed on: the
// peer sends it again (RFC 2018, 8 allows that to a receiver that has reported it). A window that is more than a queue
// here can hold shrinks: what would be lost behind its edge costs the peer more than an edge that goes back (RFC 9293,
// 3.8.6).
#include "prov/vma/src/inet/tcp/handover.hpp"

#include <errno.h>

#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr Nanos kLongAgo = Nanos{100} * 24 * 3600 * kSecond; // longer than a time stamp lasts (RFC 7323, 5.5)

bool is_consistent(const TcpHandover &h, std::size_t queued)
{
    const std::int32_t flight = distance(h.una, h.nxt);
    return flight >= 0 && static_cast<std::size_t>(flight) <= queued && h.send_shift <= kLargestShift &&
           h.receive_shift <= kLargestShift && at_or_before(h.acked, h.rcv) && at_or_before(h.rcv, h.advertised) &&
           !h.peer_finished;
}

} // namespace

int Tcp::adopt(Nanos now, const TcpHandover &h, std::span<const std::uint8_t> queued,
               std::span<const std::uint8_t> unread, NextHopIndex path, const TcpSettings &settings, std::uint64_t user,
               ConnectionId &id)
{
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    if (!is_consistent(h, queued.size()))
        return -EINVAL;
    expire_time_waits(now);
    if (find_flow(h.flow, value, hash) != nullptr)
        return -EADDRINUSE;
    if (value != FlowTable::kNone && !revive(value, hash))
        return -EADDRINUSE;
    Connection *const c = open_slot(h.flow, hash, settings);
    if (c == nullptr)
        return -ENOBUFS;
    c->path = path;
    take_agreed(*c, h, now);
    if (!take_queues(*c, h, queued, unread, now)) {
        c->path = kNoNextHop; // still the caller's
        free_slot(*c);
        return -ENOBUFS;
    }
    c->user = user;
    set_state(*c, TcpState::kEstablished);
    c->last_heard = now;
    established(*c, now);
    if (!c->sent.empty())
        set_alarm(*c, now);
    if (c->receive.next != c->receive.acked || c->receive.advertised != h.advertised)
        want_ack(*c, c->receive.next - c->receive.acked, c->receive.advertised != h.advertised, now);
    if (!unread.empty())
        tell(*c, kReadable);
    id = id_of(*c);
    schedule(*c);
    return 0;
}

// A flow that was given away comes back.
bool Tcp::revive(std::uint32_t value, std::uint32_t hash)
{
    TimeWait &old = time_waits_[value & ~kTimeWaitBit];
    if (!old.mute)
        return false;
    old.dead = true;
    flows_.erase(hash, value);
    return true;
}

void Tcp::take_agreed(Connection &c, const TcpHandover &h, Nanos now)
{
    c.agreed = h;
    c.stamp_offset = h.timestamp - static_cast<std::uint32_t>(now / kMillisecond);
    c.receive.stamp_recent_at = now - kLongAgo; // what the peer's clock said is not passed on
    c.iss = h.una - 1;
    c.receive.irs = h.rcv - 1;
    set_mss(c);
    c.receive.peer_segment = std::min(c.agreed.peer_mss, c.mss);
    c.congestion.start(c.settings.congestion, c.mss);
    if (h.congestion_window != 0)
        c.congestion.set_window(h.congestion_window * c.mss);
    if (h.rtt != 0)
        c.rtt.sample(h.rtt, now);
}

// False: no memory, or no records.
bool Tcp::take_queues(Connection &c, const TcpHandover &h, std::span<const std::uint8_t> queued,
                      std::span<const std::uint8_t> unread, Nanos now)
{
    c.una = c.data_from = c.small_end = h.una;
    c.window = h.window;
    c.most_window = std::max(h.window, h.most_window);
    c.window_seq = h.window_seq;
    c.window_ack = h.una;
    c.receive.next = h.rcv;
    c.receive.acked = h.acked;
    const auto room = static_cast<Seq>(most_adopted() - std::min(unread.size(), most_adopted()));
    c.receive.advertised = earlier(h.advertised, h.rcv + room);
    if (c.out.append(blocks_, queued.data(), queued.size()) != queued.size() ||
        c.receive.in.append(blocks_, unread.data(), unread.size()) != unread.size())
        return false;
    c.nxt = h.una;
    c.adopted = true;
    c.adopted_end = h.una + static_cast<Seq>(queued.size());
    return record_sent(c, h.nxt, now);
}

// False: no records are left.
bool Tcp::record_sent(Connection &c, Seq nxt, Nanos now)
{
    while (before(c.nxt, nxt)) {
        const Seq end = distance(c.nxt, nxt) > c.mss ? c.nxt + c.mss : nxt;
        if (!c.sent.append(sent_, c.nxt, end, false, now))
            return false;
        sent_[c.sent.last()].retransmitted = true; // when it was sent nobody knows
        c.nxt = end;
    }
    return true;
}

void Tcp::adopt_sent(Nanos now, ConnectionId id, Seq nxt)
{
    Connection *const c = get(id);
    if (c == nullptr || !c->adopted || !at_or_before(nxt, c->adopted_end))
        return;
    static_cast<void>(record_sent(*c, nxt, now)); // what has none is found by what the peer says
    if (!c->sent.empty())
        set_alarm(*c, now);
}

int Tcp::describe(Nanos now, ConnectionId id, TcpHandover &h) const
{
    const Connection *const c = find(id);
    if (c == nullptr)
        return -EBADF;
    const bool open = !c->fin_wanted && (c->state == TcpState::kEstablished || c->state == TcpState::kCloseWait);
    h = TcpHandover();
    h.flow = c->flow;
    static_cast<Handshake &>(h) = c->agreed;
    h.timestamp = stamp(*c, now) + 1;
    h.una = c->una;
    h.nxt = open ? c->nxt : c->una;
    h.window = c->window;
    h.most_window = c->most_window;
    h.window_seq = c->window_seq;
    h.congestion_window = c->congestion.window() / std::max<std::uint32_t>(c->mss, 1);
    h.rtt = c->rtt.smoothed();
    h.peer_finished = c->receive.fin_received;
    h.rcv = c->receive.fin_received ? c->receive.next - 1 : c->receive.next;
    h.acked = at_or_before(c->receive.acked, h.rcv) ? c->receive.acked : h.rcv;
    h.advertised = at_or_before(h.rcv, c->receive.advertised) ? c->receive.advertised : h.rcv;
    return open ? 0 : -ENOTCONN;
}

std::size_t Tcp::queued(ConnectionId id) const
{
    const Connection *const c = find(id);
    return c != nullptr ? c->out.size() : 0;
}

void Tcp::copy_queued(ConnectionId id, std::size_t offset, std::span<std::uint8_t> out) const
{
    if (const Connection *const c = find(id))
        c->out.copy(blocks_, offset, out.data(), out.size());
}

void Tcp::copy_unread(ConnectionId id, std::size_t offset, std::span<std::uint8_t> out) const
{
    if (const Connection *const c = find(id))
        c->receive.in.copy(blocks_, offset, out.data(), out.size());
}

void Tcp::forget(Nanos now, ConnectionId id)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return;
    const Flow flow = c->flow;
    free_slot(*c);
    ignore(now, flow);
}

void Tcp::ignore(Nanos now, const Flow &flow)
{
    std::uint32_t value = 0;
    TimeWait entry;
    expire_time_waits(now);
    if (find_flow(flow, value, entry.hash) != nullptr || value != FlowTable::kNone)
        return;
    entry.flow = flow;
    entry.mute = true;
    entry.until = now + TimeWaits::kLength;
    const std::uint32_t index = push_time_wait(entry);
    flows_.insert(entry.hash, index | kTimeWaitBit);
}

} // namespace vma::inet
