// SPDX-License-Identifier: BSD-2-Clause
// How fragments are joined: each is copied to its place in the datagram's buffer, and a sorted list of the pieces that
// are there says what overlaps, what touches, and when nothing is missing.
#include "prov/vma/src/inet/wire/reassembly.hpp"

#include <algorithm>

#include "prov/vma/src/inet/wire/ip_header.hpp"

namespace vma::inet {
namespace {

constexpr unsigned kBufferShift = 16;

// RFC 791, 2.3: protocol and VLAN tell IPv4 datagrams of one id apart; IPv6 has the id alone (RFC 8200, 4.5).
bool same_datagram(const Packet &a, const Packet &b)
{
    return a.vlan == b.vlan && a.source == b.source && a.target == b.target &&
           (a.protocol == b.protocol || !a.target.is_v4());
}

std::size_t longest(const Packet &packet)
{
    return packet.target.is_v4() ? kMaxIpPayload - kIpv4Header : kMaxIpPayload;
}

} // namespace

Reassembler::Reassembler(std::uint32_t datagrams)
    : slots_(datagrams), datagrams_(std::make_unique<Datagram[]>(slots_)),
      arena_(std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{slots_} << kBufferShift))
{
}

Joined Reassembler::join(const Packet &packet, const FragmentInfo &fragment, Nanos now, Packet &out)
{
    expire(now);
    const std::size_t length = packet.payload.size();
    if (length == 0 || (fragment.more && length % 8 != 0))
        return count(Joined::kBadLength);
    if (fragment.offset + length > longest(packet))
        return count(Joined::kTooLong);
    Datagram *found = find(packet, fragment.id);
    if (found && found->state == Datagram::State::kAbandoned)
        return count(Joined::kAbandoned);
    Datagram &datagram = found ? *found : start(packet, fragment.id, now);
    Joined joined = add(datagram, packet, fragment);
    if (joined == Joined::kWhole)
        joined = finish_datagram(datagram, packet, out);
    // RFC 5722, 4: the fragments that are still to come are dropped as well, so it stays on the list.
    if (joined > Joined::kDuplicate)
        datagram.state = Datagram::State::kAbandoned;
    return count(joined);
}

Joined Reassembler::add(Datagram &datagram, const Packet &packet, const FragmentInfo &fragment)
{
    const std::uint16_t end = static_cast<std::uint16_t>(fragment.offset + packet.payload.size());
    const std::uint16_t known = datagram.pieces ? datagram.piece[datagram.pieces - 1].end : std::uint16_t{0};
    const bool contradicts = fragment.more ? datagram.total && end >= datagram.total
                                           : end < known || (datagram.total && end != datagram.total);
    if (contradicts)
        return Joined::kContradiction;
    const Joined placed = place(datagram, packet.payload, fragment.offset);
    if (placed != Joined::kWaiting)
        return placed;
    if (!fragment.more)
        datagram.total = end;
    datagram.ecn = static_cast<std::uint8_t>(datagram.ecn | 1 << (packet.traffic_class & kEcnMask));
    if (fragment.offset == 0)
        datagram.head = packet;
    if ((datagram.ecn & 1 << kEcnNotCapable) && datagram.ecn != 1 << kEcnNotCapable)
        return Joined::kBadEcn;
    const bool whole = datagram.pieces == 1 && datagram.piece[0].start == 0 && datagram.piece[0].end == datagram.total;
    return whole ? Joined::kWhole : Joined::kWaiting;
}

// A repeated fragment says nothing new (RFC 8200, 4.5 lets it be ignored), one with other bytes is an attack.
Joined Reassembler::place(Datagram &datagram, std::span<const std::uint8_t> data, std::uint16_t at)
{
    const std::uint16_t end = static_cast<std::uint16_t>(at + data.size());
    const auto first = datagram.piece.begin();
    const auto last = first + datagram.pieces;
    const auto next = std::find_if(first, last, [at](const Piece &piece) { return piece.end > at; });
    if (next != last && next->start < end) {
        const bool same =
            next->start <= at && end <= next->end && memcmp(buffer(datagram) + at, data.data(), data.size()) == 0;
        return same ? Joined::kDuplicate : Joined::kOverlap;
    }
    const bool touches_next = next != last && next->start == end;
    const bool touches_previous = next != first && (next - 1)->end == at;
    if (touches_previous && touches_next) {
        (next - 1)->end = next->end;
        std::copy(next + 1, last, next);
        --datagram.pieces;
    } else if (touches_previous) {
        (next - 1)->end = end;
    } else if (touches_next) {
        next->start = at;
    } else {
        if (datagram.pieces == kMaxPieces)
            return Joined::kTooManyPieces;
        std::copy_backward(next, last, last + 1);
        *next = {at, end};
        ++datagram.pieces;
    }
    memcpy(buffer(datagram) + at, data.data(), data.size());
    return Joined::kWaiting;
}

Joined Reassembler::finish_datagram(Datagram &datagram, const Packet &last, Packet &out)
{
    out = datagram.head;
    out.payload = {buffer(datagram), datagram.total};
    out.info = {false, last.info.arrived};
    if (datagram.ecn & 1 << kEcnExperienced)
        out.traffic_class |= kEcnExperienced;
    if (!out.target.is_v4()) {
        const bool good = walk_extensions(out, nullptr) == Parsed::kPacket;
        if (!good || (out.protocol == Protocol::kTcp && out.target.is_multicast()))
            return Joined::kBadHeaders;
    }
    release(datagram); // its buffer stays as it is until another datagram is started
    set_deadline();
    return Joined::kWhole;
}

void Reassembler::expire(Nanos now)
{
    if (now < deadline_)
        return;
    for (std::uint32_t i = 0; i < slots_; ++i) {
        Datagram &datagram = datagrams_[i];
        if (datagram.state == Datagram::State::kFree || datagram.expires > now)
            continue;
        counters_.timed_out += datagram.state == Datagram::State::kWaiting;
        release(datagram);
    }
    set_deadline();
}

Reassembler::Datagram *Reassembler::find(const Packet &packet, std::uint32_t id)
{
    for (std::uint32_t i = 0, seen = 0; seen < waiting_; ++i) {
        Datagram &datagram = datagrams_[i];
        if (datagram.state == Datagram::State::kFree)
            continue;
        ++seen;
        if (datagram.id == id && same_datagram(datagram.head, packet))
            return &datagram;
    }
    return nullptr;
}

Reassembler::Datagram &Reassembler::start(const Packet &packet, std::uint32_t id, Nanos now)
{
    Datagram &datagram = take_free();
    datagram.state = Datagram::State::kWaiting;
    datagram.ecn = 0;
    datagram.total = 0;
    datagram.id = id;
    datagram.pieces = 0;
    datagram.expires = now + (packet.target.is_v4() ? kTimeout4 : kTimeout6);
    datagram.order = order_++;
    datagram.head = packet;
    ++waiting_;
    deadline_ = std::min(deadline_, datagram.expires);
    return datagram;
}

Reassembler::Datagram &Reassembler::take_free()
{
    Datagram *oldest = &datagrams_[0];
    for (std::uint32_t i = 0; i < slots_; ++i) {
        Datagram &datagram = datagrams_[i];
        if (datagram.state == Datagram::State::kFree)
            return datagram;
        if (datagram.order < oldest->order)
            oldest = &datagram;
    }
    counters_.evicted += oldest->state == Datagram::State::kWaiting;
    release(*oldest);
    set_deadline();
    return *oldest;
}

std::uint8_t *Reassembler::buffer(const Datagram &datagram)
{
    return arena_.get() + (static_cast<std::size_t>(&datagram - datagrams_.get()) << kBufferShift);
}

Joined Reassembler::count(Joined joined)
{
    ++counters_.joined[static_cast<std::size_t>(joined)];
    return joined;
}

void Reassembler::release(Datagram &datagram)
{
    datagram.state = Datagram::State::kFree;
    --waiting_;
}

void Reassembler::set_deadline()
{
    deadline_ = kNever;
    for (std::uint32_t i = 0; i < slots_; ++i)
        if (datagrams_[i].state != Datagram::State::kFree)
            deadline_ = std::min(deadline_, datagrams_[i].expires);
}

} // namespace vma::inet
