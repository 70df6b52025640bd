// SPDX-License-Identifier: BSD-2-Clause
// Generic receive offload: what is merged and what is not, and that it can't be noticed.
#include "fabtests/seed.hpp"
#include "prov/vma/test/inet/twins.hpp"

namespace {

using namespace vma::inet;
using namespace vma::inet::sim;

// What the quick acknowledgements of the beginning would hide.
void warm_up(Twins &twins, unsigned i = 0)
{
    for (unsigned n = 0; n < 20; ++n) {
        twins.add(kMss, i);
        twins.give();
    }
    while (twins.connection(i).receive.unacked != 0) {
        twins.add(kMss, i);
        twins.give();
    }
}

// ---- what is merged -------------------------------------------------------------------------------------------------

void a_run_is_one_segment(void **)
{
    Twins twins;
    warm_up(twins);
    const std::uint64_t before = twins.connection().segments_received;
    for (unsigned i = 0; i < 32; ++i)
        twins.add(kMss);
    const Told told = twins.give();
    assert_int_equal(twins.merged(), 32);
    assert_int_equal(twins.connection().segments_received - before, 32);
    assert_int_equal(told.events.size(), 1);
    assert_int_equal(told.segments.size(), 1);
    assert_int_equal(told.read.size(), 32 * kMss);
    assert_true(check(100, twins.next() - static_cast<Seq>(32 * kMss), told.read));
}

void one_segment_is_none(void **)
{
    Twins twins;
    twins.add(kMss);
    twins.give();
    assert_int_equal(twins.merged(), 0);
}

void off_is_off(void **)
{
    Twins twins(0);
    for (unsigned i = 0; i < 32; ++i)
        twins.add(kMss);
    twins.give();
    assert_int_equal(twins.merged(), 0);
}

void more_than_are_held(void **)
{
    Twins twins(32, 3);
    for (unsigned i = 0; i < 40; ++i)
        for (unsigned c = 0; c < 3; ++c)
            twins.add(100 + i, c);
    twins.give();
    assert_int_equal(twins.merged(), 120);
}

void only_so_many_streams(void **)
{
    Twins twins(2, 5);
    for (unsigned i = 0; i < 4; ++i)
        for (unsigned c = 0; c < 5; ++c)
            twins.add(500, c);
    twins.give();
    assert_int_equal(twins.merged(), 8);
}

// Segments of all sizes, PSH on any, acknowledgements and windows that move on.
void what_may_differ(void **)
{
    Twins twins;
    warm_up(twins);
    const std::uint8_t data[3000] = {};
    for (unsigned which = 0; which < 2; ++which)
        assert_int_equal(twins.tcp(which).send(kSecond, twins.id(), data), sizeof data);
    twins.compare();
    const Seq una = twins.connection().una;
    for (unsigned i = 0; i < 8; ++i) {
        Segment segment = twins.plain(1 + 200 * i);
        segment.flags = i % 2 == 0 ? kPsh | kAck : kAck;
        segment.ack = una + 300 * i;
        segment.window = static_cast<std::uint16_t>(1000 - i);
        twins.add(segment, 1 + 200 * i);
    }
    twins.give();
    assert_int_equal(twins.merged(), 8);
    assert_int_equal(twins.connection().una, una + 2100);
    assert_int_equal(twins.connection().window, 993 << 7);
}

void acknowledgements_go_forward(void **)
{
    Twins twins;
    warm_up(twins);
    const std::uint8_t data[3000] = {};
    for (unsigned which = 0; which < 2; ++which)
        assert_int_equal(twins.tcp(which).send(kSecond, twins.id(), data), sizeof data);
    twins.compare();
    const Seq una = twins.connection().una;
    for (const unsigned ahead : {0U, 2000U, 1000U, 1500U}) {
        Segment segment = twins.plain(100);
        segment.ack = una + ahead;
        twins.add(segment, 100);
    }
    twins.give();
    assert_int_equal(twins.merged(), 2); // the others are of the past by then
    assert_int_equal(twins.connection().una, una + 2000);
}

// ---- what ends a run ------------------------------------------------------------------------------------------------

struct Odd {
    const char *name;
    void (*segment)(Segment &);
    void (*packet)(Packet &);
    std::size_t len = 700;
};

constexpr Odd kOdds[] = {
    {"FIN", [](Segment &s) { s.flags |= kFin; }, nullptr},
    {"RST", [](Segment &s) { s.flags |= kRst; }, nullptr},
    {"SYN", [](Segment &s) { s.flags |= kSyn; }, nullptr},
    {"URG", [](Segment &s) { s.flags |= kUrg; }, nullptr},
    {"ECE", [](Segment &s) { s.flags |= kEce; }, nullptr},
    {"CWR", [](Segment &s) { s.flags |= kCwr; }, nullptr},
    {"no ACK", [](Segment &s) { s.flags = kPsh; }, nullptr},
    {"a hole", [](Segment &s) { s.seq += 1; }, nullptr},
    {"an overlap", [](Segment &s) { s.seq -= 1; }, nullptr},
    {"again", [](Segment &s) { s.seq -= 700; }, nullptr},
    {"no data", [](Segment &) {}, nullptr, 0},
    {"an old acknowledgement", [](Segment &s) { s.ack -= 1; }, nullptr},
    {"another time", [](Segment &s) { s.options.timestamp += 1; }, nullptr},
    {"another echo", [](Segment &s) { s.options.timestamp_echo -= 1; }, nullptr},
    {"no time stamps", [](Segment &s) { s.options.has_timestamps = false; }, nullptr},
    {"SACK",
     [](Segment &s) {
         s.options.sack[s.options.sacks++] = {s.ack + 1, s.ack + 2};
     },
     nullptr},
    {"MSS", [](Segment &s) { s.options.mss = 1000; }, nullptr},
    {"CE", nullptr, [](Packet &p) { p.traffic_class |= kEcnExperienced; }},
    {"not capable of ECN", nullptr, [](Packet &p) { p.traffic_class = 0; }},
    {"another class", nullptr, [](Packet &p) { p.traffic_class |= 0x20; }},
    {"a VLAN", nullptr, [](Packet &p) { p.vlan = 5; }},
    {"another station", nullptr, [](Packet &p) { p.source_mac.bytes[5] = 1; }},
    {"a wrong checksum", nullptr, [](Packet &p) { const_cast<std::uint8_t &>(p.payload[40]) ^= 1; }},
};

// Two that fit, the odd one, two that follow it: in the order that they came, and never merged with it.
void what_ends_a_run(void **)
{
    for (const Odd &odd : kOdds) {
        for (const bool ecn : {false, true}) {
            TcpSettings settings;
            settings.ecn = ecn;
            Twins twins(32, 1, settings);
            warm_up(twins);
            twins.add(700);
            twins.add(700);
            Segment segment = twins.plain(odd.len);
            if (odd.segment != nullptr)
                odd.segment(segment);
            Packet &packet = twins.add(segment, odd.len);
            if (odd.packet != nullptr)
                odd.packet(packet);
            const std::uint64_t before = twins.merged();
            twins.give();
            if (twins.merged() - before != 2)
                print_error("%s: %d merged\n", odd.name, static_cast<int>(twins.merged() - before));
            assert_int_equal(twins.merged() - before, 2);
        }
    }
}

void marks_are_counted(void **)
{
    TcpSettings settings;
    settings.ecn = true;
    Twins twins(32, 1, settings);
    warm_up(twins);
    for (unsigned i = 0; i < 4; ++i)
        twins.add(100).traffic_class = kEcnExperienced;
    const Told told = twins.give();
    assert_int_equal(twins.merged(), 4);
    assert_int_equal(told.segments.size(), 1); // at once, although little has come
    assert_true((told.segments[0][13] & kEce) != 0);
}

// ---- acknowledgements -----------------------------------------------------------------------------------------------

void acknowledgements(void **)
{
    struct Case {
        std::size_t len;
        unsigned count;
        bool at_once;
    };
    for (const Case &c : {Case{kMss, 2, true}, Case{kMss, 3, true}, Case{724, 3, false}, Case{724, 4, true},
                          Case{100, 28, false}, Case{100, 29, true}, Case{1, 64, false}}) {
        Twins twins;
        warm_up(twins);
        for (unsigned i = 0; i < c.count; ++i)
            twins.add(c.len);
        assert_int_equal(twins.give().segments.size(), c.at_once);
        assert_int_equal(twins.merged(), c.count);
        twins.pass(40 * kMillisecond);
        assert_int_equal(twins.compare().segments.size(), !c.at_once); // the timer
    }
    TcpSettings quick;
    quick.quick_ack = true;
    Twins twins(32, 1, quick);
    twins.add(1);
    twins.add(1);
    assert_int_equal(twins.give().segments.size(), 1);
}

// ---- connections that don't wait for it -----------------------------------------------------------------------------

void beyond_the_window(void **)
{
    TcpSettings settings;
    settings.receive_buffer = 10000;
    Twins twins(32, 1, settings);
    twins.reads_ = false;
    for (unsigned n = 0; n < 4; ++n) {
        for (unsigned i = 0; i < 3; ++i)
            twins.add(kMss);
        twins.give();
    }
    assert_true(twins.merged() != 0);
    assert_true(twins.connection().bytes_received <= 10000);
}

void without_memory(void **)
{
    Twins twins(32, 2, {}, 16);
    twins.reads_ = false;
    std::uint64_t failed = 0;
    for (unsigned n = 0; n < 20; ++n) {
        for (unsigned i = 0; i < 16; ++i)
            twins.add(kMss, n & 1);
        twins.give();
        failed = twins.tcp().counters().no_memory;
        twins.next(n & 1) = twins.connection(n & 1).receive.next; // the peer goes back
    }
    assert_true(failed != 0 && twins.merged() != 0);
}

void nobody_has_the_flow(void **)
{
    Twins twins;
    for (unsigned i = 0; i < 3; ++i) {
        Segment segment = twins.plain(100);
        segment.source_port = 9;
        twins.add(segment, 100);
    }
    assert_int_equal(twins.give().segments.size(), 3); // resets
    assert_int_equal(twins.merged(), 0);
}

// ---- anything -------------------------------------------------------------------------------------------------------

// The next segment of a connection, now and then an odd one.
void add_any(Twins &twins, Random &random, unsigned i)
{
    constexpr std::size_t kSizes[] = {kMss, kMss, kMss, 64, 64, 700, 1, 0};
    const std::size_t len = kSizes[random.below(std::size(kSizes))];
    Segment segment = twins.plain(len, i);
    if (random.chance(0.1))
        segment.seq += static_cast<Seq>(random.below(4000)) - 2000;
    if (random.chance(0.3))
        segment.flags |= kPsh;
    const Odd *odd = random.chance(0.05) ? &kOdds[random.below(std::size(kOdds))] : nullptr;
    if (odd != nullptr && odd->segment != nullptr)
        odd->segment(segment);
    Packet &packet = twins.add(segment, len);
    if (odd != nullptr && odd->packet != nullptr)
        odd->packet(packet);
}

void any_batches(void **)
{
    Random random(vma::test::seed());
    std::uint64_t merged = 0;
    for (unsigned round = 0; round < 200; ++round) {
        TcpSettings settings;
        settings.ecn = random.chance(0.5);
        settings.timestamps = random.chance(0.5);
        settings.sack = random.chance(0.8);
        settings.quick_ack = random.chance(0.1);
        settings.receive_buffer = random.chance(0.3) ? 20000 : 4U << 20;
        settings.most_mss = random.chance(0.3) ? 536 : 0; // so that longer ones come than were reckoned with
        const bool short_of_memory = random.chance(0.3);  // by one, as else the order tells who gets the last of it
        const unsigned connections = short_of_memory ? 1 : 3;
        Twins twins(1 + static_cast<std::uint32_t>(random.below(4)), connections, settings,
                    short_of_memory ? 40 : 4096);
        for (unsigned n = 0; n < 60; ++n) {
            twins.reads_ = random.chance(0.8);
            for (auto count = static_cast<unsigned>(random.below(40)); count != 0; --count) {
                const auto i = static_cast<unsigned>(random.below(connections) * random.below(2));
                if (twins.is_open(i))
                    add_any(twins, random, i);
            }
            twins.give();
            twins.pass(random.below(60 * kMillisecond));
            for (unsigned i = 0; i < connections; ++i)
                if (twins.is_open(i) && random.chance(0.7))
                    twins.next(i) = twins.connection(i).receive.next;
        }
        merged += twins.merged();
    }
    print_message("# %llu segments merged\n", static_cast<unsigned long long>(merged));
    assert_true(merged > 1000);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_one_segment),
        cmocka_unit_test(one_segment_is_none),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(more_than_are_held),
        cmocka_unit_test(only_so_many_streams),
        cmocka_unit_test(what_may_differ),
        cmocka_unit_test(acknowledgements_go_forward),
        cmocka_unit_test(what_ends_a_run),
        cmocka_unit_test(marks_are_counted),
        cmocka_unit_test(acknowledgements),
        cmocka_unit_test(beyond_the_window),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(nobody_has_the_flow),
        cmocka_unit_test(any_batches),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
