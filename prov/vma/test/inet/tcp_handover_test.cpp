// SPDX-License-Identifier: BSD-2-Clause
// Connections that are given away and come back: in mid-transfer, at random moments, on either side, over a link that
// does its worst. Every byte is checked, and the peer notices nothing but a pause.
#include <array>
#include <vector>

#include "fabtests/seed.hpp"
#include "prov/vma/src/inet/tcp/handover.hpp"
#include "prov/vma/src/inet/tcp/segment.hpp"
#include "prov/vma/test/inet/world.hpp"

namespace {

using namespace vma::inet;
using namespace vma::inet::sim;

constexpr std::uint16_t kClient = 1000;

// What a kernel's socket would hold meanwhile.
struct Away {
    TcpHandover handover;
    std::vector<std::uint8_t> queued, unread;
    TcpSettings settings;
    bool is = false;

    // False: it is not open both ways any more, and stays.
    bool take(Network &net, unsigned side, ConnectionId id)
    {
        Tcp &tcp = net.tcp(side);
        const Connection *const c = tcp.find(id);
        if (c == nullptr || tcp.describe(net.now(), id, handover) != 0 || handover.peer_finished)
            return false;
        settings = c->settings;
        queued.resize(tcp.queued(id));
        unread.resize(tcp.readable(id));
        tcp.copy_queued(id, 0, queued);
        tcp.copy_unread(id, 0, unread);
        tcp.forget(net.now(), id);
        assert_null(tcp.find(id));
        return is = true;
    }

    int put_back(Network &net, unsigned side, std::uint64_t user, ConnectionId &id)
    {
        Tcp &tcp = net.tcp(side);
        const NextHopIndex next_hop = tcp.next_hops().use(handover.flow.remote.address);
        const int error = tcp.adopt(net.now(), handover, queued, unread, next_hop, settings, user, id);
        if (error != 0)
            tcp.next_hops().release(next_hop);
        is = error != 0;
        return error;
    }
};

// A transfer both ways in which each side is away now and then. How often.
unsigned carry(unsigned seed, const LinkSettings &link, std::uint64_t bytes, TcpSettings settings, unsigned one_in)
{
    settings.send_buffer = settings.receive_buffer = 60000; // the program is at it for long
    World world(seed, link, {}, 1500, settings);
    Random random(seed);
    Away away[2];
    Nanos back_at[2] = {};
    unsigned moves = 0;
    bool quiet = false; // nothing will happen by itself: time to come back
    world.start(kClient, bytes, bytes, settings);
    const auto act = [&] {
        for (unsigned side = 0; side < 2; ++side) {
            Program &p = world.programs[side][kClient];
            if (away[side].is && (quiet || world.net.now() >= back_at[side])) {
                assert_int_equal(away[side].put_back(world.net, side, kClient, p.id), 0);
                p.act(world.net, side);
            } else if (!away[side].is && !p.closed && !p.finished && random.below(one_in) == 0 &&
                       away[side].take(world.net, side, p.id)) {
                back_at[side] = world.net.now() + random.below(2) * random.below(3 * kMillisecond);
                ++moves;
            }
        }
        for (unsigned side = 0; side < 2; ++side) {
            TcpEvent event;
            while (!away[side].is && world.net.tcp(side).next_event(event)) {
                Program &p = world.programs[side][kClient];
                if ((event.what & kAcceptable) != 0)
                    world.accept_all();
                else if (!p.closed)
                    p.act(world.net, side);
            }
        }
    };
    const Nanos limit = world.net.now() + kLong;
    while (!world.all_closed() && world.net.now() < limit) {
        quiet = !world.net.step();
        if (quiet && !away[0].is && !away[1].is)
            break;
        act();
    }
    const bool done = world.all_closed();
    if (!done)
        world.describe();
    assert_true(done);
    for (const auto &side : world.programs) {
        assert_false(side.at(kClient).failed);
        assert_int_equal(side.at(kClient).received, bytes);
    }
    return moves;
}

void away_and_back_over_a_bad_link(void **)
{
    const unsigned seed = vma::test::seed();
    unsigned moves = 0;
    for (unsigned i = 0; i < 20; ++i)
        moves += carry(seed + i, bad_link(), 1000000, {}, 200);
    print_message("# %u times away\n", moves);
    assert_true(moves > 20);
}

// Each combination of what a handshake agrees on survives.
void agreements_are_kept(void **)
{
    const unsigned seed = vma::test::seed();
    for (unsigned bits = 0; bits < 16; ++bits) {
        TcpSettings settings;
        settings.sack = (bits & 1) != 0;
        settings.timestamps = (bits & 2) != 0;
        settings.window_scaling = (bits & 4) != 0;
        settings.ecn = (bits & 8) != 0;
        LinkSettings link = bad_link();
        link.mark = 0.02;
        carry(seed + bits, link, 300000, settings, 100);
    }
}

// A pair of connections that has exchanged some bytes, and is quiet.
struct Pair {
    explicit Pair(unsigned seed) : world(seed, LinkSettings{})
    {
        world.start(kClient, 0, 0);
        Program &client = world.programs[0][kClient];
        Program &server = world.programs[1][kClient];
        client.finished = server.finished = true; // the test sends
        const bool open = world.net.run(
            kLong, [&] { return server.id != ConnectionId(); }, [&] { world.act(); });
        assert_true(open);
    }
    ConnectionId id(unsigned side) { return world.programs[side][kClient].id; }

    World world;
};

void segments_of_the_forgotten_are_not_answered(void **)
{
    Pair pair(vma::test::seed());
    Network &net = pair.world.net;
    Away away;
    assert_true(away.take(net, 0, pair.id(0)));
    const std::uint8_t bytes[100] = {};
    assert_int_equal(net.tcp(1).send(net.now(), pair.id(1), bytes), sizeof bytes);
    const std::uint64_t sent = net.counts(0).sent;
    const Nanos until = net.now() + 10 * kSecond; // it is sent again and again
    net.run(
        until, [&] { return net.now() >= until; }, [] {});
    assert_true(net.tcp(1).find(pair.id(1))->retransmissions != 0);
    assert_int_equal(net.counts(0).sent, sent);
    assert_int_equal(net.tcp(0).counters().resets_out, 0);
    ConnectionId id;
    assert_int_equal(away.put_back(net, 0, kClient, id), 0);
    assert_true(net.run(
        net.now() + kLong, [&] { return net.tcp(0).readable(id) == sizeof bytes; }, [] {}));
    assert_int_equal(net.tcp(1).find(pair.id(1))->error, 0);
}

// The other TCP had sent more than it told, and the window is too small for sending it once more.
void more_was_sent_than_told(void **)
{
    Pair pair(vma::test::seed());
    Network &net = pair.world.net;
    Tcp &tcp = net.tcp(0);
    const std::vector<std::uint8_t> bytes(1000);
    Away away;
    ConnectionId id;
    assert_int_equal(tcp.send(net.now(), pair.id(0), bytes), bytes.size());
    assert_true(net.run(
        net.now() + kLong, [&] { return net.tcp(1).readable(pair.id(1)) == bytes.size(); }, [] {}));
    assert_int_equal(tcp.queued(pair.id(0)), bytes.size()); // the acknowledgement is on its way
    assert_true(away.take(net, 0, pair.id(0)));
    assert_int_equal(away.handover.nxt - away.handover.una, bytes.size());
    away.handover.nxt -= 600;
    away.handover.window = 400;
    assert_int_equal(away.put_back(net, 0, kClient, id), 0);
    assert_true(net.run(
        net.now() + kLong, [&] { return tcp.queued(id) == 0; }, [] {}));
    assert_int_equal(tcp.counters().bad_acks, 0);
    assert_int_equal(tcp.send(net.now(), id, bytes), bytes.size());
    assert_true(net.run(
        net.now() + kLong, [&] { return net.tcp(1).readable(pair.id(1)) == 2 * bytes.size(); }, [] {}));
}

// What was advertised can't be kept: the peer is told at once, and sends no more than there is room for.
void windows_shrink_to_what_there_is_room_for(void **)
{
    Pair pair(vma::test::seed());
    Network &net = pair.world.net;
    Tcp &tcp = net.tcp(0);
    Away away;
    ConnectionId id;
    assert_true(away.take(net, 0, pair.id(0)));
    away.unread.resize(6U << 20);
    away.handover.advertised = away.handover.rcv + (16U << 20);
    const auto room = static_cast<std::uint32_t>(tcp.most_adopted() - away.unread.size());
    assert_int_equal(away.put_back(net, 0, kClient, id), 0);
    const Connection &peer = *net.tcp(1).find(pair.id(1));
    assert_true(net.run(
        net.now() + kLong, [&] { return peer.window <= room; }, [] {}));
    assert_true(peer.window > room / 2);
    std::vector<std::uint8_t> bytes(2 * room);
    const std::int64_t taken = net.tcp(1).send(net.now(), pair.id(1), bytes);
    assert_true(taken > room);
    assert_true(net.run(
        net.now() + kLong, [&] { return tcp.readable(id) > away.unread.size() + room / 2; }, [] {}));
    assert_int_equal(tcp.counters().no_memory, 0);
    for (std::size_t left = away.unread.size() + static_cast<std::size_t>(taken); left != 0;) {
        const std::int64_t n = tcp.receive(net.now(), id, bytes);
        assert_true(n > 0 || n == -EAGAIN);
        left -= n > 0 ? static_cast<std::size_t>(n) : 0;
        if (left != 0)
            assert_true(net.run(
                net.now() + kLong, [&] { return tcp.readable(id) != 0; }, [] {}));
    }
    assert_int_equal(tcp.counters().no_memory, 0);
}

// What a peer sends that has 4 bytes for `c`, from `at` on.
void give_bytes(Network &net, const Connection &c, Seq at, std::uint8_t flags)
{
    Segment segment;
    segment.source_port = c.flow.remote.port;
    segment.target_port = c.flow.local.port;
    segment.flags = flags;
    segment.seq = at;
    segment.ack = c.una;
    segment.window = 1000;
    segment.options.has_timestamps = c.agreed.timestamps;
    segment.options.timestamp = c.receive.stamp_recent;
    std::array<std::uint8_t, 100> bytes{};
    const std::size_t header = write_tcp_header(bytes.data(), segment);
    Packet packet;
    packet.source = c.flow.remote.address;
    packet.target = c.flow.local.address;
    packet.protocol = Protocol::kTcp;
    packet.payload = {bytes.data(), header + 4};
    packet.info.checksums_good = true;
    net.tcp(0).input(net.now(), packet);
}

// Urgent data is for the TCP that a connection is from; the others have no other place for it than the stream.
void urgent_data_is_left(void **)
{
    Pair pair(vma::test::seed());
    Network &net = pair.world.net;
    Tcp &tcp = net.tcp(0);
    ConnectionId id = pair.id(0);
    give_bytes(net, *tcp.find(id), tcp.find(id)->receive.next, kAck | kUrg);
    assert_int_equal(tcp.readable(id), 4);
    Away away;
    assert_true(away.take(net, 0, id));
    assert_int_equal(away.put_back(net, 0, kClient, id), 0);
    const Connection &c = *tcp.find(id);
    const Seq next = c.receive.next;
    TcpEvent event;
    while (tcp.next_event(event)) {
    }
    give_bytes(net, c, next, kAck | kUrg);
    assert_true(tcp.next_event(event));
    assert_true((event.what & kUrgent) != 0);
    give_bytes(net, c, next, kAck); // behind it, too
    give_bytes(net, c, next + 4, kAck | kUrg);
    assert_int_equal(tcp.readable(id), 4);
    assert_int_equal(c.receive.next, next);
    assert_false(tcp.next_event(event)); // once
    assert_true(away.take(net, 0, id));
    assert_int_equal(away.put_back(net, 0, kClient, id), 0);
    give_bytes(net, *tcp.find(id), next, kAck); // another time
    assert_int_equal(tcp.readable(id), 8);
}

void contradictions_are_refused(void **)
{
    Pair pair(vma::test::seed());
    Network &net = pair.world.net;
    Away good;
    ConnectionId id;
    assert_true(good.take(net, 0, pair.id(0)));
    const auto refuses = [&](auto change) {
        Away bad = good;
        change(bad.handover);
        assert_int_equal(bad.put_back(net, 0, kClient, id), -EINVAL);
    };
    refuses([](TcpHandover &h) { h.nxt = h.una - 1; });
    refuses([](TcpHandover &h) { h.nxt = h.una + 1; }); // nothing is queued
    refuses([](TcpHandover &h) { h.send_shift = 15; });
    refuses([](TcpHandover &h) { h.receive_shift = 15; });
    refuses([](TcpHandover &h) { h.acked = h.rcv + 1; });
    refuses([](TcpHandover &h) { h.advertised = h.rcv - 1; });
    refuses([](TcpHandover &h) { h.peer_finished = true; });
    assert_int_equal(good.put_back(net, 0, kClient, id), 0);
    assert_int_equal(good.put_back(net, 0, kClient, id), -EADDRINUSE); // it is there already
    net.tcp(0).abort(net.now(), id);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(away_and_back_over_a_bad_link),
        cmocka_unit_test(agreements_are_kept),
        cmocka_unit_test(segments_of_the_forgotten_are_not_answered),
        cmocka_unit_test(more_was_sent_than_told),
        cmocka_unit_test(windows_shrink_to_what_there_is_room_for),
        cmocka_unit_test(urgent_data_is_left),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
