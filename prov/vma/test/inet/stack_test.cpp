// SPDX-License-Identifier: BSD-2-Clause
// Two whole stacks on a wire of memory: what one writes as frames the other reads, in both families, on a VLAN, in
// fragments; and what ICMP and those who know the routes change.
#include "prov/vma/test/inet/frames.hpp"

#include <errno.h>

#include <algorithm>
#include <deque>

#include "prov/vma/src/inet/stack.hpp"
#include "prov/vma/test/inet/udp_frame.hpp"

namespace {

using namespace frames;

constexpr std::uint16_t kPort = 7;

StackOptions options(const Mac &mac, std::uint64_t secret)
{
    StackOptions o;
    o.mac = mac;
    o.secret = {secret, secret + 1};
    o.tcp.connections = 16;
    o.tcp.blocks = 2048;
    o.udp_blocks = 64;
    return o;
}

struct Wire {
    explicit Wire(bool ipv6, std::uint16_t vlan_id = 0)
        : ours(options(kOurMac, 1), now), peer(options(kPeerMac, 3), now), vlan(vlan_id),
          our_address(ipv6 ? kOurs6 : kOurs4), peer_address(ipv6 ? kPeer6 : kPeer4)
    {
    }

    // What the configuration knows is told to who asks; each stack's frames go to the other.
    void run()
    {
        for (bool busy = true; busy;) {
            busy = false;
            answer(ours, peer_address, kPeerMac);
            answer(peer, our_address, kOurMac);
            busy = carry(ours, peer) || busy;
            busy = carry(peer, ours) || busy;
        }
    }

    void answer(Stack &stack, const IpAddress &remote, const Mac &mac)
    {
        IpAddress wanted;
        while (answers && stack.next_wanted(wanted)) {
            assert_true(wanted == remote);
            ++asked;
            stack.set_next_hop(now, remote, mac, vlan, 9000); // more than the port's
        }
    }

    // All that one has to send, as a batch.
    bool carry(Stack &from, Stack &to)
    {
        std::deque<Frame> batch;
        Frame frame(kMaxEthernetHeader + 9000);
        while (const std::size_t length = from.output(now, frame)) {
            longest = std::max(longest, length - ethernet_header_size(vlan));
            last.assign(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
            to.gather(now, batch.emplace_back(last));
        }
        to.flush(now);
        return !batch.empty();
    }

    ConnectionId connect()
    {
        assert_int_equal(peer.tcp().listen({peer_address, kPort}, 4, {}, 0, listener), 0);
        ConnectionId id;
        const NextHopIndex next_hop = ours.use_next_hop(now, peer_address);
        assert_int_equal(ours.tcp().connect(now, {{our_address, 1000}, {peer_address, kPort}}, next_hop, {}, 0, id), 0);
        run();
        (void)peer.tcp().accept(listener, accepted);
        return id;
    }

    Nanos now = kSecond;
    Stack ours;
    Stack peer;
    std::uint16_t vlan;
    IpAddress our_address;
    IpAddress peer_address;
    ListenerId listener;
    ConnectionId accepted;
    bool answers = true;
    unsigned asked = 0;
    std::size_t longest = 0; // IP packet
    Frame last;
};

// All that `data` says arrives, whatever the window.
void transfer(Wire &wire, ConnectionId id, const Frame &data)
{
    Frame got;
    std::size_t sent = 0;
    while (got.size() < data.size()) {
        const std::int64_t n = wire.ours.tcp().send(wire.now, id, std::span(data).subspan(sent));
        sent += n > 0 ? static_cast<std::size_t>(n) : 0;
        wire.run();
        Frame room(10000);
        const std::int64_t m = wire.peer.tcp().receive(wire.now, wire.accepted, room);
        if (m > 0)
            got.insert(got.end(), room.begin(), room.begin() + m);
        wire.now += kMillisecond;
        wire.ours.advance(wire.now);
        wire.peer.advance(wire.now);
        assert_true(wire.now < 100 * kSecond);
    }
    assert_bytes(got, data);
}

void streams_in_frames(void **)
{
    for (const bool ipv6 : {false, true}) {
        for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{42}}) {
            Wire wire(ipv6, vlan);
            const ConnectionId id = wire.connect();
            transfer(wire, id, bytes_of(200000));
            assert_int_equal(wire.longest, 1500);
            assert_int_equal(wire.ours.counters().parsed[0], wire.ours.tcp().counters().in); // kPacket
            assert_int_equal(wire.ours.tcp().counters().retransmissions, 0);
            assert_int_equal(wire.peer.tcp().counters().malformed, 0);
            assert_true(wire.peer.tcp().counters().merged > 100);
        }
    }
}

// Nothing leaves before the link address is known; the answer to a SYN goes where that came from, and is confirmed.
void next_hops_come_from_outside(void **)
{
    Wire wire(false);
    wire.answers = false;
    const ConnectionId id = wire.connect();
    assert_int_equal(wire.longest, 0);
    IpAddress wanted;
    assert_true(wire.ours.next_wanted(wanted));
    assert_true(wanted == wire.peer_address);
    assert_false(wire.ours.next_wanted(wanted)); // once
    wire.ours.set_next_hop(wire.now, wire.peer_address, kPeerMac, 0, 1400);
    wire.run();
    assert_true(wire.peer.tcp().accept(wire.listener, wire.accepted));
    assert_true(wire.ours.tcp().find(id)->state == TcpState::kEstablished);
    const Connection &c = *wire.ours.tcp().find(id);
    assert_int_equal(c.mss, 1400 - 40 - 12);
    assert_true(wire.peer.next_wanted(wanted)); // it has answered already, and asks whether that was right
    assert_true(wanted == wire.our_address);
    const Mac other = {{2, 0, 0, 0, 0, 9}};
    wire.peer.set_next_hop(wire.now, wire.our_address, other, 0, 1500);
    assert_int_equal(wire.peer.tcp().send(wire.now, wire.accepted, bytes_of(5)), 5);
    wire.carry(wire.peer, wire.ours);
    assert_memory_equal(wire.last.data(), other.bytes.data(), 6); // the route has moved it
}

void datagrams_in_fragments(void **)
{
    for (const bool ipv6 : {false, true}) {
        Wire wire(ipv6);
        UdpTable &udp = wire.peer.udp();
        const UdpSocketId socket = udp.open({});
        assert_int_equal(udp.bind(socket, {wire.peer_address, kPort}), 0);
        const NextHopIndex next_hop = wire.ours.use_next_hop(wire.now, wire.peer_address);
        wire.run();
        for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{1472}, std::size_t{9000}}) {
            const Frame data = bytes_of(size);
            IpOut ip;
            ip.source = wire.our_address;
            ip.target = wire.peer_address;
            ip.protocol = Protocol::kUdp;
            ip.dont_fragment = false;
            const Bytes body = data;
            const auto header = udp_header(ip, {1000, kPort}, {&body, 1});
            const Bytes parts[] = {header, body};
            Fragmenter frames = wire.ours.datagram(wire.now, next_hop, ip, parts);
            assert_int_equal(frames.frames() > 1, size > 1472 || (ipv6 && size == 1472));
            Frame frame(kMaxEthernetHeader + 1500);
            while (const std::size_t length = frames.next(frame.data()))
                wire.peer.input(wire.now, std::span(frame).first(length));
            Frame room(10000);
            const std::span<std::uint8_t> rooms[] = {room};
            const UdpTable::Received got = udp.receive(socket, rooms);
            assert_int_equal(got.error, 0);
            assert_bytes(std::span(room).first(got.copied), data);
        }
        wire.ours.tcp().next_hops().release(next_hop);
    }
}

// An ICMP message to our side about a frame that it sent.
void tell(Wire &wire, const Frame &about, std::uint8_t type, std::uint8_t code, std::uint32_t rest)
{
    Frame message = {type, code, 0, 0, 0, 0, 0, 0};
    store32(&message[4], rest);
    message.insert(message.end(), about.begin() + kEthernetHeader, about.end());
    store16(&message[2], finish(sum(message.data(), message.size())));
    wire.ours.input(wire.now, frame_of(from_peer(false, Protocol::kIcmp), message));
}

void paths_get_narrower(void **)
{
    Wire wire(false);
    const ConnectionId id = wire.connect();
    assert_int_equal(wire.ours.tcp().send(wire.now, id, bytes_of(1448)), 1448);
    Frame frame(kMaxEthernetHeader + 1500);
    frame.resize(wire.ours.output(wire.now, frame)); // lost behind the first hop
    Frame forged = frame;
    store32(&forged[kEthernetHeader + kIpv4Header + 4], 0x12345678); // a sequence number that was never sent
    tell(wire, forged, 3, 4, 1000);
    assert_int_equal(wire.ours.counters().too_big_ignored, 1);
    assert_int_equal(wire.ours.tcp().find(id)->mss, 1448);
    tell(wire, frame, 3, 4, 1000);
    assert_int_equal(wire.ours.tcp().find(id)->mss, 1000 - 40 - 12);
    wire.longest = 0;
    wire.run(); // again, in pieces that fit
    assert_int_equal(wire.longest, 1000);
    assert_int_equal(wire.peer.tcp().readable(wire.accepted), 1448);
    const NextHopIndex next_hop = wire.ours.use_next_hop(wire.now, wire.peer_address);
    assert_int_equal(wire.ours.tcp().next_hops()[next_hop].mtu, 1000);
    wire.ours.set_next_hop(wire.now, wire.peer_address, kPeerMac, 0,
                           1500); // the neighbour has moved: that says nothing of the path
    assert_int_equal(wire.ours.tcp().next_hops()[next_hop].mtu, 1000);
    wire.now += PathMtus::kLifetime + kSecond;
    wire.ours.set_next_hop(wire.now, wire.peer_address, kPeerMac, 0, 1500);
    assert_int_equal(wire.ours.tcp().next_hops()[next_hop].mtu, 1500);
    wire.ours.tcp().next_hops().release(next_hop);
}

void ports_that_nobody_has(void **)
{
    Wire wire(false);
    UdpTable &udp = wire.ours.udp();
    const UdpSocketId socket = udp.open({});
    assert_int_equal(udp.bind(socket, {wire.our_address, 1000}), 0);
    assert_int_equal(udp.connect(socket, wire.our_address, {wire.peer_address, kPort}), 0);
    IpOut ip;
    ip.source = wire.our_address;
    ip.target = wire.peer_address;
    ip.protocol = Protocol::kUdp;
    const Frame data = bytes_of(10);
    const Bytes parts[] = {data};
    Frame frame(200);
    frame.resize(write_udp_frame(frame.data(), {kPeerMac, kOurMac, 0}, ip, {1000, kPort}, parts));
    tell(wire, frame, 3, 3, 0);
    assert_int_equal(udp.take_error(socket), ECONNREFUSED);
    // A connection that opens is refused as well: RFC 1122, 4.2.3.9.
    ConnectionId id;
    const NextHopIndex next_hop = wire.ours.use_next_hop(wire.now, wire.peer_address);
    wire.answer(wire.ours, wire.peer_address, kPeerMac);
    assert_int_equal(
        wire.ours.tcp().connect(wire.now, {{wire.our_address, 1}, {wire.peer_address, 2}}, next_hop, {}, 0, id), 0);
    frame.resize(200);
    frame.resize(wire.ours.output(wire.now, frame));
    tell(wire, frame, 3, 3, 0);
    assert_int_equal(wire.ours.tcp().take_error(id), ECONNREFUSED);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(streams_in_frames),      cmocka_unit_test(next_hops_come_from_outside),
        cmocka_unit_test(datagrams_in_fragments), cmocka_unit_test(paths_get_narrower),
        cmocka_unit_test(ports_that_nobody_has),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
