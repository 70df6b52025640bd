// SPDX-License-Identifier: BSD-2-Clause
// Two engines that are told the same segments, one in batches and the other one by one: nothing that their peers and
// programs get may differ. For tests of generic receive offload.
#pragma once

#include "fabtests/unit.hpp"

#include <algorithm>
#include <deque>
#include <vector>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/test/inet/sim.hpp"

namespace vma::inet::sim {

inline constexpr IpAddress kUs = IpAddress::v4(0x0a000001);
inline constexpr IpAddress kPeer = IpAddress::v4(0x0a000002);
inline constexpr Seq kStart = 0xfffff000; // the peer's first byte: its numbers come round soon
inline constexpr std::size_t kMss = 1448;
inline constexpr std::uint16_t kPort = 7;

inline TcpLimits small_limits(std::uint32_t gro_streams, std::uint32_t blocks = 4096)
{
    TcpLimits l;
    l.connections = l.time_waits = l.paths = 64;
    l.blocks = blocks;
    l.gro_streams = gro_streams;
    return l;
}

// One of the peer's segments, and what IP says of it.
struct Wire {
    Packet packet;
    std::vector<std::uint8_t> bytes;
};

// What an engine does then, as its peers and its program see it; flow by flow, as runs change whose turn comes first.
struct Told {
    std::vector<std::vector<std::uint8_t>> segments;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> events;
    std::vector<std::uint8_t> read;

    bool operator==(const Told &) const = default;
};

class Twins
{
public:
    explicit Twins(std::uint32_t gro_streams = 32, unsigned connections = 1, const TcpSettings &settings = {},
                   std::uint32_t blocks = 4096)
        : tcp_{{small_limits(gro_streams, blocks), {1, 2}, kSecond}, {small_limits(0, blocks), {1, 2}, kSecond}},
          settings_(settings)
    {
        for (Tcp &tcp : tcp_)
            tcp.next_hops()[tcp.next_hops().use(kPeer)].ready = true;
        for (unsigned i = 0; i < connections; ++i)
            open();
    }

    Seq &next(unsigned i = 0) { return next_[i]; } // the peer's next byte
    const Connection &connection(unsigned i = 0) { return *tcp_[0].find(id_[i]); }
    bool is_open(unsigned i) { return tcp_[0].find(id_[i]) != nullptr && connection(i).synchronized(); }
    Tcp &tcp(unsigned which = 0) { return tcp_[which]; }
    ConnectionId id(unsigned i = 0) const { return id_[i]; }
    std::uint64_t merged() { return tcp_[0].counters().merged; }
    void pass(Nanos time) { now_ += time; }

    // A plain segment of connection `i`, which comes next if nothing is changed.
    Segment plain(std::size_t len, unsigned i = 0)
    {
        Segment segment;
        segment.source_port = static_cast<std::uint16_t>(100 + i);
        segment.target_port = kPort;
        segment.flags = kAck;
        segment.seq = next_[i];
        segment.ack = connection(i).nxt;
        segment.window = 0xffff;
        segment.options.has_timestamps = connection(i).agreed.timestamps;
        segment.options.timestamp = 5000;
        segment.options.timestamp_echo = connection(i).stamp_offset + 1000;
        next_[i] += static_cast<Seq>(len);
        return segment;
    }

    // Into the batch.
    Packet &add(const Segment &segment, std::size_t len)
    {
        Wire &wire = batch_.emplace_back();
        std::vector<std::uint8_t> &bytes = wire.bytes;
        bytes.resize(kTcpLongestHeader + len);
        const std::size_t header = write_tcp_header(bytes.data(), segment);
        bytes.resize(header + len);
        const std::span<std::uint8_t> data = std::span(bytes).subspan(header);
        fill(segment.source_port, segment.seq, data);
        seal_segment(bytes.data(), sum(data.data(), len, sum_tcp_header(bytes.data(), header, len, kPeer, kUs)));
        wire.packet.source = kPeer;
        wire.packet.target = kUs;
        wire.packet.protocol = Protocol::kTcp;
        wire.packet.traffic_class = kEcnCapable0;
        wire.packet.payload = bytes;
        return wire.packet;
    }
    Packet &add(std::size_t len, unsigned i = 0) { return add(plain(len, i), len); }

    // Gives the batch to both; what the first one does is what the second does.
    Told give()
    {
        for (const Wire &wire : batch_)
            tcp_[0].gather(now_, wire.packet);
        tcp_[0].flush(now_);
        for (Wire &wire : batch_) {
            tcp_[1].input(now_, wire.packet);
            wire.bytes.assign(wire.bytes.size(), 0xee); // nobody looks there any more
        }
        batch_.clear();
        return compare();
    }

    Told compare()
    {
        Told told = ask(0);
        const Told other = ask(1);
        assert_int_equal(told.segments.size(), other.segments.size());
        assert_true(told == other);
        for (const ConnectionId &id : id_)
            compare(tcp_[0].find(id), tcp_[1].find(id));
        TcpCounters counters[2] = {tcp_[0].counters(), tcp_[1].counters()};
        counters[0].merged = counters[1].merged;
        assert_memory_equal(&counters[0], &counters[1], sizeof counters[0]);
        return told;
    }

private:
    static void compare(const Connection *a, const Connection *b)
    {
        assert_int_equal(a == nullptr, b == nullptr);
        if (a == nullptr)
            return;
        assert_int_equal(static_cast<int>(a->state), static_cast<int>(b->state));
        assert_int_equal(a->receive.next, b->receive.next);
        assert_int_equal(a->una, b->una);
        assert_int_equal(a->window, b->window);
        assert_int_equal(a->window_seq, b->window_seq);
        assert_int_equal(a->window_ack, b->window_ack);
        assert_int_equal(a->receive.stamp_recent, b->receive.stamp_recent);
        assert_int_equal(a->receive.unacked, b->receive.unacked);
        assert_int_equal(a->receive.peer_segment, b->receive.peer_segment);
        assert_int_equal(a->receive.quick, b->receive.quick);
        assert_int_equal(a->receive.ece_due, b->receive.ece_due);
        assert_int_equal(a->receive.behind.count, b->receive.behind.count);
        assert_int_equal(a->bytes_received, b->bytes_received);
        assert_int_equal(a->segments_received, b->segments_received);
        assert_int_equal(a->congestion.window(), b->congestion.window());
    }

    void open()
    {
        const auto i = static_cast<unsigned>(id_.size());
        ConnectionId ids[2];
        for (unsigned which = 0; which < 2; ++which)
            assert_int_equal(tcp_[which].connect(now_, {{kUs, kPort}, {kPeer, static_cast<std::uint16_t>(100 + i)}},
                                                 tcp_[which].next_hops().use(kPeer), settings_, 0, ids[which]),
                             0);
        assert_true(ids[0] == ids[1]);
        id_.push_back(ids[0]);
        next_.push_back(kStart);
        compare();
        Segment syn = plain(0, i);
        syn.flags = kSyn | kAck | (settings_.ecn ? kEce : 0);
        syn.seq = kStart - 1;
        syn.options.mss = 1460;
        syn.options.has_timestamps = settings_.timestamps;
        syn.options.has_window_scale = syn.options.sack_permitted = true;
        syn.options.window_scale = 7;
        add(syn, 0);
        give();
        assert_true(connection(i).state == TcpState::kEstablished);
    }

    Told ask(unsigned which)
    {
        Tcp &tcp = tcp_[which];
        Told told;
        TcpEvent event;
        TcpOut meta;
        std::uint8_t buffer[65536];
        tcp.advance(now_);
        while (tcp.next_event(event))
            told.events.emplace_back(event.connection.index, event.what);
        if (reads_) {
            for (const ConnectionId &id : id_)
                for (std::int64_t n = 0; (n = tcp.receive(now_, id, buffer)) > 0;)
                    told.read.insert(told.read.end(), buffer, buffer + n);
        }
        while (tcp.output(now_, buffer, meta)) {
            told.segments.emplace_back(buffer, buffer + meta.length);
            told.segments.back().push_back(meta.traffic_class);
        }
        std::ranges::stable_sort(told.segments, {}, [](const auto &bytes) { return load16(&bytes[2]); });
        std::ranges::stable_sort(told.events, {}, [](const auto &one) { return one.first; });
        return told;
    }

    Nanos now_ = kSecond;
    Tcp tcp_[2];
    TcpSettings settings_;
    std::vector<ConnectionId> id_;
    std::vector<Seq> next_;
    std::deque<Wire> batch_;

public:
    bool reads_ = true; // the program
};

} // namespace vma::inet::sim
