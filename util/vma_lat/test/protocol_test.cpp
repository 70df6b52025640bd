// SPDX-License-Identifier: BSD-2-Clause
// What vma_lat makes of bytes from the wire: the right ones come back as they were, everything else is refused.
#include "fabtests/unit.hpp"

#include "util/vma_lat/measure/protocol.hpp"

#include <random>

namespace {

using namespace vma::lat;

Plan a_plan()
{
    Plan plan;
    plan.kind = Kind::kFabricMsg;
    plan.test = Test::kUnderLoad;
    plan.wait = Wait::kEpoll;
    plan.check = true;
    plan.session = 0xabcd;
    plan.size = 1000;
    plan.sockets = 7;
    plan.provider = "vma";
    return plan;
}

Report a_report()
{
    Report report;
    report.counts = {1, 2, 3, 4, 5, 6, 7, 8, 9ULL << 60};
    report.side.library = true;
    report.side.user = 33;
    report.side.network = 4026531840;
    Way way;
    way.carrier = Carrier::kLocal;
    way.sockets = 7;
    way.other_user = way.introduced = true;
    way.user = 65534;
    way.device = "local";
    way.bytes = 1ULL << 40;
    way.kernel_bytes = 1000;
    report.side.ways.push_back(way);
    Way other;
    other.carrier = Carrier::kKernel;
    other.reason = "vmad's rules keep the two processes apart";
    report.side.ways.push_back(other);
    return report;
}

// All of it, and no byte less or more.
template <typename T> void only_whole(const Bytes &bytes)
{
    T out{};
    assert_false(decode(bytes, out).has_value());
    for (std::size_t length = 0; length < bytes.size(); ++length)
        assert_true(decode(std::span(bytes).first(length), out).has_value());
    Bytes longer = bytes;
    longer.push_back(std::byte{});
    assert_true(decode(longer, out).has_value());
}

void header_round_trip(void **)
{
    Header out;
    const auto bytes = encode_header({Type::kResult, kMaxBody});
    assert_false(decode_header(bytes, out).has_value());
    assert_true(out.type == Type::kResult);
    assert_int_equal(out.length, kMaxBody);
}

void header_refused(void **)
{
    const auto good = encode_header({Type::kPlan, 10});
    Header out;
    for (const std::size_t place : {0UL, 3UL, 4UL, 5UL, 6UL, 7UL, 8UL}) { // magic, version, type, length's top
        auto bad = good;
        bad[place] = std::byte{0x7f};
        const Failure failure = decode_header(bad, out);
        assert_true(failure.has_value());
        assert_int_equal(failure->status, kExitServer);
    }
    assert_true(decode_header(encode_header({Type::kPlan, kMaxBody + 1}), out).has_value());
    assert_true(decode_header(encode_header({static_cast<Type>(0), 0}), out).has_value());
}

void plan_round_trip(void **)
{
    const Plan plan = a_plan();
    Plan out;
    assert_false(decode(encode(plan), out).has_value());
    assert_true(out.kind == plan.kind && out.test == plan.test && out.wait == plan.wait && out.check);
    assert_int_equal(out.session, plan.session);
    assert_int_equal(out.size, plan.size);
    assert_int_equal(out.sockets, plan.sockets);
    assert_string_equal(out.provider.c_str(), "vma");
    assert_true(out.group.empty());
    only_whole<Plan>(encode(plan));
}

void plan_fields_are_checked(void **)
{
    Plan out;
    const auto refused = [&](auto &&change) {
        Plan plan = a_plan();
        change(plan);
        return decode(encode(plan), out).has_value();
    };
    assert_false(refused([](Plan &) {}));
    assert_true(refused([](Plan &p) { p.kind = static_cast<Kind>(4); }));
    assert_true(refused([](Plan &p) { p.test = static_cast<Test>(3); }));
    assert_true(refused([](Plan &p) { p.wait = static_cast<Wait>(5); }));
    assert_true(refused([](Plan &p) { p.size = kMinSize - 1; }));
    assert_true(refused([](Plan &p) { p.size = kMaxSize + 1; }));
    assert_true(refused([](Plan &p) { p.sockets = 0; }));
    assert_true(refused([](Plan &p) { p.sockets = kMaxSockets + 1; }));
    assert_true(refused([](Plan &p) { p.provider.clear(); }));
    assert_true(refused([](Plan &p) { p.provider = std::string(kMaxName + 1, 'x'); }));
    assert_true(refused([](Plan &p) { p.group = "239.1.1.1"; }));
    const auto udp = [](Plan &p) {
        p.kind = Kind::kUdp;
        p.provider.clear();
    };
    assert_false(refused(udp));
    assert_true(refused([&](Plan &p) { udp(p), p.size = kMaxDatagram + 1; }));
    assert_true(refused([&](Plan &p) { udp(p), p.provider = "vma"; }));
    assert_true(refused([&](Plan &p) { udp(p), p.wait = Wait::kRecvfrom; }));
    assert_true(refused([&](Plan &p) { udp(p), p.group = "239.1.1.1"; }));
    assert_false(refused([&](Plan &p) { udp(p), p.group = "239.1.1.1", p.data_port = 65529; }));
    assert_true(refused([&](Plan &p) { udp(p), p.group = "239.1.1.1", p.data_port = 65530; }));
}

void text_is_made_printable(void **)
{
    std::string out;
    assert_false(decode(encode(std::string("a\x1b[31mb")), out).has_value());
    assert_string_equal(out.c_str(), "a?[31mb");
    assert_false(decode(encode(std::string(5000, 'x')), out).has_value());
    assert_int_equal(out.size(), 1000);
    only_whole<std::string>(encode(std::string("text")));
    const Bytes too_long(3 + 1001, std::byte{3}); // says 0x0303
    assert_true(decode(too_long, out).has_value());
}

void places_round_trip(void **)
{
    Places places;
    places.ports = {1, 2, 65535};
    places.addresses = {Bytes(16, std::byte{9}), Bytes(), Bytes(kMaxAddress, std::byte{1})};
    Places out;
    out.ports = {9};
    out.addresses = {Bytes(1)};
    assert_false(decode(encode(places), out).has_value());
    assert_true(out.ports == places.ports);
    assert_true(out.addresses == places.addresses);
    only_whole<Places>(encode(places));
    places.addresses.emplace_back(kMaxAddress + 1);
    assert_true(decode(encode(places), out).has_value());
    places.addresses.clear();
    places.ports.resize(kMaxSockets + 1);
    assert_true(decode(encode(places), out).has_value());
}

void report_round_trip(void **)
{
    const Report report = a_report();
    Report out;
    assert_false(decode(encode(report), out).has_value());
    assert_int_equal(out.counts.sent, 1);
    assert_int_equal(out.counts.foreign, 6);
    assert_true(out.counts.last_ns == 9ULL << 60);
    assert_true(out.side.library && out.side.user == 33 && out.side.network == 4026531840);
    assert_int_equal(out.side.ways.size(), 2);
    for (std::size_t i = 0; i < 2; ++i)
        assert_string_equal(text_of(out.side.ways[i]).c_str(), text_of(report.side.ways[i]).c_str());
    assert_int_equal(out.side.ways[0].sockets, 7);
    only_whole<Report>(encode(report));
}

void report_fields_are_checked(void **)
{
    Report out;
    const auto refused = [&](auto &&change) {
        Report report = a_report();
        change(report);
        return decode(encode(report), out).has_value();
    };
    assert_false(refused([](Report &) {}));
    assert_true(refused([](Report &r) { r.counts.last_ns = r.counts.first_ns - 1; }));
    assert_true(refused([](Report &r) { r.side.ways[0].carrier = static_cast<Carrier>(5); }));
    assert_false(refused([](Report &r) { r.side.ways.resize(kMostWays); }));
    assert_true(refused([](Report &r) { r.side.ways.resize(kMostWays + 1); }));
    assert_false(refused([](Report &r) { r.side.ways[1].reason = std::string(500, '\x1b'); }));
    assert_true(out.side.ways[1].reason == std::string(kMaxReason, '?'));
}

// Whatever comes, every decoder returns, and a plan that is taken keeps the rules.
void random_bytes(void **)
{
    const unsigned seed = std::random_device()();
    print_message("# seed %u\n", seed);
    std::mt19937 random(seed);
    const Bytes plan = encode(a_plan());
    const Bytes report = encode(a_report());
    for (int round = 0; round < 20000; ++round) {
        Bytes bytes = round % 4 == 3 ? report : plan;
        if (round % 2 == 0)
            bytes.resize(random() % 80);
        for (unsigned i = 0; i < 1 + random() % 4 && !bytes.empty(); ++i)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        Plan out;
        Places places;
        Report result;
        std::string text;
        if (!decode(bytes, out))
            assert_false(fault_of(out).has_value());
        if (!decode(bytes, places))
            assert_true(encode(places) == bytes);
        if (!decode(bytes, result))
            assert_int_equal(encode(result).size(), bytes.size());
        if (!decode(bytes, text))
            assert_int_equal(text.size() + 2, bytes.size());
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(header_round_trip),      cmocka_unit_test(header_refused),
        cmocka_unit_test(plan_round_trip),        cmocka_unit_test(plan_fields_are_checked),
        cmocka_unit_test(text_is_made_printable), cmocka_unit_test(places_round_trip),
        cmocka_unit_test(report_round_trip),      cmocka_unit_test(report_fields_are_checked),
        cmocka_unit_test(random_bytes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
