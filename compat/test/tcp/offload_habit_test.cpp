// SPDX-License-Identifier: BSD-2-Clause
// How long connections lived decides how long the next ones wait before they leave the kernel.
#include "fabtests/unit.hpp"

#include "compat/src/offload/offload_habit.hpp"

using vma::sock::OffloadHabit;

namespace {

constexpr std::uint32_t kUsual = 32;
constexpr std::uint32_t kLeast = kUsual / 4;

// So many connections of that many calls. What the next one waits.
std::uint64_t after(OffloadHabit &habit, int connections, std::uint64_t calls)
{
    for (int i = 0; i < connections; ++i)
        habit.ended(calls, kUsual);
    return habit.wait(kUsual);
}

void meet(OffloadHabit &habit, int connections, bool known)
{
    for (int i = 0; i < connections; ++i)
        habit.learn_peer(known);
}

void one_does_not_teach(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 0, 0), kUsual);
    assert_int_equal(after(habit, 3, kUsual + 1), kUsual);
}

void those_that_ended_before_teach_nothing(void **)
{
    OffloadHabit habit;
    meet(habit, 10, true);
    assert_int_equal(after(habit, 10'000, kLeast - 1), kUsual);
    assert_int_equal(after(habit, 10'000, 0), kUsual);
}

// Whatever the length, the wait in the end is either longer than that, or short enough to be worth it.
void each_length_finds_its_wait(void **)
{
    for (const bool known : {false, true}) {
        const std::uint64_t least = known ? kLeast : kUsual;
        for (std::uint64_t calls = kLeast; calls < 2000; ++calls) {
            OffloadHabit habit;
            meet(habit, 10, known);
            const std::uint64_t wait = after(habit, 200, calls);
            if (calls < least + OffloadHabit::kCost)
                assert_true(wait > calls);
            else if (calls > least + OffloadHabit::kCost + 1) // next to nothing is gained or lost between
                assert_int_equal(wait, least);
        }
    }
}

// Of those whose processes meet for the first time each one pays for that: as many calls as ever are waited for.
void who_has_not_met_waits(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 200, 100), kUsual);
    meet(habit, 10, true);
    assert_int_equal(after(habit, 1, 100), kLeast);
    meet(habit, 10, false);
    assert_int_equal(after(habit, 1, 100), kUsual);
}

void long_ones_come_back(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 100, 40), 2 * kUsual);
    assert_int_equal(after(habit, 100, UINT64_MAX), kUsual);
    assert_int_equal(after(habit, 100, 40), 2 * kUsual);
}

// Where the way costs more, it has to be worth that.
void on_one_processor(void **)
{
    OffloadHabit habit;
    assert_int_equal(after(habit, 200, kUsual + 50), kUsual);
    for (int i = 0; i < 100; ++i) {
        habit.learn_cost(true);
        after(habit, 1, kUsual + 50);
    }
    assert_true(after(habit, 0, 0) > kUsual + 50);
    assert_int_equal(after(habit, 20, 1000), kUsual);
}

// It may be so no more: who waits hears nothing of that, so it is tried again.
void what_was_learned_is_forgotten(void **)
{
    OffloadHabit habit;
    for (int i = 0; i < 100; ++i) {
        habit.learn_cost(true);
        after(habit, 1, kUsual + 50);
    }
    assert_true(after(habit, 20, kUsual + 50) > kUsual + 50);
    assert_int_equal(after(habit, 1000, kUsual + 50), kUsual);
}

// Of short and long ones the long ones decide, where they gain more than the short ones lose. Whichever is the best
// wait, it loses little.
void a_mixture(void **)
{
    OffloadHabit habit;
    std::uint64_t wait = kUsual;
    std::int64_t gained = 0;
    for (int i = 0; i < 2000; ++i) {
        const std::int64_t calls = i % 5 == 0 ? 1000 : 40;
        gained +=
            calls < static_cast<std::int64_t>(wait) ? 0 : calls - static_cast<std::int64_t>(wait) - OffloadHabit::kCost;
        wait = after(habit, 1, static_cast<std::uint64_t>(calls));
    }
    assert_true(gained > 2000 / 5 * (1000 - 4 * std::int64_t{kUsual}));
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(one_does_not_teach),
        cmocka_unit_test(those_that_ended_before_teach_nothing),
        cmocka_unit_test(each_length_finds_its_wait),
        cmocka_unit_test(who_has_not_met_waits),
        cmocka_unit_test(long_ones_come_back),
        cmocka_unit_test(on_one_processor),
        cmocka_unit_test(what_was_learned_is_forgotten),
        cmocka_unit_test(a_mixture),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
