// SPDX-License-Identifier: BSD-2-Clause
// What a sweep's sides and a mesh's members tell each other, as bytes, and the bytes of their operations.
#include "fabtests/unit.hpp"

#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/measure/step.hpp"
#include "util/vma_lat/roles/mesh.hpp"

#include <cstring>
#include <random>
#include <vector>

namespace {

using namespace vma::lat;

Step a_step()
{
    Step step;
    step.operation = Operation::kWriteImm;
    step.progress = {Model::kEpoll, false, true};
    step.verify = true;
    step.size = 4096;
    step.connections = 7;
    step.window = 33;
    step.warm_up = 10;
    step.single = 100;
    step.streamed = 1000;
    step.seed = 0x123456789abcdef0;
    step.provider = "vma";
    step.domain = "local";
    return step;
}

// Every part of the bytes is refused, and every byte too many.
template <typename T> void only_whole(const Bytes &bytes)
{
    T out;
    assert_false(decode(bytes, out).has_value());
    for (std::size_t length = 0; length < bytes.size(); ++length)
        assert_true(decode(std::span(bytes).first(length), out).has_value());
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    assert_true(decode(longer, out).has_value());
}

void step_round_trip(void **)
{
    Step out;
    assert_false(decode(encode(a_step()), out).has_value());
    assert_true(encode(out) == encode(a_step()));
    assert_true(out.operation == Operation::kWriteImm && out.progress.wait == Model::kEpoll);
    assert_true(!out.progress.shared && out.progress.each && out.verify);
    assert_int_equal(out.streamed, 1000);
    assert_true(out.seed == 0x123456789abcdef0);
    assert_string_equal(out.domain.c_str(), "local");
    only_whole<Step>(encode(a_step()));
}

void step_fields_are_checked(void **)
{
    Step out;
    const auto refused = [&](auto &&change) {
        Step step = a_step();
        change(step);
        return decode(encode(step), out).has_value();
    };
    assert_false(refused([](Step &) {}));
    assert_true(refused([](Step &s) { s.operation = static_cast<Operation>(4); }));
    assert_true(refused([](Step &s) { s.progress.wait = static_cast<Model>(3); }));
    assert_true(refused([](Step &s) { s.size = 0; }));
    assert_true(refused([](Step &s) { s.size = kMaxSize + 1; }));
    assert_true(refused([](Step &s) { s.connections = 0; }));
    assert_true(refused([](Step &s) { s.connections = kMaxConnections + 1; }));
    assert_true(refused([](Step &s) { s.window = 0; }));
    assert_true(refused([](Step &s) { s.window = kMaxWindow + 1; }));
    assert_true(refused([](Step &s) { s.single = kMaxSingle + 1; }));
    assert_true(refused([](Step &s) { s.warm_up = UINT32_MAX; }));
    assert_true(refused([](Step &s) { s.streamed = kMaxStreamed + 1; }));
    assert_true(refused([](Step &s) { s.connections = kMaxConnections, s.single = kMaxSingle; }));
    assert_true(refused([](Step &s) { s.connections = kMaxConnections, s.size = kMaxSize; }));
    assert_true(refused([](Step &s) { s.provider.clear(); }));
    assert_true(refused([](Step &s) { s.provider = std::string(kMaxName + 1, 'x'); }));
    assert_true(refused([](Step &s) { s.domain = std::string(kMaxName + 1, 'x'); }));
}

void progress_models_that_go_together(void **)
{
    const auto fine = [](Model wait, bool shared, bool each, std::uint32_t connections) {
        return !fault_of(Progress{wait, shared, each}, connections).has_value();
    };
    for (const Model wait : {Model::kPoll, Model::kChannel, Model::kEpoll}) {
        assert_true(fine(wait, true, false, 9));
        assert_true(fine(wait, false, true, 9));
        assert_true(fine(wait, false, false, 1));
        assert_false(fine(wait, true, true, 9));
        assert_int_equal(fine(wait, false, false, 2), wait != Model::kChannel);
    }
    assert_non_null(std::strstr(fault_of(Progress{Model::kChannel, false, false}, 2)->text.c_str(), "--wait epoll"));
}

void regions_and_tallies_round_trip(void **)
{
    std::vector<Region> out(5);
    const std::vector<Region> regions = {{1, UINT64_MAX, 1}, {0x7fff00000000, 3, kMaxWindow}};
    assert_false(decode(encode(regions), out).has_value());
    assert_true(out.size() == 2 && out[0].key == UINT64_MAX && out[1].address == 0x7fff00000000);
    only_whole<std::vector<Region>>(encode(regions));
    assert_true(decode(encode(std::vector<Region>{{1, 1, 0}}), out).has_value());
    assert_true(decode(encode(std::vector<Region>{{1, 1, kMaxWindow + 1}}), out).has_value());
    assert_true(decode(encode(std::vector<Region>(kMaxConnections + 1)), out).has_value());
    Tally tally;
    assert_false(decode(encode(Tally{5, 2, "byte 3 is\x07 wrong"}), tally).has_value());
    assert_true(tally.arrived == 5 && tally.damaged == 2);
    assert_string_equal(tally.first.c_str(), "byte 3 is? wrong");
    only_whole<Tally>(encode(Tally{5, 2, "words"}));
}

Hello a_hello()
{
    Hello hello;
    hello.rank = 2;
    hello.plan.processes = 4;
    hello.plan.provider = "vma";
    hello.port = 1234;
    return hello;
}

void hellos_have_to_agree(void **)
{
    Hello out;
    assert_false(decode(encode(a_hello()), out).has_value());
    assert_true(out.rank == 2 && out.port == 1234 && out.plan.count == a_hello().plan.count);
    assert_false(disagreement(a_hello(), out).has_value());
    only_whole<Hello>(encode(a_hello()));
    const auto refused = [&](auto &&change) {
        Hello hello = a_hello();
        change(hello);
        return decode(encode(hello), out).has_value() || disagreement(a_hello(), out).has_value();
    };
    assert_false(refused([](Hello &) {}));
    assert_true(refused([](Hello &h) { h.rank = 4; }));
    assert_true(refused([](Hello &h) { h.plan.processes = kMaxConnections + 1; }));
    assert_true(refused([](Hello &h) { h.plan.processes = 5; }));
    assert_true(refused([](Hello &h) { ++h.plan.size; }));
    assert_true(refused([](Hello &h) { ++h.plan.window; }));
    assert_true(refused([](Hello &h) { ++h.plan.count; }));
    assert_true(refused([](Hello &h) { ++h.plan.seed; }));
    assert_true(refused([](Hello &h) { h.plan.provider = "tcp"; }));
}

// Whatever comes, every decoder returns, and a step that is taken keeps the rules.
void random_bytes(void **)
{
    const unsigned seed = std::random_device()();
    print_message("# seed %u\n", seed);
    std::mt19937 random(seed);
    const Bytes step = encode(a_step());
    const Bytes hello = encode(a_hello());
    for (int round = 0; round < 20000; ++round) {
        Bytes bytes = round % 3 == 0 ? step : hello;
        if (round % 3 == 2)
            bytes.resize(random() % 80);
        for (unsigned i = 0; i < 1 + random() % 4 && !bytes.empty(); ++i)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        Step out;
        std::vector<Region> regions;
        Tally tally;
        Hello said;
        if (!decode(bytes, out))
            assert_false(fault_of(out).has_value());
        if (!decode(bytes, regions))
            assert_true(encode(regions) == bytes);
        if (!decode(bytes, tally))
            assert_true(encode(tally).size() == bytes.size());
        if (!decode(bytes, said))
            assert_true(said.rank < said.plan.processes && said.plan.processes <= kMaxConnections);
    }
}

void pattern_shows_each_wrong_byte(void **)
{
    for (const std::size_t size : {1UL, 7UL, 8UL, 9UL, 100UL, 4099UL}) {
        std::vector<std::byte> bytes(size);
        fill(bytes, 5, 17);
        assert_false(compare(bytes, 5, 17).has_value());
        for (std::size_t i = 0; i < size; ++i) {
            const std::byte right = bytes[i];
            bytes[i] ^= std::byte{0x10};
            const auto wrong = compare(bytes, 5, 17);
            assert_true(wrong.has_value() && wrong->at == i && wrong->expected == right && wrong->came == bytes[i]);
            bytes[i] = right;
        }
    }
}

void patterns_differ(void **)
{
    std::vector<std::byte> bytes(64);
    fill(bytes, derive(1, 2, 3), 4);
    for (const std::uint64_t seed : {derive(1, 3, 2), derive(2, 2, 3), derive(1, 2, 4)})
        assert_true(compare(bytes, seed, 4).has_value());
    assert_true(compare(bytes, derive(1, 2, 3), 5).has_value());
    // What lies at the wrong place is wrong, too.
    std::vector<std::byte> moved(1 << 16);
    fill(moved, 1, 1);
    const std::vector<std::byte> whole = moved;
    std::copy_n(whole.begin(), 64, moved.begin() + 2048);
    const auto wrong = compare(moved, 1, 1);
    assert_true(wrong.has_value() && wrong->at >= 2048 && wrong->at < 2048 + 64);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(step_round_trip),
        cmocka_unit_test(step_fields_are_checked),
        cmocka_unit_test(progress_models_that_go_together),
        cmocka_unit_test(regions_and_tallies_round_trip),
        cmocka_unit_test(hellos_have_to_agree),
        cmocka_unit_test(random_bytes),
        cmocka_unit_test(pattern_shows_each_wrong_byte),
        cmocka_unit_test(patterns_differ),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
