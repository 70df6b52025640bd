// SPDX-License-Identifier: BSD-2-Clause
// Fragments joined in any order, and every way in which a peer can make them not fit.
#include "prov/vma/test/inet/frames.hpp"

#include <algorithm>
#include <memory>

#include "prov/vma/src/inet/wire/reassembly.hpp"

namespace {

using namespace frames;

constexpr Nanos kStart = 1'000'000 * kSecond;

struct Cut { // a fragment: bytes [from, to) of a datagram
    std::size_t from;
    std::size_t to;
};

struct Joiner {
    explicit Joiner(bool six, std::uint32_t datagrams = 4)
        : ipv6(six), reassembler(std::make_unique<Reassembler>(datagrams))
    {
    }

    Joined join(const Frame &data, Cut cut, std::uint32_t id = 1)
    {
        const Frame part(data.begin() + static_cast<long>(cut.from), data.begin() + static_cast<long>(cut.to));
        return put(part, {id, static_cast<std::uint16_t>(cut.from), cut.to != data.size()});
    }

    Joined put(const Frame &data, FragmentInfo fragment)
    {
        Packet packet;
        packet.source = ipv6 ? kPeer6 : kPeer4;
        packet.target = ipv6 ? kOurs6 : kOurs4;
        packet.protocol = protocol;
        packet.traffic_class = traffic_class;
        packet.hop_limit = static_cast<std::uint8_t>(fragment.offset == 0 ? 7 : 99);
        packet.vlan = vlan;
        packet.info = {true, now};
        packet.payload = data;
        out = {};
        return reassembler->join(packet, fragment, now, out);
    }

    std::uint64_t counted(Joined joined) const
    {
        return reassembler->counters().joined[static_cast<std::size_t>(joined)];
    }

    const bool ipv6;
    Protocol protocol = Protocol::kUdp;
    std::uint8_t traffic_class = 0;
    std::uint16_t vlan = 0;
    Nanos now = kStart;
    Packet out;
    std::unique_ptr<Reassembler> reassembler;
};

void in_order_and_reversed(void **)
{
    const Frame data = bytes_of(4000);
    for (const bool ipv6 : {false, true}) {
        Joiner joiner(ipv6);
        assert_int_equal(joiner.join(data, {0, 1480}), Joined::kWaiting);
        assert_int_equal(joiner.join(data, {1480, 2960}), Joined::kWaiting);
        joiner.now += kSecond;
        assert_int_equal(joiner.join(data, {2960, 4000}), Joined::kWhole);
        assert_bytes(joiner.out.payload, data);
        assert_int_equal(joiner.out.protocol, Protocol::kUdp);
        assert_int_equal(joiner.out.hop_limit, 7);
        assert_false(joiner.out.info.checksums_good);
        assert_true(joiner.out.info.arrived == joiner.now);
        assert_int_equal(joiner.join(data, {2960, 4000}), Joined::kWaiting);
        assert_int_equal(joiner.join(data, {1480, 2960}), Joined::kWaiting);
        assert_int_equal(joiner.join(data, {0, 1480}), Joined::kWhole);
        assert_bytes(joiner.out.payload, data);
        assert_int_equal(joiner.out.hop_limit, 7);
        assert_int_equal(joiner.reassembler->waiting(), 0);
        assert_true(joiner.reassembler->deadline() == kNever);
    }
}

void any_order_with_repeats(void **)
{
    Random random;
    Joiner joiner(true);
    for (std::uint32_t round = 0; round < 2000; ++round) {
        const Frame data = bytes_of(9 + random(random(2) ? 3000 : 65527), round);
        const std::uint32_t step = 8 + random(3) * 400 + static_cast<std::uint32_t>(data.size() / 60);
        std::vector<Cut> cuts;
        for (std::size_t at = 0; at < data.size(); at = cuts.back().to)
            cuts.push_back({at, std::min<std::size_t>(data.size(), at + 8 + (random(step) & ~7u))});
        for (std::size_t i = cuts.size(); i > 1; --i)
            std::swap(cuts[i - 1], cuts[random(static_cast<std::uint32_t>(i))]);
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            const bool last = i + 1 == cuts.size();
            assert_int_equal(joiner.join(data, cuts[i], round), last ? Joined::kWhole : Joined::kWaiting);
            if (!last && random(4) == 0)
                assert_int_equal(joiner.join(data, cuts[random(static_cast<std::uint32_t>(i + 1))], round),
                                 Joined::kDuplicate);
        }
        assert_bytes(joiner.out.payload, data);
    }
    assert_int_equal(joiner.counted(Joined::kWhole), 2000);
}

void the_longest(void **)
{
    for (const bool ipv6 : {false, true}) {
        const Frame data = bytes_of(ipv6 ? 65535 : 65515);
        Joiner joiner(ipv6);
        for (std::size_t at = 0; at < 65504; at += 1424)
            assert_int_equal(joiner.join(data, {at, at + 1424}), Joined::kWaiting);
        Frame longer(data.begin() + 65504, data.end());
        longer.push_back(0);
        assert_int_equal(joiner.put(longer, {1, 65504, false}), Joined::kTooLong);
        assert_int_equal(joiner.join(data, {65504, data.size()}), Joined::kWhole);
        assert_bytes(joiner.out.payload, data);
        assert_int_equal(joiner.put(bytes_of(1480), {1, 65528, false}), Joined::kTooLong); // the ping of death
    }
}

void overlaps(void **)
{
    const Frame data = bytes_of(4000);
    for (const bool ipv6 : {false, true})
        for (const Cut &cut :
             {Cut{0, 808}, Cut{792, 1608}, Cut{1592, 2400}, Cut{0, 4000}, Cut{792, 2400}, Cut{1000, 2408}}) {
            Joiner joiner(ipv6);
            assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
            assert_int_equal(joiner.join(data, cut), Joined::kOverlap);
            // What comes later is dropped, too, so the rest can't be made a datagram of.
            assert_int_equal(joiner.join(data, {0, 800}), Joined::kAbandoned);
            assert_int_equal(joiner.join(data, {800, 1600}), Joined::kAbandoned);
            assert_int_equal(joiner.join(data, {1600, 4000}), Joined::kAbandoned);
            joiner.now += 60 * kSecond;
            joiner.reassembler->expire(joiner.now);
            assert_int_equal(joiner.reassembler->waiting(), 0);
            assert_int_equal(joiner.reassembler->counters().timed_out, 0); // it was counted before
        }
    Joiner joiner(false);
    Frame forged = data;
    forged[1000] ^= 1;
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kDuplicate);
    assert_int_equal(joiner.join(data, {808, 1592}), Joined::kDuplicate);
    assert_int_equal(joiner.join(forged, {800, 1600}), Joined::kOverlap);
    assert_int_equal(joiner.counted(Joined::kOverlap), 1);
}

void lengths_that_contradict(void **)
{
    const Frame data = bytes_of(2000);
    const Frame shorter = bytes_of(1600);
    Joiner joiner(true, 8);
    assert_int_equal(joiner.join(data, {1600, 2000}, 1), Joined::kWaiting);
    assert_int_equal(joiner.join(shorter, {800, 1600}, 1), Joined::kContradiction); // two ends
    assert_int_equal(joiner.join(data, {1600, 2000}, 2), Joined::kWaiting);
    assert_int_equal(joiner.put(bytes_of(8), {2, 2000, true}), Joined::kContradiction); // behind the end
    assert_int_equal(joiner.put(bytes_of(1600), {3, 800, true}), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {1600, 2000}, 3), Joined::kContradiction); // an end before what is there
    assert_int_equal(joiner.put({}, {4, 0, true}), Joined::kBadLength);
    assert_int_equal(joiner.put({}, {4, 8, false}), Joined::kBadLength);
    assert_int_equal(joiner.put(bytes_of(15), {4, 0, true}), Joined::kBadLength);
    assert_int_equal(joiner.reassembler->waiting(), 3);
}

void too_many_pieces(void **)
{
    const Frame data = bytes_of(65512);
    Joiner joiner(false);
    static_assert(Reassembler::kMaxPieces * 16 == 1024);
    for (std::size_t at = 0; at < 1024; at += 16)
        assert_int_equal(joiner.join(data, {at, at + 8}), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {1024, 1032}), Joined::kTooManyPieces);
    for (std::size_t at = 0; at < data.size() - 8; at += 8) // tiny ones that touch are no burden
        assert_int_equal(joiner.join(data, {at, at + 8}, 2), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {data.size() - 8, data.size()}, 2), Joined::kWhole);
}

void they_time_out(void **)
{
    const Frame data = bytes_of(2000);
    for (const bool ipv6 : {false, true}) {
        Joiner joiner(ipv6);
        const Nanos timeout = ipv6 ? 60 * kSecond : 30 * kSecond;
        assert_true(joiner.reassembler->deadline() == kNever);
        assert_int_equal(joiner.join(data, {0, 800}, 1), Joined::kWaiting);
        joiner.now += kSecond;
        assert_int_equal(joiner.join(data, {0, 800}, 2), Joined::kWaiting);
        assert_int_equal(joiner.join(data, {800, 1600}, 1), Joined::kWaiting); // gives no more time
        assert_true(joiner.reassembler->deadline() == kStart + timeout);
        joiner.reassembler->expire(kStart + timeout - 1);
        assert_int_equal(joiner.reassembler->waiting(), 2);
        joiner.now = kStart + timeout;
        assert_int_equal(joiner.join(data, {1600, 2000}, 1), Joined::kWaiting); // begins anew
        assert_int_equal(joiner.reassembler->counters().timed_out, 1);
        assert_true(joiner.reassembler->deadline() == kStart + kSecond + timeout);
        assert_int_equal(joiner.join(data, {800, 2000}, 2), Joined::kWhole);
        assert_true(joiner.reassembler->deadline() == kStart + 2 * timeout);
    }
}

void the_oldest_makes_room(void **)
{
    const Frame data = bytes_of(1600);
    Joiner joiner(false, 3);
    for (std::uint32_t id = 1; id <= 4; ++id)
        assert_int_equal(joiner.join(data, {0, 800}, id), Joined::kWaiting);
    assert_int_equal(joiner.reassembler->waiting(), 3);
    assert_int_equal(joiner.reassembler->counters().evicted, 1);
    for (std::uint32_t id = 2; id <= 4; ++id)
        assert_int_equal(joiner.join(data, {800, 1600}, id), Joined::kWhole);
    assert_int_equal(joiner.join(data, {800, 1600}, 1), Joined::kWaiting);
}

void datagrams_are_told_apart(void **)
{
    const Frame data = bytes_of(1600);
    Joiner joiner(false, 8);
    assert_int_equal(joiner.join(data, {0, 800}), Joined::kWaiting);
    joiner.protocol = Protocol::kTcp;
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
    joiner.protocol = Protocol::kUdp;
    joiner.vlan = 3;
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
    joiner.vlan = 0;
    assert_int_equal(joiner.join(data, {800, 1600}, 2), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWhole);
    assert_int_equal(joiner.reassembler->waiting(), 3);
}

void congestion_marks(void **) // RFC 3168, 5.3
{
    const Frame data = bytes_of(1600);
    Joiner joiner(false, 8);
    const auto both = [&](std::uint8_t first, std::uint8_t second, std::uint32_t id) {
        joiner.traffic_class = first;
        assert_int_equal(joiner.join(data, {0, 800}, id), Joined::kWaiting);
        joiner.traffic_class = second;
        return joiner.join(data, {800, 1600}, id);
    };
    assert_int_equal(both(0x42, 0x43, 1), Joined::kWhole);
    assert_int_equal(joiner.out.traffic_class, 0x43);
    assert_int_equal(both(0x43, 0x41, 2), Joined::kWhole);
    assert_int_equal(joiner.out.traffic_class, 0x43);
    assert_int_equal(both(0x40, 0x40, 3), Joined::kWhole);
    assert_int_equal(joiner.out.traffic_class, 0x40);
    assert_int_equal(both(0x40, 0x43, 4), Joined::kBadEcn);
    assert_int_equal(both(0x42, 0x40, 5), Joined::kBadEcn);
}

void headers_inside_ipv6(void **)
{
    Frame data = {6, 0, 1, 4, 0, 0, 0, 0};
    const Frame rest = bytes_of(1592);
    data.insert(data.end(), rest.begin(), rest.end());
    Joiner joiner(true);
    joiner.protocol = Protocol{60};
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {0, 800}), Joined::kWhole);
    assert_int_equal(joiner.out.protocol, Protocol::kTcp);
    assert_bytes(joiner.out.payload, rest);
    joiner.protocol = Protocol{44}; // a fragment within a fragment
    assert_int_equal(joiner.join(data, {800, 1600}), Joined::kWaiting);
    assert_int_equal(joiner.join(data, {0, 800}), Joined::kBadHeaders);
    assert_int_equal(joiner.join(data, {0, 800}), Joined::kAbandoned);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(in_order_and_reversed),
        cmocka_unit_test(any_order_with_repeats),
        cmocka_unit_test(the_longest),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(lengths_that_contradict),
        cmocka_unit_test(too_many_pieces),
        cmocka_unit_test(they_time_out),
        cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(datagrams_are_told_apart),
        cmocka_unit_test(congestion_marks),
        cmocka_unit_test(headers_inside_ipv6),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
