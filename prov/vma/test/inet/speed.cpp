// SPDX-License-Identifier: BSD-2-Clause
// What a segment costs in the stack alone, without I/O: doc/inet.md has the figures. One engine is measured; its peer
// is a few lines that number acknowledgements and data, with true checksums.
//
//   inet/speed [SEGMENTS [GRO_STREAMS BYTES KIND]]   all cases, or bursts alone, of segments of so many bytes: KIND 0: plain ones,
//                                                    1: PSH on each, 2: of alternating classes, so that none is merged, 3: with sums that the NIC has verified
//
//   inet/speed SEGMENTS out BYTES LIMIT              segments out alone: LIMIT 0: all by the stack, 1: checksums left to a device,
//                                                    more: it also cuts segments of so many bytes; 20 sends of BYTES at a time
//
//   inet/speed DATAGRAMS udp BYTES LIMIT             datagrams of one frame out: LIMIT 0: with their checksums, 1: without
//
// `valgrind --tool=callgrind --toggle-collect='*::send_batch*'` (of datagrams '*send_datagrams*') counts the
// instructions of those, as for bursts `valgrind --tool=callgrind --toggle-collect='*::take_burst*'` counts the
// instructions of what is measured.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "prov/vma/src/inet/stack.hpp"
#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace {

using namespace vma::inet;

constexpr IpAddress kUs = IpAddress::v4(0x0a000001);
constexpr IpAddress kPeer = IpAddress::v4(0x0a000002);
constexpr Seq kPeerStart = 1000;
constexpr unsigned kBatch = 10; // the initial window
constexpr unsigned kSends = 20;
constexpr unsigned kBurst = 32; // what the driver takes at a time
std::uint32_t segments = 3000000;

[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr, "inet_speed: %s\n", what);
    std::exit(1);
}

// An engine with one established connection to a peer that exists only as the segments which are made here.
class Bench
{
public:
    explicit Bench(std::uint32_t gro_streams = 0)
        : tcp_(limits(gro_streams), {1, 2}, now_), path_(tcp_.next_hops().use(kPeer))
    {
        tcp_.next_hops()[path_].ready = true;
        TcpSettings settings;
        settings.nodelay = true;
        if (tcp_.connect(now_, {{kUs, 1}, {kPeer, 2}}, path_, settings, 0, id_) != 0 || !take())
            die("no SYN");
        Segment syn;
        syn.flags = kSyn | kAck;
        syn.seq = kPeerStart - 1;
        syn.options.mss = 1460;
        syn.options.has_timestamps = syn.options.has_window_scale = syn.options.sack_permitted = true;
        syn.options.window_scale = 10;
        syn.ack = tcp_.find(id_)->nxt;
        fill(syn, {}, made_[0], lengths_[0]);
        give(0);
        while (take()) {
        }
    }

    // A segment of the peer's, `n`-th of those that are made before the clock runs.
    void make(unsigned n, Seq seq, Seq ack, std::uint8_t flags, std::span<const std::uint8_t> data)
    {
        Segment segment;
        segment.flags = flags;
        segment.seq = seq;
        segment.ack = ack;
        fill(segment, data, made_[n], lengths_[n]);
    }

    void fill(Segment &segment, std::span<const std::uint8_t> data, std::uint8_t *bytes, std::size_t &length)
    {
        segment.source_port = 2;
        segment.target_port = 1;
        segment.flags |= kAck;
        segment.window = 0xffff;
        segment.options.has_timestamps = true;
        segment.options.timestamp = static_cast<std::uint32_t>(now_ / kMillisecond);
        segment.options.timestamp_echo = static_cast<std::uint32_t>(now_ / kMillisecond) + tcp_.find(id_)->stamp_offset;
        const std::size_t header = write_tcp_header(bytes, segment);
        const std::uint32_t partial = sum_tcp_header(bytes, header, data.size(), kPeer, kUs);
        seal_segment(bytes, copy_and_sum(bytes + header, data.data(), data.size(), partial));
        length = header + data.size();
    }

    Packet packet(unsigned n) const
    {
        Packet packet;
        packet.source = kPeer;
        packet.target = kUs;
        packet.protocol = Protocol::kTcp;
        packet.traffic_class = kind_ == kApart && n % 2 != 0 ? 4 : 0;
        packet.info.checksums_good = kind_ == kVerified;
        packet.payload = {made_[n], lengths_[n]};
        return packet;
    }

    void give(unsigned n) { tcp_.input(now_, packet(n)); }

    bool take()
    {
        TcpOut meta;
        return tcp_.output(now_, frame_, meta);
    }

    // Millions of segments a second out, with an acknowledgement for every second one.
    double out(std::size_t size)
    {
        const std::vector<std::uint8_t> data(size, 'x');
        return run(
            kBatch,
            [&] {
                const Connection &c = *tcp_.find(id_);
                for (unsigned i = 0; i < kBatch; i += 2)
                    make(i, c.receive.next, c.nxt + static_cast<Seq>((i + 2) * size), 0, {});
            },
            [&] {
                for (unsigned i = 0; i < kBatch; ++i)
                    if (tcp_.send(now_, id_, data) != static_cast<std::int64_t>(size) || !take())
                        die("a segment did not leave");
                for (unsigned i = 0; i < kBatch; i += 2)
                    give(i);
            });
    }

    // The same in batches, whose acknowledgements come at its end, with what a device does left to it.
    double out_in_batches(std::size_t size, std::uint32_t limit)
    {
        tcp_.set_offloads({limit != 0, limit != 0, limit > 1 ? limit : 0});
        const std::vector<std::uint8_t> data(size * kSends, 'x');
        return run(
            kSends,
            [&] {
                const Connection &c = *tcp_.find(id_);
                for (unsigned i = 0; i < kSends; i += 2)
                    make(i, c.receive.next, c.nxt + static_cast<Seq>((i + 2) * size), 0, {});
            },
            [&] { send_batch(data); });
    }

    // The same in, each read by the program, with our acknowledgements taken.
    double in(std::size_t size)
    {
        const std::vector<std::uint8_t> data(size, 'x');
        std::vector<std::uint8_t> buffer(size);
        return run(
            kBatch,
            [&] {
                const Connection &c = *tcp_.find(id_);
                for (unsigned i = 0; i < kBatch; ++i)
                    make(i, c.receive.next + static_cast<Seq>(i * size), c.nxt, kPsh, data);
            },
            [&] {
                for (unsigned i = 0; i < kBatch; ++i) {
                    give(i);
                    if (tcp_.receive(now_, id_, buffer) != static_cast<std::int64_t>(size))
                        die("a segment did not arrive");
                    while (take()) {
                    }
                }
            });
    }

    // Bursts in, as the driver gives them; then the program reads all that is there.
    double in_bursts(std::size_t size, int kind)
    {
        kind_ = kind;
        const std::vector<std::uint8_t> data(size, 'x');
        return run(
            kBurst,
            [&] {
                const Connection &c = *tcp_.find(id_);
                for (unsigned i = 0; i < kBurst; ++i)
                    make(i, c.receive.next + static_cast<Seq>(i * size), c.nxt,
                         kind == kPushed || i + 1 == kBurst ? kPsh : 0, data);
            },
            [&] { take_burst(); });
    }

private:
    static TcpLimits limits(std::uint32_t gro_streams)
    {
        TcpLimits l;
        l.gro_streams = gro_streams;
        return l;
    }
    [[gnu::noinline]] void send_batch(const std::vector<std::uint8_t> &data)
    {
        if (tcp_.send(now_, id_, data) != static_cast<std::int64_t>(data.size()))
            die("the program's bytes are not taken");
        TcpOut meta;
        while (tcp_.output(now_, buffer_, meta)) {
        }
        for (unsigned i = 0; i < kSends; i += 2)
            give(i);
    }
    [[gnu::noinline]] void take_burst()
    {
        for (unsigned i = 0; i < kBurst; ++i)
            tcp_.gather(now_, packet(i));
        tcp_.flush(now_);
        if (tcp_.receive(now_, id_, buffer_) <= 0)
            die("a burst did not arrive");
        while (take()) {
        }
    }
    void drop_events()
    {
        TcpEvent event;
        while (tcp_.next_event(event)) {
        }
        tcp_.advance(now_);
    }
    template <typename Prepare, typename Act> double run(unsigned batch, Prepare prepare, Act act)
    {
        using Clock = std::chrono::steady_clock;
        Clock::duration spent{};
        for (std::uint32_t i = 0; i < segments; i += batch) {
            now_ += 1000;
            prepare();
            const Clock::time_point from = Clock::now();
            act();
            drop_events();
            spent += Clock::now() - from;
        }
        return segments / std::chrono::duration<double, std::micro>(spent).count();
    }

    static constexpr int kPushed = 1;
    static constexpr int kApart = 2;
    static constexpr int kVerified = 3;

    Nanos now_ = kSecond;
    int kind_ = 0;
    Tcp tcp_;
    NextHopIndex path_;
    ConnectionId id_;
    std::uint8_t frame_[2048];
    std::uint8_t made_[kBurst][2048];
    std::size_t lengths_[kBurst];
    std::uint8_t buffer_[65536];
};

// Frames of one datagram after the other, from the program's bytes.
[[gnu::noinline]] void send_datagrams(Stack &stack, NextHopIndex next_hop, std::span<const std::uint8_t> data)
{
    IpOut ip;
    ip.source = kUs;
    ip.target = kPeer;
    ip.protocol = Protocol::kUdp;
    for (std::uint32_t i = 0; i < segments; ++i) {
        std::array<std::uint8_t, kUdpHeader> header{};
        const Bytes parts[] = {header, data};
        Fragmenter frames = stack.datagram(kSecond, next_hop, ip, parts);
        FrameWork work;
        header = stack.datagram_header(frames, ip, {1, 2}, std::span(parts).subspan(1), work);
        std::uint8_t frame[2048];
        if (frames.next(frame) == 0)
            die("a datagram did not leave");
    }
}

void time_datagrams(std::size_t size, bool left)
{
    StackOptions options;
    options.tcp.connections = 1;
    Stack stack(options, kSecond);
    stack.set_offloads({left, left, 0});
    const NextHopIndex next_hop = stack.use_next_hop(kSecond, kPeer);
    stack.set_next_hop(kSecond, kPeer, {}, 0, 1500);
    const std::vector<std::uint8_t> data(size, 'x');
    const auto from = std::chrono::steady_clock::now();
    send_datagrams(stack, next_hop, data);
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - from;
    std::printf("%.2f million datagrams/s\n", segments / spent.count());
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1)
        segments = static_cast<std::uint32_t>(std::atoi(argv[1]));
    if (argc > 4 && std::string_view(argv[2]) == "udp") {
        time_datagrams(static_cast<std::size_t>(std::atoi(argv[3])), std::atoi(argv[4]) != 0);
        return 0;
    }
    if (argc > 4 && std::string_view(argv[2]) == "out") {
        const double out = Bench().out_in_batches(static_cast<std::size_t>(std::atoi(argv[3])),
                                                  static_cast<std::uint32_t>(std::atoi(argv[4])));
        std::printf("%.2f million segments/s\n", out);
        return 0;
    }
    if (argc > 4) {
        const double in = Bench(static_cast<std::uint32_t>(std::atoi(argv[2])))
                              .in_bursts(static_cast<std::size_t>(std::atoi(argv[3])), std::atoi(argv[4]));
        std::printf("%.2f million segments/s\n", in);
        return 0;
    }
    for (const std::size_t size : {std::size_t{64}, std::size_t{1448}}) {
        const double out = Bench().out(size);
        const double in = Bench().in(size);
        std::printf("%4zu bytes: %.2f million segments/s out, %.2f in; in bursts of %u", size, out, in, kBurst);
        for (const std::uint32_t streams : {0U, 32U})
            std::printf(", GRO %s: %.2f", streams != 0 ? "on" : "off", Bench(streams).in_bursts(size, 0));
        std::printf("\n");
    }
    return 0;
}
