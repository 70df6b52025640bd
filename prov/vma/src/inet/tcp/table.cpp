// SPDX-License-Identifier: BSD-2-Clause
// The engine's connections: their places, the table by flow, the lists of who wants to send and who has news, and the
// ends of a connection's life.
#include <errno.h>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

Tcp::Tcp(const TcpLimits &limits, const HashKey &secret, Nanos)
    : limits_(limits), secret_(secret), blocks_(limits.blocks, limits.block_shift), sent_(limits.sent),
      next_hops_(limits.paths, secret), timers_(limits.connections), flows_(limits.connections + limits.time_waits),
      time_waits_(limits.time_waits), connections_(std::make_unique<Connection[]>(limits.connections)),
      listeners_(std::make_unique<Listener[]>(limits.listeners)), replies_(std::make_unique<Reply[]>(limits.replies)),
      gro_(limits.gro_streams), free_connections_(limits.connections)
{
}

// ---- lists ----------------------------------------------------------------------------------------------------------

void Tcp::link(List &list, Link Connection::*which, Connection &c)
{
    Link &link = c.*which;
    link.on = true;
    link.next = kNobody;
    link.prev = list.tail;
    (list.tail != kNobody ? (connections_[list.tail].*which).next : list.head) = number(c);
    list.tail = number(c);
}

void Tcp::unlink(List &list, Link Connection::*which, Connection &c)
{
    Link &link = c.*which;
    if (!link.on)
        return;
    (link.prev != kNobody ? (connections_[link.prev].*which).next : list.head) = link.next;
    (link.next != kNobody ? (connections_[link.next].*which).prev : list.tail) = link.prev;
    link.on = false;
}

void Tcp::schedule(Connection &c)
{
    if (!c.ready.on)
        link(ready_, &Connection::ready, c);
}

void Tcp::tell(Connection &c, std::uint32_t events)
{
    c.events |= events; // who is not accepted yet has no program that could hear
    if (!c.event.on && !c.orphan && c.listener == kNobody)
        link(events_, &Connection::event, c);
}

void Tcp::tell(Listener &l)
{
    if (l.has_event)
        return;
    l.has_event = true;
    l.next_event = listener_event_head_;
    listener_event_head_ = static_cast<std::uint32_t>(&l - listeners_.get());
}

bool Tcp::next_event(TcpEvent &event)
{
    event = TcpEvent();
    if (listener_event_head_ != kNobody) {
        Listener &l = listeners_[listener_event_head_];
        event.what = kAcceptable;
        event.listener = {listener_event_head_, l.generation};
        event.user = l.user;
        listener_event_head_ = l.next_event;
        l.has_event = false;
        return true;
    }
    if (events_.head == kNobody)
        return false;
    Connection &c = connections_[events_.head];
    unlink(events_, &Connection::event, c);
    event.what = c.events;
    event.connection = id_of(c);
    event.user = c.user;
    c.events = 0;
    return true;
}

// ---- places ---------------------------------------------------------------------------------------------------------

ConnectionId Tcp::id_of(const Connection &c) const
{
    return {number(c), c.generation};
}

Connection *Tcp::get(ConnectionId id)
{
    if (id.index >= limits_.connections)
        return nullptr;
    Connection &c = connections_[id.index];
    return c.generation == id.generation && !c.orphan ? &c : nullptr;
}

const Connection *Tcp::find(ConnectionId id) const
{
    return const_cast<Tcp *>(this)->get(id);
}

Connection *Tcp::find_flow(const Flow &flow, std::uint32_t &value, std::uint32_t &hash)
{
    hash = static_cast<std::uint32_t>(hash_flow<TableHash>(secret_, flow));
    value = flows_.find(hash, [&](std::uint32_t v) {
        return (v & kTimeWaitBit) != 0 ? time_waits_[v & ~kTimeWaitBit].flow == flow : connections_[v].flow == flow;
    });
    return value == FlowTable::kNone || (value & kTimeWaitBit) != 0 ? nullptr : &connections_[value];
}

bool Tcp::knows(const Flow &flow)
{
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    return find_flow(flow, value, hash) != nullptr || value != FlowTable::kNone;
}

Connection *Tcp::open_slot(const Flow &flow, std::uint32_t hash, const TcpSettings &settings)
{
    std::uint32_t index = free_head_;
    if (index != kNobody)
        free_head_ = connections_[index].ready.next;
    else if (fresh_ != limits_.connections)
        index = fresh_++;
    else
        return nullptr;
    --free_connections_;
    Connection &c = connections_[index];
    const std::uint32_t generation = c.generation + 1;
    c = Connection();
    c.generation = generation;
    c.flow = flow;
    c.hash = hash;
    c.settings = settings;
    c.in_table = true;
    flows_.insert(hash, index);
    return &c;
}

void Tcp::leave_table(Connection &c)
{
    if (c.in_table)
        flows_.erase(c.hash, number(c));
    c.in_table = false;
}

void Tcp::free_slot(Connection &c)
{
    leave_table(c);
    unlink(ready_, &Connection::ready, c);
    unlink(events_, &Connection::event, c);
    timers_.set(number(c), kNever);
    c.sent.clear(sent_);
    c.record_wanted = false;
    records_freed();
    c.out.clear(blocks_);
    c.receive.in.clear(blocks_);
    if (c.path != kNoNextHop)
        next_hops_.release(c.path);
    c.path = kNoNextHop;
    c.orphan = true; // nobody finds it by an old id
    set_state(c, TcpState::kClosed);
    c.ready.next = free_head_;
    free_head_ = number(c);
    ++free_connections_;
}

// The only place where a state changes.
void Tcp::set_state(Connection &c, TcpState state)
{
    if (state_hook_ != nullptr && state != c.state) [[unlikely]]
        state_hook_(state_hook_context_, c, state);
    c.state = state;
}

// ---- ends -----------------------------------------------------------------------------------------------------------

// Nothing more will be sent or taken. What was received stays for the program.
void Tcp::end(Connection &c)
{
    const bool half_open = c.state == TcpState::kSynReceived && c.listener != kNobody;
    if (half_open)
        --listeners_[c.listener].half_open;
    leave_table(c);
    unlink(ready_, &Connection::ready, c);
    timers_.set(number(c), kNever);
    c.armed = kNever;
    for (Nanos &at : c.at)
        at = kNever;
    c.sent.clear(sent_);
    c.record_wanted = false;
    records_freed();
    c.out.clear(blocks_);
    set_state(c, TcpState::kClosed);
    if (c.orphan || half_open)
        free_slot(c);
    else
        tell(c, kGone | kReadable | kWritable);
}

void Tcp::fail(Connection &c, int error)
{
    c.error = error;
    if (!c.orphan)
        c.events |= kFailed;
    end(c);
}

std::uint32_t Tcp::push_time_wait(const TimeWait &entry)
{
    if (time_waits_.full()) {
        TimeWait &oldest = time_waits_.oldest();
        if (!oldest.dead)
            flows_.erase(oldest.hash, time_waits_.oldest_index() | kTimeWaitBit);
        time_waits_.pop();
        ++counters_.time_waits_evicted;
    }
    return time_waits_.push(entry);
}

void Tcp::enter_time_wait(Connection &c, Nanos now)
{
    expire_time_waits(now);
    TimeWait entry;
    entry.flow = c.flow;
    entry.hash = c.hash;
    entry.nxt = c.nxt;
    entry.rcv = c.receive.next;
    entry.timestamps = c.agreed.timestamps;
    entry.stamp_recent = c.receive.stamp_recent;
    entry.stamp_offset = c.stamp_offset;
    entry.window = static_cast<std::uint16_t>(std::min<std::uint32_t>(window_of(c) >> c.agreed.receive_shift, 0xffff));
    entry.until = now + TimeWaits::kLength;
    flows_.replace(c.hash, number(c), push_time_wait(entry) | kTimeWaitBit);
    c.in_table = false;
    if (c.ack_due) { // of the FIN that brought us here
        Reply r = reply_of(c, kAck, c.nxt);
        r.segment.window = entry.window;
        if (c.agreed.timestamps) {
            r.segment.options.has_timestamps = true;
            r.segment.options.timestamp = stamp(c, now);
            r.segment.options.timestamp_echo = c.receive.stamp_recent;
        }
        reply(r);
    }
    set_state(c, TcpState::kTimeWait);
    end(c);
}

void Tcp::expire_time_waits(Nanos now)
{
    while (!time_waits_.empty() && time_waits_.oldest().until <= now) {
        if (!time_waits_.oldest().dead)
            flows_.erase(time_waits_.oldest().hash, time_waits_.oldest_index() | kTimeWaitBit);
        time_waits_.pop();
    }
}

void Tcp::send_reset(const Connection &c)
{
    if (c.path == kNoNextHop || !next_hops_[c.path].ready)
        return;
    // The number that the peer waits for, where it has taken back its window from what was sent (RFC 5961, 3.2).
    const bool beyond = c.synchronized() && c.nxt - c.una > c.window;
    reply(reply_of(c, kRst | kAck, beyond ? c.una : c.nxt));
    ++counters_.resets_out;
}

Tcp::Reply Tcp::reply_of(const Connection &c, std::uint8_t flags, Seq seq) const
{
    Reply r;
    r.flow = c.flow;
    r.segment.flags = flags;
    r.segment.seq = seq;
    r.segment.ack = c.receive.next;
    r.mac = next_hops_[c.path].mac;
    r.vlan = next_hops_[c.path].vlan;
    return r;
}

bool Tcp::reply(const Reply &r)
{
    if (replies_used_ == limits_.replies) {
        ++counters_.replies_dropped;
        return false;
    }
    replies_[(replies_from_ + replies_used_++) % limits_.replies] = r;
    return true;
}

// ---- listeners ------------------------------------------------------------------------------------------------------

// The one for the address goes before the one for any address, as in the kernel.
Tcp::Listener *Tcp::find_listener(const Endpoint &local)
{
    Listener *any = nullptr;
    for (std::uint32_t i = 0; i < limits_.listeners; ++i) {
        Listener &l = listeners_[i];
        if (!l.used || l.local.port != local.port)
            continue;
        if (l.local.address == local.address)
            return &l;
        if (l.local.address.is_any() && (!l.local.address.is_v4() || local.address.is_v4()))
            any = &l;
    }
    return any;
}

void Tcp::enqueue_accept(Listener &l, Connection &c)
{
    c.next_accept = kNobody;
    (l.tail != kNobody ? connections_[l.tail].next_accept : l.head) = number(c);
    l.tail = number(c);
    ++l.waiting;
    tell(l);
}

} // namespace vma::inet
