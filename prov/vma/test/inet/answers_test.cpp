// SPDX-License-Identifier: BSD-2-Clause
// How often segments that can't be part of a connection are answered (RFC 5961, 7), and what an attacker learns from it
// who sees his own connection only (CVE-2016-5696): nothing. Time is virtual.
#include "fabtests/unit.hpp"

#include <array>
#include <span>
#include <tuple>
#include <vector>

#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/src/inet/wire/bytes.hpp"

namespace {

using namespace vma::inet;

constexpr IpAddress kUs = IpAddress::v4(0x0a000001);
constexpr IpAddress kVictim = IpAddress::v4(0x0a000002);
constexpr IpAddress kAttacker = IpAddress::v4(0x0a000003);
constexpr std::uint16_t kPort = 7;
constexpr std::uint16_t kVictimPort = 1000;
constexpr std::uint16_t kAttackerPort = 2000;
constexpr Seq kFirst = 5000; // the next byte of either peer
constexpr unsigned kFlood = 1100;
constexpr Nanos kBetween = 100 * kMicrosecond; // 0.11 s in all
constexpr std::uint64_t kAtOnce = kGuessAnswers.at_once;

struct Answers {
    unsigned to_victim = 0;
    unsigned to_attacker = 0;
};

class Server
{
public:
    Server() : tcp(limits(), {1, 2}, now)
    {
        for (const IpAddress &address : {kVictim, kAttacker})
            tcp.next_hops()[tcp.next_hops().use(address)].ready = true;
        assert_int_equal(tcp.listen({kUs, kPort}, 4, TcpSettings(), 0, listener), 0);
        victim = open(kVictim, kVictimPort, victim_ack);
        attacker = open(kAttacker, kAttackerPort, attacker_ack);
        now += 10 * kSecond;
    }

    Answers hear(IpAddress from, std::uint16_t port, std::uint8_t flags, Seq seq, Seq ack, std::size_t length = 0)
    {
        Segment s;
        s.source_port = port;
        s.target_port = kPort;
        s.flags = flags;
        s.seq = seq;
        s.ack = ack;
        s.window = 60000;
        std::vector<std::uint8_t> bytes(kTcpLongestHeader + length);
        const std::size_t header = write_tcp_header(bytes.data(), s);
        Packet packet;
        packet.source = from;
        packet.target = kUs;
        packet.protocol = Protocol::kTcp;
        packet.info.checksums_good = true;
        packet.payload = {bytes.data(), header + length};
        tcp.input(now, packet);
        return take_out();
    }

    // The same one again and again, for 0.11 s.
    unsigned flood(std::uint8_t flags, Seq seq, Seq ack, std::size_t length = 0)
    {
        unsigned heard = 0;
        for (unsigned i = 0; i < kFlood; ++i, now += kBetween)
            heard += hear(kVictim, kVictimPort, flags, seq, ack, length).to_victim;
        return heard;
    }

    Nanos now = 10 * kSecond;
    Tcp tcp;
    ListenerId listener;
    ConnectionId victim, attacker;
    Seq victim_ack = 0, attacker_ack = 0;

private:
    static TcpLimits limits()
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

    ConnectionId open(IpAddress from, std::uint16_t port, Seq &ack)
    {
        hear(from, port, kSyn, kFirst - 1, 0);
        ack = load32(last_.data() + 4) + 1; // the number of our SYN
        hear(from, port, kAck, kFirst, ack);
        ConnectionId id;
        assert_true(tcp.accept(listener, id));
        return id;
    }

    Answers take_out()
    {
        Answers answers;
        TcpOut out;
        while (tcp.output(now, std::span(last_), out) != 0)
            ++(out.target == kAttacker ? answers.to_attacker : answers.to_victim);
        return answers;
    }

    std::array<std::uint8_t, 8000> last_ = {};
};

// What the attacker hears on his own connection, after something was spoofed in the victim's name.
template <typename Spoof> std::vector<Nanos> overhear(Spoof spoof)
{
    Server server;
    std::vector<Nanos> heard;
    const Nanos begin = server.now;
    spoof(server);
    for (unsigned i = 0; i < 20000; ++i, server.now += kBetween)
        if (server.hear(kAttacker, kAttackerPort, kRst, kFirst + 10 + i % 1000, 0).to_attacker != 0)
            heard.push_back(server.now - begin);
    return heard;
}

void attacker_learns_nothing(void **)
{
    constexpr Seq kAny = 123456789; // and half of all numbers further: one of them is ahead of the window
    const std::vector<Nanos> quiet = overhear([](Server &) {});
    assert_true(quiet.size() >= kAtOnce);
    const auto is_same = [&](auto spoof) { return overhear(spoof) == quiet; };
    for (const std::uint16_t port : {kVictimPort, std::uint16_t{kVictimPort + 1}})
        for (const unsigned often : {1U, 2U, kFlood}) {
            const auto again = [=](Server &server, std::uint8_t flags, Seq seq, std::size_t length) {
                for (unsigned i = 0; i < often; ++i)
                    server.hear(kVictim, port, flags, seq + (i % 2 != 0 ? 0x80000000 : 0), 0, length);
            };
            assert_true(is_same([&](Server &s) { again(s, kAck, kAny, 0); }));
            assert_true(is_same([&](Server &s) { again(s, kAck, kAny, 100); }));
            assert_true(is_same([&](Server &s) { again(s, kSyn, kAny, 0); }));
            assert_true(is_same([&](Server &s) { again(s, kAck | kFin, kAny, 0); }));
            assert_true(is_same([&](Server &s) { again(s, kRst, kFirst + 20000, 0); }));     // in its window
            assert_true(is_same([&](Server &s) { again(s, kRst, kFirst + 900000000, 0); })); // outside of it
            assert_true(is_same([&](Server &s) { again(s, kAck, kFirst, 0); })); // acknowledges what was never sent
        }
}

// Each kind of segment that can't be part of the connection, for as long as a flood is under way, and after it.
void check_flood(std::uint8_t flags, std::int32_t seq, std::int32_t ack, std::size_t length)
{
    Server server;
    const auto at = kFirst + static_cast<Seq>(seq);
    const auto acknowledged = server.victim_ack + static_cast<Seq>(ack);
    assert_int_equal(server.flood(flags, at, acknowledged, length), kAtOnce);
    assert_int_equal(server.tcp.counters().challenges_held, kFlood - kAtOnce);
    unsigned heard = 0;
    for (unsigned second = 0; second < 20; ++second) { // one a second, while it goes on
        server.now += kSecond;
        heard += server.flood(flags, at, acknowledged, length);
    }
    assert_in_range(heard, 20, 24);
    server.now += 10 * kSecond;
    assert_int_equal(server.flood(flags, at, acknowledged, length), kAtOnce);
    assert_int_equal(server.hear(kAttacker, kAttackerPort, kRst, kFirst + 1, 0).to_attacker, 1);
}

void floods_are_answered_rarely(void **)
{
    check_flood(kRst, 100, 0, 0);           // in the window, not exact
    check_flood(kSyn, 100, 0, 0);           // in the window
    check_flood(kSyn, 900000000, 0, 0);     // ahead of it
    check_flood(kSyn, -900000000, 0, 0);    // far behind
    check_flood(kSyn, -100, 0, 0);          // behind
    check_flood(kSyn | kAck, -100, 0, 100); // with data
    check_flood(kAck, 900000000, 0, 0);     // acknowledgements
    check_flood(kAck, -900000000, 0, 0);
    check_flood(kAck, -1, 0, 0);          // what both ends of a loop of acknowledgements send
    check_flood(kAck, 900000000, 0, 100); // data
    check_flood(kAck, -900000000, 0, 100);
    check_flood(kAck | kFin, 900000000, 0, 0); // FIN
    check_flood(kAck | kFin, -900000000, 0, 0);
    check_flood(kAck, 0, 1, 0);          // acknowledges what was never sent
    check_flood(kAck, 0, -900000000, 0); // or what was long ago
}

// The peer did not hear us, and sends again: each segment is answered, but not each of a flood.
void duplicates_are_answered(void **)
{
    constexpr unsigned kSegments = 100;
    constexpr std::size_t kLength = 100;
    Server server;
    Seq seq = kFirst;
    for (unsigned i = 0; i < kSegments; ++i, seq += kLength)
        server.hear(kVictim, kVictimPort, kAck, seq, server.victim_ack, kLength);
    seq = kFirst;
    for (unsigned i = 0; i < kSegments; ++i, seq += kLength)
        assert_int_equal(server.hear(kVictim, kVictimPort, kAck, seq, server.victim_ack, kLength).to_victim, 1);
    assert_int_equal(server.hear(kVictim, kVictimPort, kAck | kFin, seq, server.victim_ack).to_victim, 1);
    assert_int_equal(server.hear(kVictim, kVictimPort, kAck | kFin, seq, server.victim_ack).to_victim, 1);
    assert_int_equal(server.tcp.counters().challenges_held, 0);
    unsigned heard = 0;
    for (unsigned i = 0; i < 10000; ++i, server.now += kMicrosecond)
        heard += server.hear(kVictim, kVictimPort, kAck, kFirst, server.victim_ack, kLength).to_victim;
    assert_in_range(heard, 800, 1010);
}

// An attacker who has used up the victim's answers has not kept the victim from being heard.
void flood_keeps_no_data_away(void **)
{
    Server server;
    assert_int_equal(server.flood(kRst, kFirst + 100, 0), kAtOnce);
    assert_int_equal(server.hear(kVictim, kVictimPort, kAck, kFirst, server.victim_ack, 100).to_victim, 1);
    assert_int_equal(server.hear(kVictim, kVictimPort, kAck, kFirst, server.victim_ack, 100).to_victim, 1); // again
    std::uint8_t bytes[200];
    assert_int_equal(server.tcp.receive(server.now, server.victim, bytes), 100);
    assert_int_equal(server.hear(kVictim, kVictimPort, kRst, kFirst + 100, 0).to_victim, 0);
    assert_int_equal(server.tcp.counters().resets_in, 1);
}

// TIME-WAIT: each that waits counts for itself, too.
void time_wait_is_limited(void **)
{
    Server server;
    for (const auto &[id, from, port, ack] :
         {std::tuple{server.victim, kVictim, kVictimPort, server.victim_ack},
          std::tuple{server.attacker, kAttacker, kAttackerPort, server.attacker_ack}}) {
        server.tcp.close(server.now, id);
        server.hear(from, port, kAck, kFirst, ack + 1);
        server.hear(from, port, kAck | kFin, kFirst, ack + 1);
    }
    assert_int_equal(server.tcp.open_connections(), 0);
    assert_int_equal(server.flood(kAck, kFirst + 5000, server.victim_ack + 1, 10), kAtOnce);
    unsigned heard = 0;
    for (unsigned i = 0; i < kFlood; ++i, server.now += kBetween)
        heard += server.hear(kAttacker, kAttackerPort, kAck, kFirst + 5000, server.attacker_ack + 1, 10).to_attacker;
    assert_int_equal(heard, kAtOnce);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(attacker_learns_nothing), cmocka_unit_test(floods_are_answered_rarely),
        cmocka_unit_test(duplicates_are_answered), cmocka_unit_test(flood_keeps_no_data_away),
        cmocka_unit_test(time_wait_is_limited),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
