// SPDX-License-Identifier: BSD-2-Clause
// The peer's data: in order to the program, behind a hole into its place, and what that says to the peer:
// acknowledgements soon or delayed (RFC 9293, 3.8.6.3; RFC 5681, 4.2), SACK and D-SACK (RFC 2018, 2883), the window
// (RFC 9293, 3.8.6.2.2).
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
    const Receive &r = c.receive;
    const std::size_t most = std::min<std::size_t>(c.settings.receive_buffer, ByteQueue::most(blocks_));
    const std::size_t held = r.in.size();
    std::size_t room = most > held ? most - held : 0;
    if (blocks_.available() < blocks_.total() / 4) // little is left for all
        room = std::min(room, std::size_t{blocks_.available()} << blocks_.shift() >> 3);
    room = std::min(room, std::size_t{0xffff} << c.agreed.receive_shift);
    const std::uint32_t known = r.advertised - r.next;
    const bool counted =
        !c.agreed.sack && r.behind.count != 0; // the peer counts duplicates, which have the same window: RFC 5681, 2
    if (room <= known || (counted && known >= most / 2))
        return known;
    const std::uint32_t step = std::min<std::uint32_t>(r.peer_segment, static_cast<std::uint32_t>(most / 2));
    return room - known >= step ? static_cast<std::uint32_t>(room) : known;
}

// RFC 3168, 6.1.3.
void Tcp::note_marks(Connection &c, const Segment &segment, std::uint8_t ecn)
{
    if (!c.agreed.ecn)
        return;
    if (segment.has(kCwr))
        c.receive.ece_due = false;
    if (ecn == kEcnExperienced) {
        c.receive.ece_due = true;
        c.receive.quick = std::max<std::uint8_t>(c.receive.quick, 2);
    }
}

// What is longer than a frame, several segments have been put into by a kernel: the next may come alone.
void Tcp::note_size(Connection &c, std::size_t len)
{
    const std::size_t size = std::min<std::size_t>(len, next_hops_.link_mtu());
    c.receive.peer_segment = static_cast<std::uint16_t>(std::max<std::size_t>(c.receive.peer_segment, size));
}

void Tcp::take_data(Connection &c, const Segment &segment, Nanos now, std::uint8_t ecn)
{
    Receive &r = c.receive;
    note_marks(c, segment, ecn);
    if (r.fin_received) // nothing comes behind a FIN: what does is old, or invented
        return;
    Seq seq = segment.seq + (segment.has(kSyn) ? 1 : 0);
    std::span<const std::uint8_t> data = segment.data;
    if (c.orphan && !data.empty() && before(r.next, seq + static_cast<std::uint32_t>(data.size()))) {
        send_reset(c); // nobody will read it: RFC 1122, 4.2.2.13
        end(c);
        return;
    }
    if (before(seq, r.next)) { // its beginning is old
        const std::uint32_t old = std::min<std::uint32_t>(r.next - seq, static_cast<std::uint32_t>(data.size()));
        if (old != 0 && c.agreed.sack) {
            r.dsack_due = true;
            r.dsack = {seq, seq + old};
        }
        seq += old;
        data = data.subspan(old);
    }
    const std::uint32_t window = r.advertised - seq;
    const bool whole = data.size() <= window && distance(seq, r.advertised) >= 0;
    if (!whole)
        data = data.first(distance(seq, r.advertised) > 0 ? window : 0);
    if (segment.has(kFin) && whole && !r.have_fin) {
        r.have_fin = true;
        r.fin_at = seq + static_cast<std::uint32_t>(data.size());
    }
    if (r.have_fin &&
        before(r.fin_at, seq + static_cast<std::uint32_t>(data.size()))) // bytes behind the end are nobody's
        data = data.first(before(seq, r.fin_at) ? r.fin_at - seq : 0);
    const bool in_order = seq == r.next;
    const bool gaps = r.behind.count != 0;
    if (in_order)
        take_in_order(c, data);
    else if (!data.empty() && take_out_of_order(c, seq, data) && !c.agreed.sack && r.duplicates_due != 0xff)
        ++r.duplicates_due; // it counts them (RFC 5681, 4.2), so several that came together are not answered together
    note_size(c, segment.data.size());
    want_ack(c, data.size(), !in_order || gaps || !whole, now);
    if (r.have_fin && r.next == r.fin_at)
        take_fin(c, now);
}

void Tcp::take_in_order(Connection &c, std::span<const std::uint8_t> data)
{
    Receive &r = c.receive;
    if (data.empty())
        return;
    const std::size_t at = r.in.size();
    if (!r.in.write_at(blocks_, at, data.data(), data.size())) {
        ++counters_.no_memory;
        return;
    }
    extend_input(c, data.size());
}

// `len` bytes more are in their place.
void Tcp::extend_input(Connection &c, std::size_t len)
{
    Receive &r = c.receive;
    r.in.extend(len);
    r.duplicates_due = 0;
    r.next += static_cast<std::uint32_t>(len);
    c.bytes_received += len;
    if (r.behind.count != 0)
        join_ranges(c);
    tell(c, kReadable);
}

// What lies at RCV.NXT now was received before.
void Tcp::join_ranges(Connection &c)
{
    Receive &r = c.receive;
    OutOfOrder &o = r.behind;
    for (bool again = true; again;) { // they are in no order
        again = false;
        for (std::uint32_t i = 0; i < o.count;) {
            const SeqRange range = o.range[i];
            if (before(r.next, range.left)) {
                ++i;
                continue;
            }
            if (before(r.next, range.right)) {
                r.in.extend(range.right - r.next);
                c.bytes_received += range.right - r.next;
                r.next = range.right;
                again = true;
            }
            std::copy(&o.range[i + 1], &o.range[o.count], &o.range[i]);
            --o.count;
        }
    }
}

bool Tcp::take_out_of_order(Connection &c, Seq seq, std::span<const std::uint8_t> data)
{
    Receive &r = c.receive;
    OutOfOrder &o = r.behind;
    SeqRange range = {seq, seq + static_cast<std::uint32_t>(data.size())};
    for (std::uint32_t i = 0; i < o.count; ++i) {
        if (at_or_before(o.range[i].left, range.left) && at_or_before(range.right, o.range[i].right)) {
            ++counters_.duplicates;
            r.dsack_due = c.agreed.sack;
            r.dsack = range;
            return true;
        }
    }
    const std::size_t at = r.in.size() + (seq - r.next);
    if (o.count == kMostRanges || blocks_.available() < blocks_.total() / 8 ||
        !r.in.write_at(blocks_, at, data.data(), data.size())) {
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
    ++c.receive.next;
    c.receive.fin_received = true;
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
    c.receive.unacked += static_cast<std::uint32_t>(len);
    const std::uint32_t most = c.settings.quick_ack_most;
    bool due = (c.settings.quick_ack && (most == 0 || len <= most)) || c.receive.unacked >= 2U * c.receive.peer_segment;
    if (c.receive.quick != 0 && len != 0) {
        --c.receive.quick;
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
    if (c.receive.in.size() == 0 && c.receive.behind.count == 0)
        c.receive.in.clear(blocks_);
}

} // namespace vma::inet
