// SPDX-License-Identifier: BSD-2-Clause
// The fuzzer of TCP: its input is a sequence of calls, segments and steps of the clock for one engine with a listener
// and some connections. Built by `make prov/vma/test/inet/fuzz_tcp`, run as `fuzz_tcp -max_total_time=60 FOUND
// prov/vma/test/inet/corpus/tcp`.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "prov/vma/src/inet/tcp/tcp.hpp"

using namespace vma::inet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

constexpr IpAddress kUs = IpAddress::v4(0x0a000001);
constexpr IpAddress kPeer = IpAddress::v4(0x0a000002);
constexpr std::uint16_t kListens = 7;
constexpr std::size_t kPlaces = 4;
constexpr std::uint8_t kHeld = 0x80; // a segment that comes in one batch with those that follow

void promise(bool kept, int line = __builtin_LINE())
{
    if (kept)
        return;
    std::fprintf(stderr, "fuzz_tcp.cpp:%d: a promise is broken\n", line);
    std::abort();
}

class Input
{
public:
    Input(const std::uint8_t *data, std::size_t size) : data_(data), size_(size) {}
    bool empty() const { return size_ == 0; }
    std::uint8_t byte()
    {
        if (size_ == 0)
            return 0;
        --size_;
        return *data_++;
    }
    std::uint8_t peek() const { return *data_; } // not empty
    std::uint16_t word() { return static_cast<std::uint16_t>(byte() | byte() << 8); }

private:
    const std::uint8_t *data_;
    std::size_t size_;
};

TcpLimits limits()
{
    TcpLimits l;
    l.connections = 8;
    l.listeners = 2;
    l.time_waits = 4;
    l.paths = 4;
    l.blocks = 64;
    l.block_shift = 8;
    l.sent = 64;
    l.replies = 4;
    return l;
}

class World
{
public:
    // `device`: computes checksums and cuts segments.
    World(Input &input, bool device) : in_(input), tcp_(limits(), {1, 2}, now_), path_(tcp_.next_hops().use(kPeer))
    {
        tcp_.set_offloads({device, device, device ? kMostSegmented : 0});
        tcp_.next_hops()[path_].ready = true;
        promise(tcp_.listen({kUs, kListens}, 2, settings(), 0, listener_) == 0);
    }

    void step()
    {
        if ((in_.peek() & 7) != 0)
            flush(); // no segment is next
        const std::uint8_t op = in_.byte();
        ConnectionId &id = place_[op >> 3 & (kPlaces - 1)];
        if ((op & (kHeld | 7)) == kHeld) {
            segment(id, op);
            return;
        }
        switch (op & 7) {
        case 0:
            segment(id, op);
            flush();
            break;
        case 1:
            now_ += Nanos{in_.word()} << (op >> 5 << 2); // from nanoseconds to hours
            tcp_.advance(now_);
            break;
        case 2:
            (void)tcp_.send(now_, id, {bytes_, in_.word() % sizeof bytes_});
            break;
        case 3:
            (void)tcp_.receive(now_, id, {room_, in_.word() % sizeof room_}, (op & 0x80) != 0);
            break;
        case 4:
            connect(id);
            break;
        case 5:
            end(id, op >> 5);
            break;
        case 6:
            accept(id);
            break;
        default:
            other(id, op >> 5);
            break;
        }
        output();
        TcpEvent event;
        for (unsigned n = 0; tcp_.next_event(event); ++n)
            promise(n < 100 && event.what != 0);
        promise(tcp_.blocks().available() <= tcp_.blocks().total());
    }

    // Whatever has happened: when all is closed, all is given back.
    void finish()
    {
        flush();
        for (const ConnectionId &id : place_)
            tcp_.abort(now_, id);
        tcp_.unlisten(now_, listener_);
        for (unsigned i = 0; i < 10000 && tcp_.open_connections() != 0; ++i) {
            promise(tcp_.deadline() != kNever); // who is not gone has a reason to wait
            now_ = std::max(now_, tcp_.deadline());
            tcp_.advance(now_);
            output();
        }
        promise(tcp_.open_connections() == 0);
        promise(tcp_.blocks().available() == tcp_.blocks().total());
    }

private:
    TcpSettings settings()
    {
        const std::uint8_t bits = in_.byte();
        TcpSettings s;
        s.sack = (bits & 1) != 0;
        s.timestamps = (bits & 2) != 0;
        s.window_scaling = (bits & 4) != 0;
        s.ecn = (bits & 8) != 0;
        s.nodelay = (bits & 16) != 0;
        s.keepalive = (bits & 32) != 0;
        s.congestion = (bits & 64) != 0 ? CongestionAlgorithm::kReno : CongestionAlgorithm::kCubic;
        s.send_buffer = s.receive_buffer = (bits & 128) != 0 ? 2000 : 100000;
        return s;
    }

    void connect(ConnectionId &id)
    {
        tcp_.close(now_, id);
        const NextHopIndex next_hop = tcp_.next_hops().use(kPeer);
        if (tcp_.connect(now_, {{kUs, static_cast<std::uint16_t>(100 + in_.byte() % 4)}, {kPeer, 9}}, next_hop,
                         settings(), 0, id) != 0)
            tcp_.next_hops().release(next_hop);
    }

    void accept(ConnectionId &id)
    {
        ConnectionId accepted;
        if (!tcp_.accept(listener_, accepted))
            return;
        tcp_.close(now_, id);
        id = accepted;
    }

    void end(ConnectionId id, unsigned how)
    {
        if (how < 3)
            (void)tcp_.shutdown(now_, id);
        else if (how < 6)
            tcp_.close(now_, id);
        else
            tcp_.abort(now_, id);
    }

    void other(ConnectionId id, unsigned what)
    {
        const Connection *const c = tcp_.find(id);
        const Seq quoted = c != nullptr ? c->una + in_.byte() : 0;
        const Flow flow = c != nullptr ? c->flow : Flow{};
        if (what < 2)
            tcp_.too_big(now_, flow, quoted, static_cast<std::uint16_t>(std::max<unsigned>(in_.word(), 552)));
        else if (what < 4)
            tcp_.unreachable(now_, flow, quoted, 111, (what & 1) != 0);
        else
            (void)tcp_.settle(now_, id, settings());
    }

    // Mostly near what the connection expects, or nothing of it is ever reached.
    void segment(ConnectionId id, std::uint8_t op)
    {
        const Connection *const c = tcp_.find(id);
        const std::uint8_t how = in_.byte();
        Segment s;
        s.source_port = c != nullptr ? c->flow.remote.port : static_cast<std::uint16_t>(200 + (how & 7));
        s.target_port = c != nullptr ? c->flow.local.port : kListens;
        s.flags = in_.byte();
        Seq &ahead = ahead_[op >> 3 & (kPlaces - 1)];
        s.seq = (c != nullptr ? c->receive.next + ahead : Seq{5000}) + ((how & 1) != 0 ? in_.word() : 0) -
                ((how & 2) != 0 ? 300 : 0);
        s.ack = (c != nullptr ? c->nxt : Seq{0}) - ((how & 4) != 0 ? in_.byte() : 0) + ((how & 8) != 0 ? 1 : 0);
        s.window = in_.word();
        TcpOptions &o = s.options;
        if ((how & 16) != 0) {
            o.has_timestamps = true;
            o.timestamp = in_.word();
            o.timestamp_echo = c != nullptr ? c->stamp_offset + static_cast<std::uint32_t>(now_ / kMillisecond) : 0;
        }
        if ((s.flags & kSyn) != 0) {
            o.mss = static_cast<std::uint16_t>(in_.byte() << 4);
            o.has_window_scale = (how & 32) != 0;
            o.window_scale = in_.byte() & 15;
            o.sack_permitted = (how & 64) != 0;
        } else if ((how & 128) != 0) {
            const Seq una = c != nullptr ? c->una : 0;
            for (unsigned n = in_.byte() % (kMostSacks - (o.has_timestamps ? 1 : 0)) + 1; o.sacks < n; ++o.sacks) {
                const Seq left = una + in_.word();
                o.sack[o.sacks] = {left, left + in_.byte() * 16};
            }
        }
        const std::size_t len = (op & 0x20) != 0 ? in_.word() % 2000 : 0;
        ahead += static_cast<Seq>(len);
        std::vector<std::uint8_t> &frame = held_.emplace_back(kTcpLongestHeader + len);
        const std::size_t header = write_tcp_header(frame.data(), s);
        Packet packet;
        packet.source = kPeer;
        packet.target = kUs;
        packet.protocol = Protocol::kTcp;
        packet.traffic_class = (op & 0x40) != 0 ? kEcnExperienced : kEcnCapable0;
        packet.info.checksums_good = true;
        packet.payload = {frame.data(), header + len};
        tcp_.gather(now_, packet);
    }

    void flush()
    {
        tcp_.flush(now_);
        held_.clear();
        std::ranges::fill(ahead_, 0);
    }

    void output()
    {
        TcpOut meta;
        unsigned n = 0;
        std::uint8_t frame[8000];
        while (tcp_.output(now_, std::span(frame), meta)) {
            promise(meta.length >= kTcpHeader && meta.length <= sizeof frame);
            promise(meta.segment_size == 0 || (meta.partial_sum && meta.length > kTcpHeader + meta.segment_size &&
                                               meta.length + TcpOut::kMoved <= sizeof frame));
            promise(meta.segment_size != 0 || meta.length <= 1500);
            promise(++n < 10000); // it ends
        }
    }

    Input &in_;
    Nanos now_ = kSecond;
    Tcp tcp_;
    NextHopIndex path_;
    ListenerId listener_;
    ConnectionId place_[kPlaces];
    std::vector<std::vector<std::uint8_t>> held_; // frames of a batch
    Seq ahead_[kPlaces] = {};                     // their bytes of data
    std::uint8_t bytes_[4000] = {};
    std::uint8_t room_[4000];
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    for (const bool device : {false, true}) {
        Input input(data, size);
        World world(input, device);
        while (!input.empty())
            world.step();
        world.finish();
    }
    return 0;
}
