// SPDX-License-Identifier: BSD-2-Clause
// A fuzzer of everything between a frame's bytes and the transports: parse_frame, Reassembler, parse_icmp, UdpTable,
// PathMtus; and of batches: two stacks with a TCP connection get the same frames, one gathers them, and both have to
// say the same. An input is a sequence of frames, each behind 3 bytes: how it comes (below), and its length, little
// endian.
//
// With clang: `make prov/vma/test/inet/fuzz_frame`, then `prov/vma/test/inet/fuzz_frame -max_len=4096 NEW CORPUS`,
// where NEW is an empty folder for what it finds and CORPUS is corpus/frame beside this file. `-merge=1 CORPUS NEW`
// keeps what reaches more code.
#include "prov/vma/test/inet/fuzz_frame.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "prov/vma/src/inet/base/path_mtu.hpp"
#include "prov/vma/src/inet/stack.hpp"
#include "prov/vma/src/inet/udp/table.hpp"
#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace {

using namespace vma::inet;

// Of a frame's first byte.
constexpr std::uint8_t kChecksumsGood = 1; // as if the NIC had verified them, which a fuzzer can't do
constexpr std::uint8_t kMendIcmp = 2;      // write the right checksum, as none is taken from a NIC
constexpr std::uint8_t kEndsBatch = 16;    // after it all that came so far is taken
constexpr std::uint8_t kMendTcp = 32;      // its numbers are relative to what the connection awaits
constexpr std::uint8_t kStep = 0x0c;       // the time before it comes:
constexpr Nanos kSteps[] = {0, kMillisecond, 20 * kSecond, 61 * kSecond};

constexpr std::uint32_t kDatagrams = 3; // that may wait for fragments

FuzzReached reached;

void promise(bool kept)
{
    if (!kept)
        __builtin_trap();
}

// Reads each byte, for AddressSanitizer's eyes.
std::uint32_t touch(Bytes bytes)
{
    promise(bytes.size() <= kMaxIpPayload);
    return sum(bytes.data(), bytes.size());
}

class World
{
public:
    World() : pool_(128, 8), table_({4, 8}, pool_), reassembler_(kDatagrams), next_hops_(8, 1)
    {
        open_socket(IpAddress::v4(0u), 2000);
        UdpOptions options;
        options.receive_errors = true;
        connected_ = open_socket(IpAddress{}, 1000, options);
        promise(table_.connect(connected_, IpAddress::v4(0x0a000001), {IpAddress::v4(0x0a000002), 2000}) == 0);
    }

    // The transport of the frame's packet, 0: there is none.
    Protocol frame(Bytes bytes, std::uint8_t how)
    {
        now_ += kSteps[(how & kStep) >> 2];
        Packet packet;
        FragmentInfo fragment;
        const Parsed parsed = parse_frame(bytes, FrameInfo{(how & kChecksumsGood) != 0, now_}, packet, fragment);
        ++reached.parsed[static_cast<std::size_t>(parsed)];
        if (parsed > Parsed::kFragment)
            return Protocol{};
        const Bytes payload = packet.payload;
        promise(payload.data() >= bytes.data() && payload.data() + payload.size() <= bytes.data() + bytes.size());
        if (parsed == Parsed::kPacket)
            take(packet, how);
        else
            join(packet, fragment, how);
        return packet.protocol;
    }

    void end()
    {
        for (UdpSocketId id; (id = table_.next_event()) != kNoUdpSocket;) {
            while (table_.readable(id))
                promise(table_.receive(id, room_).error != -EAGAIN);
            while (table_.has_errors(id))
                promise(table_.receive_error(id, room_).error == 0);
        }
        promise(pool_.available() == pool_.total());
        reassembler_.expire(now_ + Reassembler::kTimeout6);
        promise(reassembler_.waiting() == 0 && reassembler_.deadline() == kNever);
    }

private:
    UdpSocketId open_socket(const IpAddress &local, std::uint16_t port, const UdpOptions &options = {})
    {
        const UdpSocketId id = table_.open(options);
        promise(table_.bind(id, {local, port}) == 0);
        return id;
    }

    void join(const Packet &packet, const FragmentInfo &fragment, std::uint8_t how)
    {
        Packet whole;
        const Joined joined = reassembler_.join(packet, fragment, now_, whole);
        ++reached.joined[static_cast<std::size_t>(joined)];
        promise(reassembler_.waiting() <= kDatagrams);
        promise((reassembler_.deadline() == kNever) == (reassembler_.waiting() == 0));
        promise(reassembler_.deadline() > now_);
        if (joined == Joined::kWhole)
            take(whole, how);
    }

    void take(Packet packet, std::uint8_t how)
    {
        touch(packet.payload);
        promise(packet.source.is_v4() == packet.target.is_v4());
        promise(!packet.source.is_multicast() && !packet.source.is_any());
        if (packet.protocol == Protocol::kUdp)
            take_udp(packet);
        else if (packet.protocol == Protocol::kIcmp || packet.protocol == Protocol::kIcmp6)
            take_icmp(packet, how);
        else if (packet.protocol == Protocol::kTcp)
            promise(!packet.target.is_multicast());
    }

    void take_udp(const Packet &packet)
    {
        UdpDatagram datagram;
        const UdpParsed parsed = parse_udp(packet, datagram);
        ++reached.udp[static_cast<std::size_t>(parsed)];
        if (parsed == UdpParsed::kDatagram)
            promise(datagram.data.size() + kUdpHeader <= packet.payload.size());
        promise((table_.deliver(packet) == UdpDelivered::kInvalid) == (parsed != UdpParsed::kDatagram));
    }

    void take_icmp(Packet packet, std::uint8_t how)
    {
        const std::size_t length = packet.payload.size();
        const auto mended = std::make_unique<std::uint8_t[]>(length);
        if ((how & kMendIcmp) && length >= 4) {
            memcpy(mended.get(), packet.payload.data(), length);
            store16(&mended[2], 0);
            const std::uint32_t pseudo =
                packet.target.is_v4()
                    ? 0
                    : pseudo_sum(packet.source, packet.target, Protocol::kIcmp6, static_cast<std::uint32_t>(length));
            store16(&mended[2], finish(sum(mended.get(), length, pseudo)));
            packet.payload = {mended.get(), length};
        }
        IcmpError error;
        const IcmpParsed parsed = parse_icmp(packet, error);
        ++reached.icmp[static_cast<std::size_t>(parsed)];
        if (parsed != IcmpParsed::kError)
            return;
        touch(error.quoted);
        promise(error.quoted.size() >= kUdpHeader && error.flow.local.address == packet.target);
        promise((error.error == EMSGSIZE) == (error.mtu != 0));
        if (error.mtu) {
            promise(error.mtu >= (packet.target.is_v4() ? kMinPathMtu4 : kMinPathMtu6));
            next_hops_.lower(error.flow.remote.address, error.mtu, now_);
            promise(next_hops_.get(error.flow.remote.address, 65535, now_) <= error.mtu);
        }
        if (error.protocol == Protocol::kUdp)
            table_.tell_error(error);
    }

    BlockPool pool_;
    UdpTable table_;
    Reassembler reassembler_;
    PathMtus next_hops_;
    UdpSocketId connected_ = kNoUdpSocket;
    Nanos now_ = kSecond;
    std::array<std::uint8_t, 300> buffer_{};
    const std::array<std::span<std::uint8_t>, 1> room_{std::span(buffer_)};
};

using Frame = std::vector<std::uint8_t>;

constexpr Flow kFlow = {{IpAddress::v4(0x0a000001), 1000}, {IpAddress::v4(0x0a000002), 2000}};
constexpr Seq kPeerStart = 5000;

StackOptions small_stack(std::uint32_t gro_streams)
{
    StackOptions options;
    options.secret = {1, 2};
    options.tcp = {.connections = 4,
                   .listeners = 1,
                   .time_waits = 4,
                   .paths = 4,
                   .blocks = 64,
                   .block_shift = 8,
                   .sent = 16,
                   .replies = 256,
                   .gro_streams = gro_streams};
    options.udp = {4, 8};
    options.udp_blocks = 16;
    options.datagrams = 1;
    options.path_mtus = 8;
    return options;
}

// A stack with a connection that is established.
class Side
{
public:
    explicit Side(std::uint32_t gro_streams) : stack_(small_stack(gro_streams), kSecond)
    {
        const NextHopIndex next_hop = stack_.use_next_hop(kSecond, kFlow.remote.address);
        promise(stack_.tcp().connect(kSecond, kFlow, next_hop, {}, 0, id_) == 0);
        stack_.set_next_hop(kSecond, kFlow.remote.address, {}, 0, 1500);
        Frame frame(2000);
        promise(stack_.output(kSecond, frame) != 0);
        Segment segment;
        segment.source_port = kFlow.remote.port;
        segment.target_port = kFlow.local.port;
        segment.flags = kSyn | kAck;
        segment.seq = kPeerStart - 1;
        segment.ack = connection()->nxt;
        segment.window = 1000;
        Packet packet;
        packet.source = kFlow.remote.address;
        packet.target = kFlow.local.address;
        packet.protocol = Protocol::kTcp;
        packet.info.checksums_good = true;
        packet.payload = std::span(frame).first(write_tcp_header(frame.data(), segment));
        stack_.tcp().input(kSecond, packet);
        promise(connection()->state == TcpState::kEstablished);
    }

    Stack &stack() { return stack_; }
    const Connection *connection() { return stack_.tcp().find(id_); }

    // What it sends, of one flow after another, and what the program reads.
    std::vector<Frame> said(Nanos now)
    {
        std::vector<Frame> frames;
        Frame frame(2000);
        stack_.advance(now);
        while (const std::size_t length = stack_.output(now, frame))
            frames.emplace_back(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
        std::ranges::sort(frames);
        std::int64_t n = 0;
        while ((n = stack_.tcp().receive(now, id_, frame)) > 0)
            frames.emplace_back(frame.begin(), frame.begin() + n);
        for (TcpEvent event; stack_.tcp().next_event(event);)
            promise(event.what != 0);
        return frames;
    }

private:
    Stack stack_;
    ConnectionId id_;
};

// The same frames in batches and one by one.
class Batches
{
public:
    void frame(Frame &&bytes, std::uint8_t how)
    {
        if ((how & kStep) != 0)
            flush();
        now_ += kSteps[(how & kStep) >> 2];
        if ((how & kMendTcp) != 0)
            mend(bytes);
        const FrameInfo info{(how & kChecksumsGood) != 0, now_};
        held_.push_back(std::move(bytes));
        merged_.stack().gather(now_, held_.back(), info);
        plain_.stack().input(now_, held_.back(), info);
        if ((how & kEndsBatch) != 0)
            flush();
    }

    void flush()
    {
        merged_.stack().flush(now_);
        held_.clear();
        promise(merged_.said(now_) == plain_.said(now_));
        const TcpCounters &counters = merged_.stack().tcp().counters();
        const std::uint64_t merged = counters.merged - merged_before_;
        const std::uint64_t single = counters.in - in_before_ - merged;
        merged_before_ = counters.merged;
        in_before_ = counters.in;
        reached.gro[0] += single;
        reached.gro[1] += merged;
        reached.gro[2] += merged != 0 && single != 0 ? 1 : 0;
        const Connection *const c = merged_.connection();
        const Connection *const other = plain_.connection();
        promise((c == nullptr) == (other == nullptr));
        promise(c == nullptr || (c->state == other->state && c->receive.next == other->receive.next &&
                                 c->una == other->una && c->segments_received == other->segments_received));
    }

private:
    void mend(Frame &bytes)
    {
        Packet packet;
        FragmentInfo fragment;
        const Connection *const c = plain_.connection(); // which has taken all that came before
        if (c == nullptr || parse_frame(bytes, {true, 0}, packet, fragment) != Parsed::kPacket ||
            packet.protocol != Protocol::kTcp || packet.payload.size() < kTcpHeader)
            return;
        std::uint8_t *const header = &bytes[static_cast<std::size_t>(packet.payload.data() - bytes.data())];
        store32(header + 4, load32(header + 4) + c->receive.next);
        store32(header + 8, load32(header + 8) + c->nxt);
    }

    Nanos now_ = kSecond;
    Side merged_{2};
    Side plain_{0};
    std::vector<Frame> held_; // the batch's frames; what they hold stays where it is when this grows
    std::uint64_t merged_before_ = 0;
    std::uint64_t in_before_ = 0;
};

} // namespace

const FuzzReached &fuzz_reached()
{
    return reached;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    World world;
    std::optional<Batches> batches; // from the first segment on, as two stacks take longer to make than most inputs
    while (size >= 3) {
        const std::uint8_t how = data[0];
        const std::size_t length = std::min<std::size_t>(size - 3, data[1] + 256u * data[2]);
        // Memory of its own, so that AddressSanitizer sees what is read behind a frame's end.
        const auto frame = std::make_unique<std::uint8_t[]>(length);
        memcpy(frame.get(), data + 3, length);
        if (world.frame({frame.get(), length}, how) == Protocol::kTcp && !batches)
            batches.emplace();
        if (batches)
            batches->frame(Frame(frame.get(), frame.get() + length), how);
        data += 3 + length;
        size -= 3 + length;
    }
    if (batches)
        batches->flush();
    world.end();
    return 0;
}
