// SPDX-License-Identifier: BSD-2-Clause
// Times of one clock as another has them: clocks that drift, are read badly, are set; and what VMA_HW_TS_CONVERSION
// comes to with the devices that there are.
#include "fabtests/unit.hpp"

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>

#include "compat/src/base/time_line.hpp"
#include "compat/src/engine/devices/device_time.hpp"
#include "fabtests/seed.hpp"

using namespace vma::sock;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kEpoch = INT64_C(1'700'000'000) * kSecond;

// A clock that begins with kEpoch when the other says 0, and goes faster by so many parts in a thousand million.
std::int64_t drifting(std::int64_t time, std::int64_t ppb)
{
    return kEpoch + time + time / kSecond * ppb + time % kSecond * ppb / kSecond;
}

std::int64_t apart(std::int64_t a, std::int64_t b)
{
    return std::llabs(a - b);
}

std::int64_t pick(std::mt19937 &random, std::int64_t below)
{
    return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random);
}

void clocks_that_agree(void **)
{
    TimeLine line;
    assert_false(line.is_known());
    for (std::int64_t at = 5; at < 100 * kSecond; at += kSecond)
        assert_true(line.add({at, kEpoch + at, 0}));
    assert_true(line.is_known());
    for (const std::int64_t at : {INT64_C(0), 50 * kSecond, 99 * kSecond, 1000 * kSecond})
        assert_int_equal(line.line().at(at), kEpoch + at);
}

// 100 ppm, read with an error of up to a microsecond each time.
void clocks_that_drift(void **)
{
    for (const std::int64_t ppb : {-100'000, -1, 3'000, 100'000}) {
        TimeLine line;
        std::mt19937 random(vma::test::seed());
        std::int64_t at = 0;
        for (int i = 0; i < 200; ++i, at += i < 20 ? kSecond / 20 : kSecond) {
            const std::int64_t error = pick(random, 2001) - 1000;
            assert_true(line.add({at, drifting(at, ppb) + error, 1000}));
            if (i < 20)
                continue; // the rate is not known well yet
            for (std::int64_t later = 0; later <= kSecond; later += kSecond / 10)
                assert_true(apart(line.line().at(at + later), drifting(at + later, ppb)) < 4000);
        }
    }
}

// Without noise what is left is the rounding's.
void a_rate_is_found(void **)
{
    TimeLine line;
    for (std::int64_t at = 0; at <= 60 * kSecond; at += kSecond)
        line.add({at, drifting(at, 50'000), 100});
    assert_true(apart(line.line().at(70 * kSecond), drifting(70 * kSecond, 50'000)) <= 20);
}

// As phc2sys and NTP do it.
void a_rate_that_changes(void **)
{
    TimeLine line;
    std::int64_t to = kEpoch;
    std::int64_t at = 0;
    for (int i = 0; i < 120; ++i) {
        line.add({at, to, 100});
        at += kSecond;
        to += kSecond + (i < 60 ? 20'000 : -20'000);
        if (i > 20 && i < 59)
            assert_true(apart(line.line().at(at), to) < 100);
        if (i > 85)
            assert_true(apart(line.line().at(at), to) < 100);
        assert_true(apart(line.line().at(at), to) < 100'000); // while it is found out
    }
}

// A stamp that was read before the clocks were looked at again, and one after it.
void times_keep_their_order(void **)
{
    TimeLine line;
    std::mt19937 random(vma::test::seed());
    std::int64_t at = 0;
    line.add({at, kEpoch, 0});
    for (int i = 0; i < 500; ++i) {
        const Line before = line.line();
        const std::int64_t last_bend = at + kSecond;
        at += kSecond / 4 + pick(random, kSecond);
        line.add({at, drifting(at, 40'000) + pick(random, 100'000) - 50'000, 50'000}); // bad, but no step
        const Line &after = line.line();
        std::int64_t last = INT64_MIN;
        for (std::int64_t stamp = at - kSecond / 10; stamp < at + 3 * kSecond; stamp += 10'000'019) {
            const std::int64_t time = after.at(stamp);
            assert_true(time > last);
            last = time;
            if (stamp < at && (stamp >= last_bend || at <= last_bend))
                assert_true(apart(time, before.at(stamp)) <= 2); // rounded
        }
        for (std::int64_t stamp = at - 3; stamp < at + 3; ++stamp)
            assert_true(after.at(stamp) <= after.at(stamp + 1));
        for (std::int64_t stamp = at + kSecond - 3; stamp < at + kSecond + 3; ++stamp)
            assert_true(after.at(stamp) <= after.at(stamp + 1));
    }
}

// Somebody sets the system's clock, by much and by little.
void the_second_clock_is_set(void **)
{
    for (const std::int64_t by : {3600 * kSecond, -3600 * kSecond, kSecond / 100, -kSecond / 100}) {
        TimeLine line;
        for (std::int64_t at = 0; at < 20 * kSecond; at += kSecond)
            line.add({at, drifting(at, 30'000), 100});
        for (std::int64_t at = 20 * kSecond; at < 25 * kSecond; at += kSecond) {
            assert_true(line.add({at, drifting(at, 30'000) + by, 100}));
            const std::int64_t later = at + kSecond;
            assert_true(apart(line.line().at(later), drifting(later, 30'000) + by) < 1000); // with the rate of before
        }
    }
}

// ptp4l sets the device's clock; or the device was reset.
void the_first_clock_is_set(void **)
{
    TimeLine line;
    for (std::int64_t at = 100 * kSecond; at < 120 * kSecond; at += kSecond)
        line.add({at, kEpoch + at, 100});
    line.add({7 * kSecond, kEpoch + 120 * kSecond, 100});
    assert_int_equal(line.line().at(8 * kSecond), kEpoch + 121 * kSecond);
    line.add({900 * kSecond, kEpoch + 121 * kSecond, 100});
    assert_int_equal(line.line().at(901 * kSecond), kEpoch + 122 * kSecond);
}

void a_reader_that_was_interrupted(void **)
{
    TimeLine line;
    for (std::int64_t at = 0; at < 20 * kSecond; at += kSecond)
        assert_true(line.add({at, kEpoch + at, 100}));
    assert_false(line.add({20 * kSecond, kEpoch + 20 * kSecond + 700'000, 800'000}));
    assert_int_equal(line.line().at(20 * kSecond), kEpoch + 20 * kSecond);
    assert_true(line.add({40 * kSecond, kEpoch + 40 * kSecond + 700'000, 800'000})); // none better for long
}

// Nobody has looked for days: it is not mended bit by bit.
void after_a_long_silence(void **)
{
    constexpr std::int64_t kDays = kSecond * 86400 * 5;
    TimeLine line;
    for (std::int64_t at = 0; at < 20 * kSecond; at += kSecond)
        line.add({at, drifting(at, 30'000), 100});
    line.add({kDays, drifting(kDays, 30'500), 100});
    assert_int_equal(line.line().at(kDays), drifting(kDays, 30'500));
    assert_true(apart(line.line().at(kDays + kSecond), drifting(kDays + kSecond, 30'500)) < 1000);
}

// Whatever is read: no trap of the sanitizers, and the rate stays in its bounds.
void numbers_from_anywhere(void **)
{
    constexpr std::int64_t kNumbers[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, kSecond, INT64_MAX - 1, INT64_MAX};
    TimeLine line;
    for (const std::int64_t from : kNumbers)
        for (const std::int64_t to : kNumbers)
            for (const std::int64_t within : kNumbers) {
                line.add({from, to, within});
                for (const std::int64_t stamp : kNumbers)
                    static_cast<void>(line.line().at(stamp));
                const std::int64_t later = static_cast<std::int64_t>(static_cast<std::uint64_t>(from) + kSecond);
                const auto went = static_cast<std::int64_t>(static_cast<std::uint64_t>(line.line().at(later)) -
                                                            static_cast<std::uint64_t>(line.line().at(from)));
                assert_true(apart(went, kSecond) <= 2 * kSecond / 100);
            }
}

TimeBy choose(int wanted, std::initializer_list<TimeSkills> devices)
{
    return choose_time(wanted, devices.begin(), devices.size());
}

void what_all_devices_can(void **)
{
    constexpr TimeSkills kNone{};
    constexpr TimeSkills kRaw{.stamps = true};
    constexpr TimeSkills kSystem{.stamps = true, .system = true};
    constexpr TimeSkills kPtp{.stamps = true, .system = true, .ptp = true};
    for (const TimeSkills &one : {kRaw, kSystem, kPtp}) {
        assert_true(choose(0, {one}) == TimeBy::kNothing);
        assert_true(choose(1, {one}) == TimeBy::kDevice);
    }
    assert_true(choose(2, {kRaw}) == TimeBy::kDevice);
    assert_true(choose(2, {kSystem, kPtp}) == TimeBy::kSystem);
    assert_true(choose(2, {kSystem, kRaw}) == TimeBy::kDevice);
    assert_true(choose(3, {kRaw}) == TimeBy::kNothing);
    assert_true(choose(3, {kPtp, kSystem}) == TimeBy::kSystem);
    assert_true(choose(3, {kPtp, kRaw}) == TimeBy::kNothing);
    assert_true(choose(4, {kPtp, kPtp}) == TimeBy::kPtp);
    assert_true(choose(4, {kPtp, kSystem}) == TimeBy::kSystem);
    assert_true(choose(4, {kPtp, kRaw}) == TimeBy::kNothing);
    assert_true(choose(4, {kPtp, kNone}) == TimeBy::kPtp); // that one's sockets don't ask it for times
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(clocks_that_agree),      cmocka_unit_test(clocks_that_drift),
        cmocka_unit_test(a_rate_is_found),        cmocka_unit_test(a_rate_that_changes),
        cmocka_unit_test(times_keep_their_order), cmocka_unit_test(the_second_clock_is_set),
        cmocka_unit_test(the_first_clock_is_set), cmocka_unit_test(a_reader_that_was_interrupted),
        cmocka_unit_test(after_a_long_silence),   cmocka_unit_test(numbers_from_anywhere),
        cmocka_unit_test(what_all_devices_can),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
