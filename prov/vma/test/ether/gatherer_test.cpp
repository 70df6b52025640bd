// SPDX-License-Identifier: BSD-2-Clause
// Frames of several buffers: put together as they are, whatever their buffers; what is too long or broken is thrown
// away as a whole, and nothing of it is in the next one.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ether/nic/gatherer.hpp"

using namespace vma::ether;
using Took = Gatherer::Took;
using Bytes = std::vector<std::uint8_t>;

namespace {

Bytes pattern(std::size_t size, unsigned seed)
{
    Bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = static_cast<std::uint8_t>(i * 7 + (i >> 8) + seed);
    return made;
}

// The frame in parts of that size; what the last one gave.
Took give(Gatherer &gatherer, std::span<const std::uint8_t> frame, std::size_t part)
{
    while (frame.size() > part) {
        assert_int_equal(static_cast<int>(gatherer.take(frame.first(part), true)), static_cast<int>(Took::kPart));
        assert_true(gatherer.is_gathering());
        frame = frame.subspan(part);
    }
    const Took took = gatherer.take(frame, false);
    assert_false(gatherer.is_gathering());
    return took;
}

void assert_frame(std::span<const std::uint8_t> got, const Bytes &expected)
{
    assert_int_equal(got.size(), expected.size());
    assert_memory_equal(got.data(), expected.data(), expected.size());
}

void puts_a_frame_together(void **)
{
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    for (const std::size_t size : {1u, 3840u, 3841u, 9014u, Gatherer::kLongest}) {
        gatherer.forget();
        assert_true(give(gatherer, pattern(size, 1), 3840) == Took::kFrame);
        assert_frame(gatherer.frame(), pattern(size, 1));
    }
}

void frames_of_a_burst_stay_until_the_next(void **)
{
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    std::vector<std::span<std::uint8_t>> burst;
    for (unsigned i = 0; gatherer.has_room(); ++i) {
        assert_true(give(gatherer, pattern(9014, i), 3840) == Took::kFrame);
        burst.push_back(gatherer.frame());
    }
    assert_true(burst.size() >= 16);
    for (unsigned i = 0; i < burst.size(); ++i)
        assert_frame(burst[i], pattern(9014, i));
    gatherer.forget();
    assert_true(gatherer.has_room());
}

void a_frame_goes_on_in_the_next_burst(void **)
{
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    const Bytes frame = pattern(9014, 3);
    for (int i = 0; i < 10; ++i) { // behind one of the burst before, which is forgotten
        assert_true(give(gatherer, pattern(100, 9), 64) == Took::kFrame);
        assert_true(gatherer.take(std::span(frame).first(3840), true) == Took::kPart);
        gatherer.forget();
        assert_true(gatherer.take(std::span(frame).subspan(3840, 3840), true) == Took::kPart);
        gatherer.forget();
        assert_true(gatherer.take(std::span(frame).subspan(7680), false) == Took::kFrame);
        assert_frame(gatherer.frame(), frame);
        gatherer.forget();
    }
}

void too_long_is_thrown_away(void **)
{
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    assert_true(give(gatherer, pattern(Gatherer::kLongest + 1, 1), 4096) == Took::kDropped);
    const Bytes part = pattern(4096, 2);
    for (int i = 0; i < 100'000; ++i) // no end of it
        assert_true(gatherer.take(part, true) == Took::kPart);
    assert_true(gatherer.take(part, false) == Took::kDropped);
    assert_true(give(gatherer, pattern(9014, 5), 3840) == Took::kFrame);
    assert_frame(gatherer.frame(), pattern(9014, 5));
}

void a_part_of_nobody_spoils_its_frame_only(void **)
{
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    const Bytes part = pattern(1000, 1);
    for (int bad = 0; bad < 3; ++bad) { // the first, one amid, the last
        for (int i = 0; i < 3; ++i) {
            if (i == bad)
                gatherer.spoil();
            const Took took = gatherer.take(i == bad ? std::span<const std::uint8_t>() : part, i != 2);
            assert_true(took == (i == 2 ? Took::kDropped : Took::kPart));
        }
        assert_true(give(gatherer, pattern(2000, 4), 700) == Took::kFrame);
        assert_frame(gatherer.frame(), pattern(2000, 4));
    }
}

void any_parts_at_all(void **)
{
    const unsigned seed = std::random_device{}();
    print_message("seed %u\n", seed);
    std::mt19937 random(seed);
    Gatherer gatherer;
    assert_int_equal(gatherer.open(), 0);
    const Bytes source = pattern(1 << 17, 0);
    Bytes expected;
    bool spoilt = false;
    for (int i = 0; i < 100'000; ++i) {
        if (!gatherer.has_room() || random() % 8 == 0)
            gatherer.forget();
        const std::size_t size = random() % 64 == 0 ? random() % source.size() : random() % 5000;
        const std::span<const std::uint8_t> part(&source[random() % (source.size() - size + 1)], size);
        const bool more = random() % 4 != 0;
        if (random() % 64 == 0) {
            gatherer.spoil();
            spoilt = true;
        }
        expected.insert(expected.end(), part.begin(), part.end());
        spoilt = spoilt || expected.size() > Gatherer::kLongest;
        const Took took = gatherer.take(part, more);
        assert_true(took == (more ? Took::kPart : spoilt ? Took::kDropped : Took::kFrame));
        if (more)
            continue;
        if (!spoilt)
            assert_frame(gatherer.frame(), expected);
        expected.clear();
        spoilt = false;
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(puts_a_frame_together),
        cmocka_unit_test(frames_of_a_burst_stay_until_the_next),
        cmocka_unit_test(a_frame_goes_on_in_the_next_burst),
        cmocka_unit_test(too_long_is_thrown_away),
        cmocka_unit_test(a_part_of_nobody_spoils_its_frame_only),
        cmocka_unit_test(any_parts_at_all),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
