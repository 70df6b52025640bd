// SPDX-License-Identifier: BSD-2-Clause
// Waits whose spinning nobody has limited: what spins and sleeps have brought decides on the next ones.
#include "fabtests/unit.hpp"

#include <algorithm>

#include "compat/src/base/spin_habit.hpp"
#include "compat/src/base/spin_time.hpp"

using namespace vma::mux;

namespace {

constexpr std::int64_t kSoon = SpinHabit::kMostNs / 2;
constexpr std::int64_t kLate = 10 * SpinHabit::kMostNs;

// How many waits sleep at once before one spins.
unsigned left_out(SpinHabit &habit)
{
    unsigned count = 0;
    while (!habit.is_due())
        ++count;
    return count;
}

void hits_go_on(void **)
{
    SpinHabit habit;
    for (int i = 0; i < 1000; ++i) {
        assert_true(habit.is_due());
        habit.hit();
    }
}

void misses_leave_more_and_more_out(void **)
{
    SpinHabit habit;
    assert_true(habit.is_due());
    for (unsigned expected = 2; expected <= 256; expected *= 2) {
        habit.missed();
        habit.slept_after_spin(kLate);
        assert_int_equal(left_out(habit), expected);
    }
    habit.missed();
    assert_int_equal(left_out(habit), 256);
    habit.hit();
    habit.missed();
    assert_int_equal(left_out(habit), 2);
}

void a_short_sleep_is_as_good_as_a_hit(void **)
{
    SpinHabit habit;
    for (int i = 0; i < 8; ++i)
        habit.missed();
    assert_false(habit.is_due());
    habit.slept(kLate);
    assert_false(habit.is_due());
    habit.slept(kSoon);
    assert_true(habit.is_due());
}

// Who was waited for ran as soon as we slept, each time: a short sleep says nothing then.
void both_ends_on_one_processor(void **)
{
    SpinHabit habit;
    for (int i = 0; i < 8; ++i) {
        habit.missed();
        habit.slept_after_spin(SpinHabit::kMostNs + 5000);
        while (!habit.is_due())
            habit.slept(kSoon);
    }
    habit.missed();
    assert_int_equal(left_out(habit), 256);
    habit.hit(); // it has gone to another one
    habit.missed();
    habit.slept(kSoon);
    assert_true(habit.is_due());
}

// What comes in a turn that others were given is waited for by turns from then on, until something comes without.
void what_comes_in_turns(void **)
{
    SpinHabit habit;
    assert_false(habit.by_turns());
    habit.hit(true);
    assert_true(habit.by_turns());
    assert_false(habit.by_many_turns());
    for (int i = 0; i < 100; ++i)
        habit.hit(true);
    assert_true(habit.by_many_turns());
    habit.missed();
    assert_true(habit.by_turns());
    habit.hit();
    assert_false(habit.by_turns());
    assert_false(habit.by_many_turns());
}

void a_spin_ends_by_itself_and_counts(void **)
{
    SpinHabit habit;
    Rest rest;
    SpinTime spin(habit, rest, kForever);
    assert_true(spin.spins());
    while (!spin.over()) {
    }
    SpinTime next(habit, rest, kForever); // rests where others had the processor
    assert_false(next.spins());
    assert_true(next.over());
}

void what_is_lost_to_others_adds_up(void **)
{
    constexpr std::int64_t kMs = 1'000'000;
    std::int64_t now = 1'000'000 * kMs;
    Rest rest;
    for (int i = 0; i < 100; ++i, now += kMs)
        assert_false(loses_too_much(rest, now, kMs / 10)); // a tenth of the time
    for (int i = 0; !loses_too_much(rest, now, kMs / 5); ++i, now += kMs)
        assert_true(i < 20);
    assert_int_equal(rest.until, now + kMs);
    now += kMs;
    assert_true(loses_too_much(rest, now, kMs)); // at once again
    assert_int_equal(rest.until, now + 2 * kMs);
    now += 100 * kMs;
    assert_true(loses_too_much(rest, now, kMs));
    assert_int_equal(rest.until, now + kMs);
}

// Virtual time: a thread that spins for ever as a profile has it, and what others take of its time.
class Spinner
{
public:
    // Gaps between its looks of so many ns, one after the other, in which others ran or nobody did. How many until it
    // gives way; `most`: it does not.
    int gaps_until_it_gives_way(std::int64_t length, bool others_ran, int most)
    {
        for (int i = 1; i < most; ++i) {
            now += length;
            if (gap_is_too_much(rest, now, length, [others_ran](Rest &) { return others_ran; }))
                return i;
        }
        return most;
    }
    Rest rest;
    std::int64_t now = 1'000'000'000'000;
};

void turns_that_come_back_at_once_are_no_loss(void **)
{
    Spinner spinner;
    assert_int_equal(spinner.gaps_until_it_gives_way(2'000, true, 100'000), 100'000);
    assert_int_equal(spinner.gaps_until_it_gives_way(3'000'000, false, 1000), 1000); // a look that took long
    assert_int_equal(spinner.rest.until, 0);
}

void time_slices_of_others_are(void **)
{
    Spinner spinner;
    assert_int_equal(spinner.gaps_until_it_gives_way(3'000'000, true, 1000), 1); // a time slice of who computes
    std::int64_t rests = 1'000'000;
    assert_int_equal(spinner.rest.until, spinner.now + rests);
    for (int i = 0; i < 10; ++i) { // the longer, the more often it is found again
        rests = std::min<std::int64_t>(2 * rests, 64'000'000);
        spinner.now = spinner.rest.until;
        assert_int_equal(spinner.gaps_until_it_gives_way(1'000'000, true, 1000), 1);
        assert_int_equal(spinner.rest.until, spinner.now + rests);
    }
    assert_in_range(spinner.gaps_until_it_gives_way(50'000, true, 1000), 10, 20); // short slices add up
}

void long_turns_are_given_less_and_less_often(void **)
{
    constexpr std::int64_t kMs = 1'000'000;
    Rest rest;
    std::int64_t now = 1'000'000 * kMs;
    for (int i = 0; i < 10; ++i, now += kMs) {
        assert_true(gives_turns(rest, now));
        note_turn(rest, now, now + kMs / 10);
    }
    for (std::int64_t expected = 50; expected <= 3200; expected *= 2) {
        assert_true(gives_turns(rest, now));
        note_turn(rest, now, now + 3 * kMs);
        now += 3 * kMs + std::min<std::int64_t>(expected, 2000) * kMs;
        assert_false(gives_turns(rest, now - 1));
    }
    now += 10'000 * kMs; // short ones for long enough
    note_turn(rest, now, now + 1000);
    note_turn(rest, now, now + 3 * kMs);
    assert_true(gives_turns(rest, now + 53 * kMs));
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(hits_go_on),
        cmocka_unit_test(misses_leave_more_and_more_out),
        cmocka_unit_test(a_short_sleep_is_as_good_as_a_hit),
        cmocka_unit_test(both_ends_on_one_processor),
        cmocka_unit_test(what_comes_in_turns),
        cmocka_unit_test(a_spin_ends_by_itself_and_counts),
        cmocka_unit_test(what_is_lost_to_others_adds_up),
        cmocka_unit_test(turns_that_come_back_at_once_are_no_loss),
        cmocka_unit_test(time_slices_of_others_are),
        cmocka_unit_test(long_turns_are_given_less_and_less_often),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
