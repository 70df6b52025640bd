// SPDX-License-Identifier: BSD-2-Clause
// What the stack leaves to a device that can do it: checksums of TCP and UDP, segmentation. What such a device makes of
// it must be what the stack without one sends.
#include "prov/vma/test/inet/device.hpp"

#include <algorithm>

#include "prov/vma/src/inet/stack.hpp"

namespace {

using namespace frames;

constexpr std::uint16_t kPort = 7;
constexpr SendOffloads kSums = {true, true, 0};

struct Sent {
    Frame frame;
    FrameWork work;
};

StackOptions options(const Mac &mac, std::uint64_t secret)
{
    StackOptions o;
    o.mac = mac;
    o.secret = {secret, secret + 1};
    o.tcp.connections = 4;
    o.tcp.blocks = 2048;
    o.udp_blocks = 64;
    return o;
}

// A connection of two stacks, of which ours has a device.
struct Pair {
    Pair(bool ipv6, std::uint16_t vlan, const SendOffloads &offloads)
        : ours(options(kOurMac, 1), now), peer(options(kPeerMac, 3), now), our_address(ipv6 ? kOurs6 : kOurs4),
          peer_address(ipv6 ? kPeer6 : kPeer4), next_hop(ours.use_next_hop(now, peer_address))
    {
        ours.set_offloads(offloads);
        ours.set_next_hop(now, peer_address, kPeerMac, vlan, 1500);
        back = peer.use_next_hop(now, our_address);
        peer.set_next_hop(now, our_address, kOurMac, vlan, 1500);
    }

    void connect(const TcpSettings &settings = {})
    {
        ListenerId listener;
        assert_int_equal(peer.tcp().listen({peer_address, kPort}, 4, settings, 0, listener), 0);
        const NextHopIndex way = ours.use_next_hop(now, peer_address);
        assert_int_equal(ours.tcp().connect(now, {{our_address, 1000}, {peer_address, kPort}}, way, settings, 0, id),
                         0);
        while (!exchange().empty())
            ;
        assert_true(peer.tcp().accept(listener, accepted));
    }

    // What we have to send now, as it leaves the stack.
    std::vector<Sent> output()
    {
        std::vector<Sent> sent;
        Frame room(kMaxEthernetHeader + 65535);
        FrameWork work;
        while (const std::size_t length = ours.output(now, room, work))
            sent.push_back({Frame(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length)), work});
        return sent;
    }

    // What leaves our device, taken by the peer; then its answers, taken by us.
    std::vector<Frame> exchange()
    {
        std::vector<Frame> wire;
        for (Sent &sent : output()) {
            if (sent.work.transport != 0 && sent.work.segment == 0)
                complete(sent.frame, sent.work);
            std::ranges::move(cut(sent.frame, sent.work), std::back_inserter(wire));
        }
        for (const Frame &frame : wire) {
            assert_true(Layout(frame).sums_are_right(frame));
            peer.input(now, frame);
        }
        Frame room(kMaxEthernetHeader + 1500);
        while (const std::size_t length = peer.output(now, room))
            ours.input(now, std::span(room).first(length));
        now += kMillisecond;
        ours.advance(now);
        peer.advance(now);
        return wire;
    }

    Nanos now = kSecond;
    Stack ours;
    Stack peer;
    IpAddress our_address;
    IpAddress peer_address;
    NextHopIndex next_hop;
    NextHopIndex back = kNoNextHop;
    ConnectionId id;
    ConnectionId accepted;
};

template <typename Act> void for_each_kind(Act act)
{
    for (const bool ipv6 : {false, true}) {
        for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{42}})
            act(ipv6, vlan);
    }
}

void segments_without_sums(void **)
{
    for_each_kind([](bool ipv6, std::uint16_t vlan) {
        Pair pair(ipv6, vlan, kSums);
        pair.connect();
        const Frame data = bytes_of(3001);
        assert_int_equal(pair.ours.tcp().send(pair.now, pair.id, data), 3001);
        std::vector<Sent> sent = pair.output();
        assert_int_equal(sent.size(), 3);
        for (Sent &one : sent) {
            const Layout at(one.frame);
            assert_int_equal(one.work.transport, at.transport);
            assert_int_equal(one.work.checksum, 16);
            assert_int_equal(one.work.segment, 0);
            assert_int_equal(one.work.headers, 0);
            const std::size_t field = at.transport + 16;
            assert_int_equal(one.frame[field] * 256 + one.frame[field + 1], plain_sum({}, at.pseudo(one.frame)));
            // Who knows that sums may be missing takes it as it is, as over veth.
            pair.peer.input(pair.now, one.frame, {.partial_sums = PartialSums::kAny});
            assert_false(at.sums_are_right(one.frame));
            complete(one.frame, one.work);
            assert_true(at.sums_are_right(one.frame));
        }
        Frame room(4000);
        assert_int_equal(pair.peer.tcp().receive(pair.now, pair.accepted, room), 3001);
        assert_bytes(std::span(room).first(3001), data);
    });
}

// Segments without data are complete: their sums are no work. One family may have no device's.
void what_stays_complete(void **)
{
    Pair pair(false, 0, kSums);
    pair.connect();
    assert_int_equal(pair.ours.tcp().shutdown(pair.now, pair.id), 0);
    std::vector<Sent> sent = pair.output();
    assert_int_equal(sent.size(), 1);
    assert_int_equal(sent[0].work.transport, 0);
    assert_true(Layout(sent[0].frame).sums_are_right(sent[0].frame));
    Pair six(true, 0, {true, false, kMostSegmented});
    six.connect();
    assert_int_equal(six.ours.tcp().send(six.now, six.id, bytes_of(5000)), 5000);
    sent = six.output();
    assert_int_equal(sent.size(), 4);
    for (const Sent &one : sent) {
        assert_int_equal(one.work.transport, 0);
        assert_true(Layout(one.frame).sums_are_right(one.frame));
    }
}

// The frames of one datagram, with what the device is to do with each.
std::vector<Sent> datagram(Pair &pair, const Frame &data)
{
    IpOut ip;
    ip.source = pair.our_address;
    ip.target = pair.peer_address;
    ip.protocol = Protocol::kUdp;
    ip.dont_fragment = false;
    std::array<std::uint8_t, kUdpHeader> header{};
    const Bytes parts[] = {header, data};
    Fragmenter fragments = pair.ours.datagram(pair.now, pair.next_hop, ip, parts);
    FrameWork work;
    header = pair.ours.datagram_header(fragments, ip, {1000, kPort}, std::span(parts).subspan(1), work);
    std::vector<Sent> sent;
    Frame room(kMaxEthernetHeader + 1500);
    while (const std::size_t length = fragments.next(room.data()))
        sent.push_back({Frame(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length)), work});
    return sent;
}

void datagrams_without_sums(void **)
{
    for_each_kind([](bool ipv6, std::uint16_t vlan) {
        Pair pair(ipv6, vlan, kSums);
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{1452}}) {
            std::vector<Sent> sent = datagram(pair, bytes_of(size));
            assert_int_equal(sent.size(), 1);
            assert_int_equal(sent[0].work.checksum, 6);
            complete(sent[0].frame, sent[0].work);
            assert_true(Layout(sent[0].frame).sums_are_right(sent[0].frame));
        }
        // A device sees one fragment, and so can't.
        const std::vector<Sent> sent = datagram(pair, bytes_of(4000));
        assert_int_equal(sent.size(), 3);
        for (const Sent &one : sent)
            assert_int_equal(one.work.transport, 0);
    });
}

// All that both ends of a connection say in a run: writes of odd sizes, congestion marks, an end.
std::vector<Frame> run(bool ipv6, std::uint16_t vlan, const SendOffloads &offloads, std::size_t &given)
{
    TcpSettings settings;
    settings.ecn = true;
    settings.send_buffer = 256 << 10;
    Pair pair(ipv6, vlan, offloads);
    pair.connect(settings);
    std::vector<Frame> all;
    Frame room(1 << 20);
    const Frame data = bytes_of(100000);
    for (unsigned i = 0; i < 20; ++i) {
        (void)pair.ours.tcp().send(pair.now, pair.id, std::span(data).first(3000 * i + 17 * i));
        if (i == 19)
            assert_int_equal(pair.ours.tcp().shutdown(pair.now, pair.id), 0);
        for (bool busy = true; busy;) {
            const std::vector<Frame> frames = pair.exchange();
            busy = !frames.empty();
            all.insert(all.end(), frames.begin(), frames.end());
            (void)pair.peer.tcp().receive(pair.now, pair.accepted, room);
        }
    }
    given = static_cast<std::size_t>(pair.ours.tcp().counters().out);
    return all;
}

// On the wire nobody can tell a device that cuts from a stack that doesn't leave it to one.
void segments_are_cut_by_the_device(void **)
{
    for_each_kind([](bool ipv6, std::uint16_t vlan) {
        std::size_t plainly = 0;
        std::vector<Frame> plain = run(ipv6, vlan, {}, plainly);
        for (const std::uint32_t limit : {2U, 1448U, 2896U, 10000U, 1U << 30}) {
            std::size_t counted = 0;
            std::vector<Frame> cut_up = run(ipv6, vlan, {true, true, limit}, counted);
            assert_int_equal(counted, plainly);
            assert_int_equal(cut_up.size(), plain.size());
            for (std::size_t i = 0; i < plain.size(); ++i) {
                if (!ipv6) { // ids differ, and so does the sum over them
                    for (const std::size_t at : {4U, 5U, 10U, 11U})
                        cut_up[i][Layout(cut_up[i]).ip + at] = plain[i][Layout(plain[i]).ip + at];
                }
                assert_bytes(cut_up[i], plain[i]);
            }
        }
    });
}

void one_frame_has_many_segments(void **)
{
    Pair pair(false, 0, {true, true, kMostSegmented});
    pair.connect();
    const Frame data = bytes_of(200000);
    Frame room(1 << 20);
    std::size_t longest = 0;
    for (unsigned i = 0; i < 40; ++i) {
        (void)pair.ours.tcp().send(pair.now, pair.id, data);
        for (const Sent &one : pair.output()) {
            assert_int_equal(one.work.segment == 0, one.frame.size() <= kEthernetHeader + 1500);
            if (one.work.segment != 0) {
                assert_int_equal(one.work.segment, 1448);
                assert_int_equal(one.work.headers, 14 + 20 + 32);
            }
            longest = std::max(longest, one.frame.size() - 66);
            for (const Frame &piece : cut(one.frame, one.work))
                pair.peer.input(pair.now, piece, {.checksums_good = true});
        }
        Frame back(2000);
        while (const std::size_t length = pair.peer.output(pair.now, back))
            pair.ours.input(pair.now, std::span(back).first(length));
        (void)pair.peer.tcp().receive(pair.now, pair.accepted, room);
        pair.now += kMillisecond;
        pair.ours.advance(pair.now);
        pair.peer.advance(pair.now);
    }
    assert_int_equal(longest, kMostSegmented / 1448 * 1448);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(segments_without_sums),       cmocka_unit_test(what_stays_complete),
        cmocka_unit_test(datagrams_without_sums),      cmocka_unit_test(segments_are_cut_by_the_device),
        cmocka_unit_test(one_frame_has_many_segments),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
