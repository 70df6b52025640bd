// SPDX-License-Identifier: BSD-2-Clause
// The link's clock and mischief.
#include "prov/vma/test/inet/sim.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace vma::inet::sim {

namespace {

constexpr std::size_t kIpHeader = 20;

std::uint64_t word(std::uint64_t seed, std::uint64_t index)
{
    return Random(seed * 0x9e3779b97f4a7c15 + index).next();
}

// What a device makes of a segment that it gets without its checksum. `size`: bytes of data of each piece, 0: it stays
// whole.
std::vector<Datagram> cut(const Datagram &whole, std::size_t size)
{
    const std::size_t header = std::size_t{whole.bytes[kTcpOffsetAt]} >> 4 << 2;
    const std::size_t data = whole.bytes.size() - header;
    std::vector<Datagram> pieces;
    for (std::size_t at = 0; at == 0 || at < data; at += size == 0 ? data : size) {
        Datagram &piece = pieces.emplace_back(whole);
        const std::size_t length = size == 0 ? data : std::min(size, data - at);
        const bool last = at + length == data;
        piece.bytes.assign(whole.bytes.begin(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(header));
        const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(header + at);
        piece.bytes.insert(piece.bytes.end(), from, from + static_cast<std::ptrdiff_t>(length));
        store32(&piece.bytes[4], load32(&whole.bytes[4]) + static_cast<std::uint32_t>(at));
        if (!last)
            piece.bytes[13] &= static_cast<std::uint8_t>(~(kPsh | kFin));
        if (at != 0)
            piece.bytes[13] &= static_cast<std::uint8_t>(~kCwr);
        store16(&piece.bytes[kTcpChecksumAt], 0);
        seal_segment(piece.bytes.data(),
                     sum_tcp_header(piece.bytes.data(), piece.bytes.size(), 0, piece.source, piece.target));
    }
    return pieces;
}

} // namespace

void fill(std::uint64_t seed, std::uint64_t position, std::span<std::uint8_t> out)
{
    for (std::size_t i = 0; i < out.size();) {
        const std::uint64_t w = word(seed, (position + i) / 8);
        const std::size_t from = (position + i) % 8;
        const std::size_t n = std::min(out.size() - i, 8 - from);
        memcpy(&out[i], reinterpret_cast<const std::uint8_t *>(&w) + from, n);
        i += n;
    }
}

bool check(std::uint64_t seed, std::uint64_t position, std::span<const std::uint8_t> data)
{
    for (std::size_t i = 0; i < data.size();) {
        const std::uint64_t w = word(seed, (position + i) / 8);
        const std::size_t from = (position + i) % 8;
        const std::size_t n = std::min(data.size() - i, 8 - from);
        if (memcmp(&data[i], reinterpret_cast<const std::uint8_t *>(&w) + from, n) != 0)
            return false;
        i += n;
    }
    return true;
}

Network::Network(std::uint64_t seed, const LinkSettings &link, const TcpLimits &limits, std::uint16_t mtu)
    : random_(seed), link_{link, link}
{
    for (unsigned side = 0; side < 2; ++side) {
        secret_[side] = {random_.next(), random_.next()};
        tcp_[side] = std::make_unique<Tcp>(limits, secret_[side], now_);
        transitions_.watch(*tcp_[side]);
        NextHops &paths = tcp_[side]->next_hops();
        const NextHopIndex next_hop = paths.use(kAddress[1 - side]); // it stays whatever the connections do
        paths[next_hop].mtu = mtu;
        paths[next_hop].ready = true;
        tcp_[side]->set_offloads({usual_segment_limit != 0, usual_segment_limit != 0, usual_segment_limit});
    }
}

// No run may have left the states' order.
Network::~Network()
{
    if (transitions_.wrong().empty())
        return;
    static_cast<void>(std::fprintf(stderr, "%s\n", transitions_.wrong().c_str()));
    std::abort();
}

ConnectionId Network::connect(unsigned side, std::uint16_t port, std::uint16_t to, const TcpSettings &settings,
                              std::uint64_t user)
{
    Tcp &tcp = *tcp_[side];
    ConnectionId id;
    const NextHopIndex next_hop = tcp.next_hops().use(kAddress[1 - side]);
    if (tcp.connect(now_, {{kAddress[side], port}, {kAddress[1 - side], to}}, next_hop, settings, user, id) != 0)
        tcp.next_hops().release(next_hop);
    return id;
}

ListenerId Network::listen(unsigned side, std::uint16_t port, const TcpSettings &settings, std::uint32_t backlog)
{
    ListenerId id;
    (void)tcp_[side]->listen({kAddress[side], port}, backlog, settings, port, id);
    return id;
}

void Network::inject(unsigned to, const Segment &segment, std::span<const std::uint8_t> data, Nanos after)
{
    Datagram d;
    d.at = now_ + after;
    d.order = order_++;
    d.to = to;
    d.source = kAddress[1 - to];
    d.target = kAddress[to];
    d.bytes.resize(kTcpLongestHeader + data.size());
    const std::size_t header = write_tcp_header(d.bytes.data(), segment);
    d.bytes.resize(header + data.size());
    std::copy(data.begin(), data.end(), d.bytes.begin() + static_cast<std::ptrdiff_t>(header));
    seal_segment(d.bytes.data(), sum(data.data(), data.size(),
                                     sum_tcp_header(d.bytes.data(), header, data.size(), d.source, d.target)));
    under_way_.push(std::move(d));
}

Nanos Network::arrival(unsigned from, Nanos at) const
{
    const Nanos step = link_[from].coalesce;
    return step == 0 ? at : (at + step - 1) / step * step;
}

void Network::carry(unsigned side, Datagram &&d)
{
    LinkSettings &link = link_[side];
    LinkCounts &counts = counts_[side];
    ++counts.sent;
    if (random_.chance(link.loss)) {
        ++counts.lost;
        return;
    }
    if ((d.traffic_class & kEcnMask) != 0 && random_.chance(link.mark)) {
        ++counts.marked;
        d.traffic_class |= kEcnExperienced;
    }
    if (random_.chance(link.corrupt)) {
        ++counts.corrupted;
        d.bytes[random_.below(d.bytes.size())] ^= static_cast<std::uint8_t>(1U << random_.below(8));
    }
    d.at = busy_until_[side] + link.delay;
    if (random_.chance(link.reorder)) {
        ++counts.reordered;
        d.at += random_.below(link.reorder_by);
    }
    if (random_.chance(link.duplicate)) {
        ++counts.duplicated;
        Datagram twin = d;
        twin.at = arrival(side, twin.at + random_.below(link.reorder_by));
        twin.order = order_++;
        under_way_.push(std::move(twin));
    }
    d.at = arrival(side, d.at);
    under_way_.push(std::move(d));
}

Nanos Network::queue_time(unsigned side) const
{
    return static_cast<Nanos>(static_cast<double>(link_[side].queue) * 8e9 / link_[side].rate);
}

// Everything that the side has to say now goes into the link's queue, as a program's sending goes into a driver's.
void Network::pull(unsigned side)
{
    std::uint8_t buffer[65536];
    TcpOut meta; // of length 0 when there is nothing
    const LinkSettings &link = link_[side];
    while (link.drop_tail || busy_until_[side] <= now_ + queue_time(side)) {
        const bool any = tcp_[side]->output(now_, buffer, meta);
        if (side == 0 && trace_ != nullptr) // that there was nothing belongs to the trace: it was asked, and has looked
            trace_->push_back({Step::kOutput, now_, {buffer, buffer + meta.length}, meta.traffic_class, {}, any});
        if (!any)
            return;
        Datagram d;
        d.order = order_++;
        d.to = 1 - side;
        d.source = meta.source;
        d.target = meta.target;
        d.traffic_class = meta.traffic_class;
        d.bytes.assign(buffer, buffer + meta.length);
        if (!meta.partial_sum) {
            send(side, std::move(d));
            continue;
        }
        for (Datagram &piece : cut(d, meta.segment_size)) {
            piece.order = order_++;
            send(side, std::move(piece));
        }
    }
}

// One packet to the link.
void Network::send(unsigned side, Datagram &&d)
{
    const LinkSettings &link = link_[side];
    if (filter_ != nullptr && !filter_(context_, side, d.bytes, d.traffic_class)) {
        ++counts_[side].lost;
        return;
    }
    if (link.drop_tail && // others have some of the queue
        busy_until_[side] > now_ + queue_time(side) * (90 + random_.below(11)) / 100) {
        ++counts_[side].overflowed;
        return;
    }
    const std::size_t size = d.bytes.size() + kIpHeader;
    sent_bytes_[side] += size;
    busy_until_[side] =
        std::max(busy_until_[side], now_) + static_cast<Nanos>(static_cast<double>(size) * 8e9 / link.rate);
    carry(side, std::move(d));
}

bool Network::step()
{
    pull(0);
    pull(1);
    Nanos next = under_way_.empty() ? kNever : under_way_.top().at;
    for (unsigned side = 0; side < 2; ++side) {
        next = std::min(next, tcp_[side]->deadline());
        if (tcp_[side]->wants_output()) // the queue was full
            next = std::min(next, busy_until_[side] - queue_time(side));
    }
    if (next == kNever)
        return false;
    now_ = std::max(now_, next);
    for (auto &tcp : tcp_)
        tcp->advance(now_);
    if (trace_ != nullptr)
        trace_->push_back({Step::kAdvance, now_, {}, 0, {}, 0});
    deliver();
    return true;
}

// All that is there by now, as a driver hands it over: a batch a side.
void Network::deliver()
{
    std::vector<Datagram> batch;
    while (!under_way_.empty() && under_way_.top().at <= now_) {
        batch.push_back(std::move(const_cast<Datagram &>(under_way_.top())));
        under_way_.pop();
    }
    for (const Datagram &d : batch) {
        Packet packet;
        packet.source = d.source;
        packet.target = d.target;
        packet.protocol = Protocol::kTcp;
        packet.traffic_class = d.traffic_class;
        packet.payload = d.bytes;
        if (d.to == 0 && trace_ != nullptr)
            trace_->push_back({Step::kInput, now_, d.bytes, d.traffic_class, {}, 0});
        tcp_[d.to]->gather(now_, packet);
    }
    for (auto &tcp : tcp_)
        tcp->flush(now_);
    if (!batch.empty() && trace_ != nullptr)
        trace_->push_back({Step::kFlush, now_, {}, 0, {}, 0});
}

} // namespace vma::inet::sim
