// SPDX-License-Identifier: BSD-2-Clause
// The program's calls (RFC 9293, 3.9.1), as sockets have them: errors are what the kernel would say.
#include <errno.h>

#include <algorithm>
#include <utility>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

int Tcp::listen(const Endpoint &local, std::uint32_t backlog, const TcpSettings &settings, std::uint64_t user,
                ListenerId &id)
{
    Listener *free = nullptr;
    for (std::uint32_t i = 0; i < limits_.listeners; ++i) {
        Listener &l = listeners_[i];
        if (l.used && l.local == local)
            return -EADDRINUSE;
        if (!l.used && free == nullptr)
            free = &l;
    }
    if (free == nullptr)
        return -ENOBUFS;
    const std::uint32_t generation = free->generation + 1;
    const bool listed = free->has_event; // of the one that had the place before
    const std::uint32_t next = free->next_event;
    *free = Listener();
    free->generation = generation;
    free->has_event = listed;
    free->next_event = next;
    free->used = true;
    free->local = local;
    free->settings = settings;
    free->user = user;
    free->backlog = std::max(backlog, 1U);
    id = {static_cast<std::uint32_t>(free - listeners_.get()), generation};
    return 0;
}

void Tcp::set_backlog(ListenerId id, std::uint32_t backlog)
{
    Listener &l = listeners_[id.index];
    if (l.used && l.generation == id.generation)
        l.backlog = std::max(backlog, 1U);
}

void Tcp::unlisten(Nanos, ListenerId id)
{
    Listener &l = listeners_[id.index];
    if (!l.used || l.generation != id.generation)
        return;
    for (std::uint32_t i = 0; i < fresh_; ++i) {
        Connection &c = connections_[i];
        if (c.listener != id.index || c.state == TcpState::kClosed)
            continue;
        if (c.state == TcpState::kSynReceived)
            end(c);
    }
    for (std::uint32_t i = l.head; i != kNobody;) {
        Connection &c = connections_[i];
        i = c.next_accept;
        c.listener = kNobody;
        if (c.state != TcpState::kClosed)
            send_reset(c);
        c.orphan = true;
        if (c.state != TcpState::kClosed)
            end(c);
        else
            free_slot(c);
    }
    l.used = false;
    l.head = l.tail = kNobody;
    l.waiting = 0;
}

bool Tcp::accept(ListenerId id, ConnectionId &connection)
{
    Listener &l = listeners_[id.index];
    if (!l.used || l.generation != id.generation || l.head == kNobody)
        return false;
    Connection &c = connections_[l.head];
    l.head = c.next_accept;
    if (l.head == kNobody)
        l.tail = kNobody;
    --l.waiting;
    c.listener = kNobody;
    if (c.events != 0)
        tell(c, c.events);
    connection = id_of(c);
    return true;
}

std::int64_t Tcp::send(Nanos now, ConnectionId id, std::span<const std::uint8_t> data)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return -EBADF;
    if (c->error != 0)
        return -std::exchange(c->error, 0);
    if (c->fin_wanted || c->state == TcpState::kClosed)
        return -EPIPE;
    const std::size_t most = std::min<std::size_t>(c->settings.send_buffer, ByteQueue::most(blocks_));
    const std::size_t room = std::min(most > c->out.size() ? most - c->out.size() : 0, spare_for_sending());
    const std::size_t n = c->out.append(blocks_, data.data(), std::min(room, data.size()));
    if (n < data.size())
        c->writable_wanted = true;
    starved_ = starved_ || (n < data.size() && c->out.size() < most); // not its own limit
    if (n == 0)
        return data.empty() ? 0 : -EAGAIN;
    if (c->sent.empty() && c->alarm == Alarm::kNone)
        c->last_progress = now; // the user time-out counts from here
    if (c->synchronized())
        schedule(*c);
    return static_cast<std::int64_t>(n);
}

// Where there is nothing to read: 0 at the end, or why.
std::int64_t Tcp::nothing_to_read(Connection &c)
{
    if (c.error != 0)
        return -std::exchange(c.error, 0);
    return c.receive.fin_received || c.state == TcpState::kClosed ? 0 : -EAGAIN;
}

// The program has taken so many bytes; the peer may hear that there is room again.
void Tcp::consume(Nanos now, Connection &c, std::size_t n)
{
    c.receive.in.pop(blocks_, n);
    release_input(c);
    if (c.state == TcpState::kClosed || c.receive.fin_received)
        return;
    const std::uint32_t known = c.receive.advertised - c.receive.next;
    const std::uint32_t now_free = window_of(c);
    if (now_free > known && now_free - known >= std::min(2U * c.receive.peer_segment, c.settings.receive_buffer / 2))
        want_ack(c, 0, known < c.settings.receive_buffer / 2, now); // RFC 9293, 3.8.6.2.2
}

std::int64_t Tcp::receive(Nanos now, ConnectionId id, std::span<std::uint8_t> out, bool peek)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return -EBADF;
    const std::size_t n = std::min(out.size(), c->receive.in.size());
    if (n == 0)
        return nothing_to_read(*c);
    c->receive.in.copy(blocks_, 0, out.data(), n);
    if (!peek)
        consume(now, *c, n);
    return static_cast<std::int64_t>(n);
}

std::int64_t Tcp::lend(Nanos now, ConnectionId id, std::size_t most, std::span<const std::uint8_t> &piece)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return -EBADF;
    if (c->receive.in.size() == 0)
        return nothing_to_read(*c);
    blocks_.collect();
    if (most == 0 || !blocks_.arena().may_lend())
        return -ENOBUFS;
    piece = c->receive.in.front(blocks_, most);
    blocks_.arena().lend(piece.data());
    consume(now, *c, piece.size());
    return static_cast<std::int64_t>(piece.size());
}

// What is to be sent may not take the last memory: what arrives, acknowledgements of it above all, would find none.
std::size_t Tcp::spare_for_sending() const
{
    const std::uint32_t kept = blocks_.total() / 4;
    return blocks_.available() > kept ? std::size_t{blocks_.available() - kept} << blocks_.shift() : 0;
}

// Who had no record to send with tries again, all in turn.
void Tcp::records_freed()
{
    if (!records_wanted_ || sent_.available() == 0)
        return;
    records_wanted_ = false;
    for (std::uint32_t i = 0; i < fresh_; ++i)
        if (std::exchange(connections_[i].record_wanted, false) && connections_[i].state != TcpState::kClosed)
            schedule(connections_[i]);
}

// Memory has come back: whoever got less than its own limit allows may try again.
void Tcp::feed_starved()
{
    if (blocks_.available() < blocks_.total() / 2)
        return;
    starved_ = false;
    for (std::uint32_t i = 0; i < fresh_; ++i) {
        Connection &c = connections_[i];
        if (!c.writable_wanted || c.state == TcpState::kClosed)
            continue;
        c.writable_wanted = false;
        tell(c, kWritable);
    }
}

int Tcp::shutdown(Nanos, ConnectionId id)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return -EBADF;
    if (c->state == TcpState::kClosed || c->state == TcpState::kSynSent)
        return -ENOTCONN;
    if (c->fin_wanted)
        return 0;
    c->fin_wanted = true;
    if (c->state == TcpState::kEstablished)
        set_state(*c, TcpState::kFinWait1);
    else if (c->state == TcpState::kCloseWait)
        set_state(*c, TcpState::kLastAck);
    schedule(*c);
    return 0;
}

void Tcp::close(Nanos now, ConnectionId id)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return;
    if (c->state == TcpState::kClosed) {
        free_slot(*c);
        return;
    }
    if (c->receive.in.size() != 0 || c->state == TcpState::kSynSent) { // bytes nobody will read: RFC 2525, 2.17
        abort(now, id);
        return;
    }
    shutdown(now, id);
    unlink(events_, &Connection::event, *c);
    c->orphan = true;
    if (c->state == TcpState::kFinWait2)
        set(*c, TcpTimer::kLife, now + TimeWaits::kLength);
}

void Tcp::abort(Nanos, ConnectionId id)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return;
    if (c->state != TcpState::kClosed && c->state != TcpState::kSynSent)
        send_reset(*c);
    c->orphan = true;
    if (c->state == TcpState::kClosed)
        free_slot(*c);
    else
        end(*c);
}

int Tcp::settle(Nanos now, ConnectionId id, const TcpSettings &settings)
{
    Connection *const c = get(id);
    if (c == nullptr)
        return -EBADF;
    const bool algorithm = settings.congestion != c->settings.congestion;
    c->settings = settings;
    if (algorithm)
        c->congestion.change(settings.congestion);
    if (settings.keepalive && c->synchronized())
        set(*c, TcpTimer::kKeepalive, c->last_heard + settings.keepalive_idle);
    if (c->synchronized())
        set_alarm(*c, now);
    schedule(*c); // Nagle or the cork may have held something back
    return 0;
}

void Tcp::set_user(ConnectionId id, std::uint64_t user)
{
    Connection *const c = get(id);
    if (c != nullptr)
        c->user = user;
}

int Tcp::take_error(ConnectionId id)
{
    Connection *const c = get(id);
    return c != nullptr ? std::exchange(c->error, 0) : 0;
}

std::size_t Tcp::readable(ConnectionId id) const
{
    const Connection *const c = find(id);
    return c != nullptr ? c->receive.in.size() : 0;
}

std::size_t Tcp::room(ConnectionId id) const
{
    const Connection *const c = find(id);
    if (c == nullptr || c->fin_wanted || c->state == TcpState::kClosed)
        return 0;
    const std::size_t most = std::min<std::size_t>(c->settings.send_buffer, ByteQueue::most(blocks_));
    return most > c->out.size() ? most - c->out.size() : 0;
}

} // namespace vma::inet
