// SPDX-License-Identifier: BSD-2-Clause
// The peer's data: in order to the program, behind a hole into its place, and what that says to the peer: acknowledgements
// soon or delayed (RFC 9293, 3.8.6.3; RFC 5681, 4.2), SACK and D-SACK (RFC 2018, 2883), the window (RFC 9293, 3.8.6.2.2).
#include <errno.h>

#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

namespace {

constexpr Nanos kAckDelay = 40 * kMillisecond; // RFC 9293 allows 500, the kernel takes 40

} // namespace

// The right edge never goes back (RFC 9293, 3.8.6.2.2), and a small step to the right is not worth a word.
std::uint32_t Tcp::window_of(const Connection &c) const
{
    const std::size_t most = std::min<std::size_t>(c.settings.receive_buffer, ByteQueue::most(blocks_));
    const std::size_t held = c.in.size();
    std::size_t room = most > held ? most - held : 0;
    if (blocks_.available() < blocks_.total() / 4) // little is left for all
        room = std::min(room, std::size_t{blocks_.available()} << blocks_.shift() >> 3);
    room = std::min(room, std::size_t{0xffff} << c.receive_shift);
    const std::uint32_t known = c.advertised - c.rcv;
    const bool counted =
        !c.sack && c.behind.count != 0; // the peer counts duplicates, which have the same window: RFC 5681, 2
    if (room <= known || (counted && known >= most / 2))
        return known;
    const std::uint32_t step = std::min<std::uint32_t>(c.peer_segment, static_cast<std::uint32_t>(most / 2));
    return room - known >= step ? static_cast<std::uint32_t>(room) : known;
}

// RFC 3168, 6.1.3.
void Tcp::note_marks(Connection &c, const Segment &segment, std::uint8_t ecn)
{
    if (!c.ecn)
        return;
    if (segment.has(kCwr))
        c.ece_due = false;
    if (ecn == kEcnExperienced) {
        c.ece_due = true;
        c.quick = std::max<std::uint8_t>(c.quick, 2);
    }
}

// What is longer than a frame, several segments have been put into by a kernel: the next may come alone.
void Tcp::note_size(Connection &c, std::size_t len)
{
    const std::size_t size = std::min<std::size_t>(len, next_hops_.link_mtu());
    c.peer_segment = static_cast<std::uint16_t>(std::max<std::size_t>(c.peer_segment, size));
}

void Tcp::take_data(Connection &c, const Segment &segment, Nanos now, std::uint8_t ecn)
{
    note_marks(c, segment, ecn);
    if (c.fin_received) // nothing comes behind a FIN: what does is old, or invented
        return;
    Seq seq = segment.seq + (segment.has(kSyn) ? 1 : 0);
    std::span<const std::uint8_t> data = segment.data;
    if (c.orphan && !data.empty() && before(c.rcv, seq + static_cast<std::uint32_t>(data.size()))) {
        send_reset(c); // nobody will read it: RFC 1122, 4.2.2.13
        end(c);
        return;
    }
    if (before(seq, c.rcv)) { // its beginning is old
        const std::uint32_t old = std::min<std::uint32_t>(c.rcv - seq, static_cast<std::uint32_t>(data.size()));
        if (old != 0 && c.sack) {
            c.dsack_due = true;
            c.dsack = {seq, seq + old};
        }
        seq += old;
        data = data.subspan(old);
    }
    const std::uint32_t window = c.advertised - seq;
    const bool whole = data.size() <= window && distance(seq, c.advertised) >= 0;
    if (!whole)
        data = data.first(distance(seq, c.advertised) > 0 ? window : 0);
    if (segment.has(kFin) && whole && !c.have_fin) {
        c.have_fin = true;
        c.fin_at = seq + static_cast<std::uint32_t>(data.size());
    }
    if (c.have_fin &&
        before(c.fin_at, seq + static_cast<std::uint32_t>(data.size()))) // bytes behind the end are nobody's
        data = data.first(before(seq, c.fin_at) ? c.fin_at - seq : 0);
    const bool in_order = seq == c.rcv;
    const bool gaps = c.behind.count != 0;
    if (in_order)
        take_in_order(c, data);
    else if (!data.empty() && take_out_of_order(c, seq, data) && !c.sack && c.duplicates_due != 0xff)
        ++c.duplicates_due; // it counts them (RFC 5681, 4.2), so several that came together are not answered together
    note_size(c, segment.data.size());
    want_ack(c, data.size(), !in_order || gaps || !whole, now);
    if (c.have_fin && c.rcv == c.fin_at)
        take_fin(c, now);
}

void Tcp::take_in_order(Connection &c, std::span<const std::uint8_t> data)
{
    if (data.empty())
        return;
    const std::size_t at = c.in.size();
    if (!c.in.write_at(blocks_, at, data.data(), data.size())) {
        ++counters_.no_memory;
        return;
    }
    extend_input(c, data.size());
}

// `len` bytes more are in their place.
void Tcp::extend_input(Connection &c, std::size_t len)
{
    c.in.extend(len);
    c.duplicates_due = 0;
    c.rcv += static_cast<std::uint32_t>(len);
    c.bytes_received += len;
    if (c.behind.count != 0)
        join_ranges(c);
    tell(c, kReadable);
}

// What lies at RCV.NXT now was received before.
void Tcp::join_ranges(Connection &c)
{
    OutOfOrder &o = c.behind;
    for (bool again = true; again;) { // they are in no order
        again = false;
        for (std::uint32_t i = 0; i < o.count;) {
            const SeqRange range = o.range[i];
            if (before(c.rcv, range.left)) {
                ++i;
                continue;
            }
            if (before(c.rcv, range.right)) {
                c.in.extend(range.right - c.rcv);
                c.bytes_received += range.right - c.rcv;
                c.rcv = range.right;
                again = true;
            }
            std::copy(&o.range[i + 1], &o.range[o.count], &o.range[i]);
            --o.count;
        }
    }
}

bool Tcp::take_out_of_order(Connection &c, Seq seq, std::span<const std::uint8_t> data)
{
    OutOfOrder &o = c.behind;
    SeqRange range = {seq, seq + static_cast<std::uint32_t>(data.size())};
    for (std::uint32_t i = 0; i < o.count; ++i) {
        if (at_or_before(o.range[i].left, range.left) && at_or_before(range.right, o.range[i].right)) {
            ++counters_.duplicates;
            c.dsack_due = c.sack;
            c.dsack = range;
            return true;
        }
    }
    const std::size_t at = c.in.size() + (seq - c.rcv);
    if (o.count == kMostRanges || blocks_.available() < blocks_.total() / 8 ||
        !c.in.write_at(blocks_, at, data.data(), data.size())) {
        ++counters_.no_memory;
        return false;
    }
    ++counters_.out_of_order;
    std::uint32_t kept = 0;
    SeqRange rest[kMostRanges];
    for (std::uint32_t i = 0; i < o.count; ++i) {
        const SeqRange &old = o.range[i];
        if (at_or_before(old.left, range.right) && at_or_before(range.left, old.right))
            range = {earlier(old.left, range.left), later(old.right, range.right)};
        else
            rest[kept++] = old;
    }
    o.range[0] = range;
    std::copy_n(rest, kept, &o.range[1]);
    o.count = kept + 1;
    return true;
}

void Tcp::take_fin(Connection &c, Nanos now)
{
    ++c.rcv;
    c.fin_received = true;
    want_ack(c, 0, true, now);
    tell(c, kReadable | kPeerFinished);
    switch (c.state) {
    case TcpState::kEstablished:
        set_state(c, TcpState::kCloseWait);
        break;
    case TcpState::kFinWait1: // our FIN is not acknowledged yet
        set_state(c, TcpState::kClosing);
        break;
    case TcpState::kFinWait2:
        enter_time_wait(c, now);
        break;
    default:
        break;
    }
}

// True: the peer is to hear of it at once.
bool Tcp::count_unacked(Connection &c, std::size_t len)
{
    c.unacked += static_cast<std::uint32_t>(len);
    const std::uint32_t most = c.settings.quick_ack_most;
    bool due = (c.settings.quick_ack && (most == 0 || len <= most)) || c.unacked >= 2U * c.peer_segment;
    if (c.quick != 0 && len != 0) {
        --c.quick;
        due = true;
    }
    return due;
}

void Tcp::ask_for_ack(Connection &c, bool at_once, Nanos now)
{
    if (at_once) {
        c.ack_due = true;
        schedule(c);
    } else if (c.at[static_cast<unsigned>(TcpTimer::kDelayedAck)] == kNever) {
        set(c, TcpTimer::kDelayedAck, now + kAckDelay);
    }
}

void Tcp::want_ack(Connection &c, std::size_t len, bool at_once, Nanos now)
{
    const bool due = count_unacked(c, len) || at_once;
    if (due || len != 0)
        ask_for_ack(c, due, now);
}

// Memory of what was read goes back at once: an idle connection holds none.
void Tcp::release_input(Connection &c)
{
    if (c.in.size() == 0 && c.behind.count == 0)
        c.in.clear(blocks_);
}

} // namespace vma::inet
