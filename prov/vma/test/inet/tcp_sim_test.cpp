// SPDX-License-Identifier: BSD-2-Clause
// Two engines over a link that does its worst: every byte is checked, every connection has to end, and nothing may be
// left.
#include <list>
#include <string>
#include <vector>

#include "fabtests/seed.hpp"
#include "prov/vma/test/inet/world.hpp"

namespace {

using namespace vma::inet;
using namespace vma::inet::sim;

void one_connection_over_a_good_link(void **)
{
    World world(vma::test::seed(), {});
    world.start(1000, 100000, 3000000);
    world.run_to_the_end();
    assert_int_equal(world.net.tcp(0).counters().retransmissions, 0);
    assert_int_equal(world.net.tcp(1).counters().retransmissions, 0);
}

void bulk_both_ways_over_a_bad_link(void **)
{
    World world(vma::test::seed(), bad_link());
    world.start(1000, 8000000, 8000000);
    world.run_to_the_end();
    assert_true(world.net.tcp(0).counters().recoveries != 0);
    const std::uint64_t merged = world.net.tcp(0).counters().merged + world.net.tcp(1).counters().merged;
    print_message("# %llu segments merged\n", static_cast<unsigned long long>(merged));
    assert_int_equal(merged != 0, usual_coalesce != 0);
}

double rate_of_fast_link(unsigned seed, std::uint32_t gro_streams)
{
    LinkSettings link;
    link.rate = 100e9;
    link.delay = 10 * kMicrosecond;
    TcpLimits limits;
    limits.gro_streams = gro_streams;
    World world(seed, link, limits);
    constexpr std::uint64_t kBytes = 200000000;
    world.start(1000, kBytes, 0);
    const Nanos from = world.net.now();
    assert_true(world.net.run(
        kLong, [&] { return world.programs[1][1000].received == kBytes; }, [&] { world.act(); }));
    const double rate = static_cast<double>(kBytes) * 8e9 / static_cast<double>(world.net.now() - from);
    print_message("# %.1f Gbit/s\n", rate / 1e9);
    assert_int_equal(world.net.tcp(0).counters().retransmissions, 0);
    return rate;
}

// The goodput of issue 5: 100 Gbit/s, 10 us. Batches make the round trip longer and the acknowledgements fewer; GRO
// changes nothing in that.
void fills_a_fast_link(void **)
{
    const unsigned seed = vma::test::seed();
    const double rate = rate_of_fast_link(seed, 32);
    assert_true(rate >= (usual_coalesce == 0 ? 95e9 : 90e9));
    assert_true(rate == rate_of_fast_link(seed, 0));
}

void many_connections_over_a_bad_link(void **)
{
    LinkSettings link = bad_link();
    const unsigned seed = vma::test::seed();
    TcpLimits limits;
    limits.connections = 2048;
    World world(seed, link, limits);
    Random random(seed);
    for (unsigned i = 0; i < 2000; ++i)
        world.start(static_cast<std::uint16_t>(1000 + i), random.below(20000), random.below(20000));
    world.run_to_the_end();
}

// Every combination of what a handshake can agree on.
void options_in_all_combinations(void **)
{
    const unsigned seed = vma::test::seed();
    unsigned marked_with_ecn = 0;
    for (unsigned bits = 0; bits < 32; ++bits) {
        TcpSettings settings;
        settings.sack = (bits & 1) != 0;
        settings.timestamps = (bits & 2) != 0;
        settings.window_scaling = (bits & 4) != 0;
        settings.ecn = (bits & 8) != 0;
        settings.congestion = (bits & 16) != 0 ? CongestionAlgorithm::kCubic : CongestionAlgorithm::kReno;
        LinkSettings link = bad_link();
        link.mark = 0.05;
        World world(seed + bits, link);
        world.start(1000, 400000, 400000, settings);
        world.run_to_the_end();
        const bool marked = world.net.counts(0).marked + world.net.counts(1).marked != 0;
        assert_true(settings.ecn || !marked); // who didn't ask sends nothing that can be marked
        marked_with_ecn += marked ? 1 : 0;
    }
    assert_true(marked_with_ecn >= 8); // of 16: who has lost two SYNs asks no more (RFC 3168, 6.1.1.1)
}

void segments_of_all_sizes(void **)
{
    const unsigned seed = vma::test::seed();
    constexpr std::uint16_t kMtus[] = {300, 576, 1280, 1500, 9000, 65535};
    for (const std::uint16_t mtu : kMtus) {
        World world(seed, bad_link(), {}, mtu);
        world.start(1000, 500000, 500000);
        world.run_to_the_end();
    }
}

void small_buffers(void **)
{
    const unsigned seed = vma::test::seed();
    for (const std::uint32_t size : {1000U, 4000U, 20000U, 70000U}) {
        TcpSettings settings;
        settings.send_buffer = settings.receive_buffer = size;
        World world(seed, bad_link(), {}, 1500, settings);
        world.start(1000, 200000, 200000, settings);
        world.run_to_the_end();
    }
}

// A pool that is too small for all: slow, but nothing is lost and nothing stands still.
void little_memory(void **)
{
    const unsigned seed = vma::test::seed();
    TcpLimits limits;
    limits.blocks = 64;
    limits.sent = 128;
    World world(seed, bad_link(), limits);
    for (std::uint16_t port = 1000; port < 1016; ++port)
        world.start(port, 100000, 100000);
    world.run_to_the_end();
}

// The reader is away for a minute: the window closes, is probed, and opens again.
void closed_window(void **)
{
    World world(vma::test::seed(), {});
    world.start(1000, 6000000, 0);
    Network &net = world.net;
    Program &server = world.programs[1][1000];
    const auto sender_only = [&] {
        TcpEvent event;
        ConnectionId id;
        while (net.tcp(1).next_event(event))
            if (net.tcp(1).accept(world.listener, id))
                server.id = id;
        while (net.tcp(0).next_event(event))
            world.programs[0][1000].act(net, 0);
    };
    const Nanos away = net.now() + 60 * kSecond;
    net.run(
        away, [&] { return net.now() >= away; }, sender_only);
    assert_true(net.tcp(1).readable(server.id) >
                TcpSettings().receive_buffer - 6000); // a block and some bytes are missing
    const Connection &c = *net.tcp(0).find(world.programs[0][1000].id);
    assert_int_equal(c.window, 0);
    assert_int_equal(c.alarm, static_cast<int>(Alarm::kPersist));
    net.tcp(1).set_user(server.id, 1000);
    server.act(net, 1);
    world.run_to_the_end();
}

// ---- ends -----------------------------------------------------------------------------------------------------------

int error_of(Network &net, unsigned side, ConnectionId id, Nanos limit, Nanos &at)
{
    const Nanos from = net.now();
    bool failed = false;
    net.run(
        net.now() + limit, [&] { return failed; },
        [&] {
            TcpEvent event;
            while (net.tcp(side).next_event(event))
                failed = failed || (event.what & kFailed) != 0;
        });
    at = net.now() - from;
    const int error = net.tcp(side).take_error(id);
    net.tcp(side).close(net.now(), id);
    assert_int_equal(net.tcp(side).open_connections(), 0);
    return error;
}

void nobody_listens(void **)
{
    Network net(vma::test::seed(), {});
    Nanos at = 0;
    const ConnectionId id = net.connect(0, 1000, kPort);
    assert_int_equal(error_of(net, 0, id, kLong, at), ECONNREFUSED);
    assert_true(at < kSecond);
}

// RFC 6298 and the kernel's six retries: 1 + 2 + 4 + 8 + 16 + 32 + 64 seconds.
void nobody_answers(void **)
{
    LinkSettings link;
    link.loss = 1;
    Network net(vma::test::seed(), link);
    Nanos at = 0;
    const ConnectionId id = net.connect(0, 1000, kPort);
    assert_int_equal(error_of(net, 0, id, kLong, at), ETIMEDOUT);
    assert_int_equal(at, 127 * kSecond);
}

void peer_vanishes(void **)
{
    World world(vma::test::seed(), {});
    world.start(1000, 1, 0);
    world.programs[0][1000].finished = world.programs[1][1000].finished = true; // it stays open
    Network &net = world.net;
    assert_true(net.run(
        kLong, [&] { return world.programs[1][1000].received == 1; }, [&] { world.act(); }));
    net.run(
        net.now() + 10 * kSecond, [] { return false; }, [&] { world.act(); });
    net.link(0).loss = net.link(1).loss = 1;
    const ConnectionId id = world.programs[0][1000].id;
    const std::uint8_t byte = 0;
    assert_int_equal(net.tcp(0).send(net.now(), id, {&byte, 1}), 1);
    Nanos at = 0;
    assert_int_equal(error_of(net, 0, id, kLong, at), ETIMEDOUT);
    assert_true(at > 600 * kSecond && at < 1200 * kSecond); // RFC 9293, 3.8.3: at least 100 s; the kernel: 924 s
    assert_int_equal(net.tcp(0).counters().timeouts, TcpSettings().retries);
}

// ---- sharing --------------------------------------------------------------------------------------------------------

// Jain's index of two flows that start apart and share a router's queue.
double fairness(unsigned seed, CongestionAlgorithm algorithm)
{
    LinkSettings link;
    link.rate = 20e6;
    link.delay = 10 * kMillisecond;
    link.queue = 50000; // a round trip's worth
    link.drop_tail = true;
    World world(seed, link);
    TcpSettings settings;
    settings.congestion = algorithm;
    settings.timestamps = true;
    constexpr std::uint64_t kEndless = std::uint64_t{1} << 40;
    world.start(1000, kEndless, 0, settings);
    const auto forever = [] { return false; };
    world.net.run(world.net.now() + 3 * kSecond, forever, [&] { world.act(); });
    world.start(1001, kEndless, 0, settings);
    world.net.run(world.net.now() + 20 * kSecond, forever, [&] { world.act(); });
    const std::uint64_t before[2] = {world.programs[1][1000].received, world.programs[1][1001].received};
    world.net.run(world.net.now() + 60 * kSecond, forever, [&] { world.act(); });
    const auto a = static_cast<double>(world.programs[1][1000].received - before[0]);
    const auto b = static_cast<double>(world.programs[1][1001].received - before[1]);
    print_message("# %.1f and %.1f Mbit/s\n", a * 8 / 60e6, b * 8 / 60e6);
    assert_true((a + b) * 8 / 60 > 0.9 * link.rate);
    return (a + b) * (a + b) / (2 * (a * a + b * b));
}

void two_flows_share(void **)
{
    const unsigned seed = vma::test::seed();
    assert_true(fairness(seed, CongestionAlgorithm::kCubic) > 0.95);
    assert_true(fairness(seed, CongestionAlgorithm::kReno) > 0.95);
}

// ---- enemies --------------------------------------------------------------------------------------------------------

// A million SYNs from nowhere: places are bounded, and who is real still gets in.
void flood_of_syns(void **)
{
    World world(vma::test::seed(), {});
    Network &net = world.net;
    Tcp &tcp = net.tcp(1);
    const std::uint32_t blocks = tcp.blocks().available();
    std::uint8_t answer[1500];
    TcpOut meta;
    const auto flood = [&](unsigned n) {
        for (unsigned i = 0; i < n; ++i) {
            std::uint8_t bytes[kTcpLongestHeader];
            Segment syn;
            syn.source_port = static_cast<std::uint16_t>(net.random().next());
            syn.target_port = kPort;
            syn.seq = static_cast<Seq>(net.random().next());
            syn.flags = kSyn;
            syn.options.mss = 1460;
            Packet packet;
            packet.source = IpAddress::v4(static_cast<std::uint32_t>(net.random().next()) | 0x0b000000);
            packet.target = kAddress[1];
            packet.protocol = Protocol::kTcp;
            packet.info.checksums_good = true;
            packet.payload = {bytes, write_tcp_header(bytes, syn)};
            tcp.input(net.now(), packet);
            while (tcp.output(net.now(), answer, meta)) { // to addresses that never answer
            }
        }
    };
    flood(500000);
    world.start(1000, 10000, 10000);
    flood(500000);
    assert_true(tcp.open_connections() <= 128); // the backlog
    assert_int_equal(tcp.blocks().available(), blocks);
    assert_true(tcp.counters().cookies_out > 900000);
    assert_true(net.run(
        kLong, [&] { return world.all_closed(); }, [&] { world.act(); }));
    assert_false(world.programs[0][1000].failed);
    assert_int_equal(world.programs[0][1000].received, 10000);
}

// RFC 5961: who sees nothing of a connection, and guesses, changes nothing of it.
void blind_attacks(void **)
{
    World world(vma::test::seed(), {});
    world.start(1000, 2000000, 2000000);
    Network &net = world.net;
    Random guess(7);
    net.run(
        kLong, [&] { return world.all_closed(); },
        [&] {
            world.act();
            for (unsigned side = 0; side < 2; ++side) {
                const Connection *const c = net.tcp(side).find(world.programs[side][1000].id);
                if (c == nullptr || !guess.chance(0.2))
                    continue;
                static constexpr std::uint8_t kFlags[] = {kRst, kRst | kAck, kSyn, kSyn | kAck, kAck, kAck | kFin};
                Segment segment;
                segment.source_port = c->flow.remote.port;
                segment.target_port = c->flow.local.port;
                segment.flags = kFlags[guess.below(std::size(kFlags))];
                segment.seq =
                    c->receive.next + 1 + static_cast<Seq>(guess.below(100000)); // in the window, but not its edge
                segment.ack = c->una + (1U << 24) + static_cast<Seq>(guess.next() >> 34);
                segment.window = 1;
                const std::uint8_t data[10] = {};
                net.inject(side, segment, segment.has(kRst | kSyn) ? std::span<const std::uint8_t>() : data);
            }
        });
    assert_true(world.all_closed());
    for (const auto &side : world.programs)
        for (const auto &[port, p] : side)
            assert_false(p.failed);
    assert_true(net.tcp(0).counters().challenges + net.tcp(1).counters().challenges != 0);
}

// Anything at all: no crash (the sanitizers look on), no place and no byte of memory lost.
void nonsense(void **)
{
    World world(vma::test::seed(), {});
    world.start(1000, 100000, 100000);
    world.programs[0][1000].checks = world.programs[1][1000].checks = false; // what is made up may fit by chance
    Network &net = world.net;
    for (unsigned i = 0; i < 200000; ++i) {
        Segment segment;
        segment.source_port = static_cast<std::uint16_t>(1000 + net.random().below(3));
        segment.target_port = static_cast<std::uint16_t>(kPort + net.random().below(2));
        segment.flags = static_cast<std::uint8_t>(net.random().next());
        const Connection *const c = net.tcp(1).find(world.programs[1][1000].id);
        const bool near = c != nullptr && net.random().chance(0.7);
        const auto offset = static_cast<Seq>(net.random().below(5000)) - 2500;
        segment.seq = near ? c->receive.next + offset : static_cast<Seq>(net.random().next());
        segment.ack =
            near ? c->nxt - static_cast<Seq>(net.random().below(5000)) : static_cast<Seq>(net.random().next());
        segment.window = static_cast<std::uint16_t>(net.random().next());
        TcpOptions &o = segment.options;
        o.has_timestamps = net.random().chance(0.5);
        o.timestamp = static_cast<std::uint32_t>(net.random().next());
        for (unsigned s = static_cast<unsigned>(net.random().below(4)); o.sacks < s; ++o.sacks)
            o.sack[o.sacks] = {segment.ack + static_cast<Seq>(net.random().below(9000)),
                               segment.ack + static_cast<Seq>(net.random().below(9000))};
        std::uint8_t data[100];
        net.inject(1, segment, {data, net.random().below(sizeof data)});
        net.step();
        world.act();
    }
    net.run(
        net.now() + kLong, [&] { return world.empty(); }, [&] { world.act(); });
    for (unsigned side = 0; side < 2; ++side)
        net.tcp(side).abort(net.now(), world.programs[side][1000].id);
    assert_true(world.empty());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_connection_over_a_good_link),
        cmocka_unit_test(bulk_both_ways_over_a_bad_link),
        cmocka_unit_test(fills_a_fast_link),
        cmocka_unit_test(many_connections_over_a_bad_link),
        cmocka_unit_test(options_in_all_combinations),
        cmocka_unit_test(segments_of_all_sizes),
        cmocka_unit_test(small_buffers),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(closed_window),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(peer_vanishes),
        cmocka_unit_test(two_flows_share),
        cmocka_unit_test(flood_of_syns),
        cmocka_unit_test(blind_attacks),
        cmocka_unit_test(nonsense),
    };
    std::vector<CMUnitTest> all(std::begin(tests),
                                std::end(tests)); // one group: a second one would be a second TAP plan
    std::list<std::string> names;
    for (CMUnitTest test : tests) {
        test.name = names.emplace_back(std::string(test.name) + "_in_batches").c_str();
        test.setup_func = [](void **) {
            usual_coalesce = 50 * kMicrosecond;
            return 0;
        };
        all.push_back(test);
    }
    for (CMUnitTest test : tests) {
        test.name = names.emplace_back(std::string(test.name) + "_cut_by_the_device").c_str();
        test.setup_func = [](void **) {
            usual_coalesce = 0;
            usual_segment_limit = kMostSegmented;
            return 0;
        };
        all.push_back(test);
    }
    return _cmocka_run_group_tests("tests", all.data(), all.size(), nullptr, nullptr);
}
