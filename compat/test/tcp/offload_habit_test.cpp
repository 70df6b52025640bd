// SPDX-License-Identifier: BSD-2-Clause
// How long connections lived decides how long the next ones wait before they leave the kernel.
#include "fabtests/unit.hpp"

#include "compat/src/offload/offload_habit.hpp"

using vma::sock::OffloadHabit;

namespace {

constexpr std::uint32_t kFirst = 32;

// So many connections of that many calls. What the next one waits.
std::uint64_t after(OffloadHabit &habit, int connections, std::uint64_t calls)
{
    for (int i = 0; i < connections; ++i)
        habit.ended(calls, kFirst);
    return std::uint64_t{kFirst} << habit.doublings();
}

void one_does_not_teach(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 0, 0), kFirst);
    assert_int_equal(after(habit, 3, kFirst + 1), kFirst);
}

void those_that_ended_before_teach_nothing(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 10'000, kFirst - 1), kFirst);
    assert_int_equal(after(habit, 10'000, 0), kFirst);
}

// Whatever the length, the wait in the end is either longer than that, or short enough to be worth it.
void each_length_finds_its_wait(void **)
{
    constexpr std::uint64_t kWorthIt = 24;
    for (std::uint64_t calls = kFirst; calls < 2000; ++calls) {
        OffloadHabit habit;
        const std::uint64_t wait = after(habit, 200, calls);
        if (calls < kFirst + kWorthIt)
            assert_true(wait > calls);
        else
            assert_int_equal(wait, kFirst);
    }
}

void long_ones_come_back(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 100, 40), 2 * kFirst);
    assert_int_equal(after(habit, 100, UINT64_MAX), kFirst);
    assert_int_equal(after(habit, 100, 40), 2 * kFirst);
}

// Where the way costs more, it has to be worth that.
void on_one_processor(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 200, kFirst + 50), kFirst);
    for (int i = 0; i < 100; ++i) {
        habit.learn_cost(true);
        after(habit, 1, kFirst + 50);
    }
    assert_true(after(habit, 0, 0) > kFirst + 50);
    assert_int_equal(after(habit, 20, 1000), kFirst);
}

// It may be so no more: who waits hears nothing of that, so it is tried again.
void what_was_learned_is_forgotten(void **)
{
    OffloadHabit habit;
    for (int i = 0; i < 100; ++i) {
        habit.learn_cost(true);
        after(habit, 1, kFirst + 50);
    }
    assert_true(after(habit, 20, kFirst + 50) > kFirst + 50);
    assert_int_equal(after(habit, 1000, kFirst + 50), kFirst);
}

// Of short and long ones the long ones decide, where they gain more than the short ones lose. Whichever is the best
// wait, it loses little.
void a_mixture(void **)
{
    OffloadHabit habit;
    std::uint64_t wait = kFirst;
    std::int64_t gained = 0;
    for (int i = 0; i < 2000; ++i) {
        const std::int64_t calls = i % 5 == 0 ? 1000 : 40;
        gained +=
            calls < static_cast<std::int64_t>(wait) ? 0 : calls - static_cast<std::int64_t>(wait) - OffloadHabit::kCost;
        wait = after(habit, 1, static_cast<std::uint64_t>(calls));
    }
    assert_true(gained > 2000 / 5 * (1000 - 4 * std::int64_t{kFirst}));
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(one_does_not_teach),
        cmocka_unit_test(those_that_ended_before_teach_nothing),
        cmocka_unit_test(each_length_finds_its_wait),
        cmocka_unit_test(long_ones_come_back),
        cmocka_unit_test(on_one_processor),
        cmocka_unit_test(what_was_learned_is_forgotten),
        cmocka_unit_test(a_mixture),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
