// SPDX-License-Identifier: BSD-2-Clause
// How long connections lived decides how long the next ones wait before they leave the kernel.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstdlib>

#include "compat/src/offload/offload_habit.hpp"

using vma::sock::LongWaits;
using vma::sock::OffloadHabit;
using First = OffloadHabit::First;

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

struct Costs {
    std::int64_t waits;
    std::int64_t first;
};

constexpr Costs costs(bool shared)
{
    return shared ? Costs{OffloadHabit::kSharedCost, OffloadHabit::kSharedFirstCost}
                  : Costs{OffloadHabit::kCost, OffloadHabit::kFirstCost};
}

// Whichever the length: where they have met, and it gains more than the best wait would. Also those that end before any
// wait is over teach it.
void each_length_finds_whether_it_is_first(void **)
{
    for (const bool shared : {false, true}) {
        for (std::int64_t calls = 0; calls < 2000; ++calls) {
            OffloadHabit habit;
            meet(habit, 10, true);
            for (int i = 0; i < 200; ++i) {
                habit.learn_cost(shared);
                after(habit, 1, static_cast<std::uint64_t>(calls));
            }
            // A sixteenth of a call more or less decides at the ends of each stretch.
            const std::int64_t waits_gain = std::max<std::int64_t>(0, calls - kLeast - costs(shared).waits);
            const std::int64_t gain = calls - costs(shared).first;
            const std::int64_t gain_anywhere = calls - costs(true).first;
            if (std::abs(gain - waits_gain) > 1 && std::abs(gain_anywhere - waits_gain) > 1)
                assert_int_equal(habit.first(), gain_anywhere > waits_gain ? First::kAnywhere
                                                : gain > waits_gain        ? First::kOnSeveral
                                                                           : First::kNo);
        }
    }
}

void who_has_not_met_is_not_first(void **)
{
    OffloadHabit habit;
    after(habit, 200, 100);
    assert_true(habit.first() == First::kNo);
    assert_true(habit.first_if_asked() != First::kNo);
    meet(habit, 10, true);
    after(habit, 1, 100);
    assert_true(habit.first() != First::kNo);
    meet(habit, 10, false);
    after(habit, 1, 100);
    assert_true(habit.first() == First::kNo);
    assert_true(habit.first_if_asked() != First::kNo);
}

// Of many short ones and a long one now and then the short ones would pay.
void short_ones_are_not_first(void **)
{
    OffloadHabit habit;
    meet(habit, 10, true);
    after(habit, 200, 100);
    assert_true(habit.first() != First::kNo);
    after(habit, 200, 2);
    assert_true(habit.first() == First::kNo);
    for (int i = 0; i < 50; ++i) {
        after(habit, 20, 2);
        after(habit, 1, 100);
        assert_true(habit.first() == First::kNo);
    }
}

// Who stays on the kernel hears of nobody: some try it now and then. Not where nothing would be gained.
void it_is_tried_whether_they_have_met(void **)
{
    for (const unsigned calls : {10U, 24U, 31U, 50U}) {
        OffloadHabit habit;
        int tried = 0;
        for (int i = 0; i < 2000; ++i) {
            after(habit, 1, calls);
            tried += habit.first() != First::kNo;
        }
        if (calls < OffloadHabit::kFirstCost)
            assert_int_equal(tried, 0);
        else
            assert_in_range(tried, 16, 2000 / 4);
        int met = 0;
        for (int i = 0; i < 300; ++i) { // the first one of two processes has not met, the next ones have
            if (habit.first() != First::kNo)
                habit.learn_peer(met++ != 0);
            after(habit, 1, calls);
        }
        assert_int_equal(habit.first() != First::kNo, calls >= OffloadHabit::kFirstCost);
    }
}

// One wait in vain among many is nothing. All in all they take a few microseconds a connection, and next to nothing
// where there are no others.
void what_is_in_vain_ends(void **)
{
    constexpr std::int64_t kInVain = 1000; // microseconds
    constexpr std::int64_t kQuick = LongWaits::kFairUs;
    OffloadHabit habit;
    meet(habit, 10, true);
    after(habit, 200, 100);
    for (int i = 0; i < 400; ++i) {
        habit.learn_first(i % 50 == 0 ? kInVain : kQuick);
        after(habit, 1, 100);
        assert_true(habit.first() != First::kNo);
    }
    for (const int each : {2, 3, 10, 20}) {
        int tried = 0;
        std::int64_t lost = 0;
        for (int i = 0; i < 10'000; ++i) {
            if (habit.first() != First::kNo) {
                habit.learn_first(tried % each == 0 ? kInVain : kQuick);
                lost += tried++ % each == 0 ? kInVain - kQuick : 0;
            }
            after(habit, 1, 100);
        }
        assert_true(lost < 10'000 * (LongWaits::kPayUs + 1));
    }
    int tried = 0;
    for (int i = 0; i < 100'000; ++i) {
        if (habit.first() != First::kNo) {
            habit.learn_first(kInVain);
            ++tried;
        }
        after(habit, 1, 100);
    }
    assert_in_range(tried, 20, 200);
}

// Who makes many connections that wait together pays for each way in full, and loses by it.
void those_in_sets_are_not_first(void **)
{
    OffloadHabit habit;
    meet(habit, 10, true);
    for (int i = 0; i < 100; ++i) {
        habit.learn_waiting(true);
        after(habit, 1, 100);
    }
    assert_true(habit.first() == First::kNo);
    assert_int_equal(habit.wait(kUsual), kLeast);
    for (int i = 0; i < 10; ++i) {
        habit.learn_waiting(false);
        after(habit, 1, 100);
    }
    assert_true(habit.first() != First::kNo);
}

// Nobody has met a child.
void a_child_begins_anew(void **)
{
    OffloadHabit habit;
    meet(habit, 10, true);
    assert_int_equal(after(habit, 200, 100), kLeast);
    assert_true(habit.first() != First::kNo);
    habit.after_fork_in_child();
    assert_int_equal(habit.wait(kUsual), kUsual);
    assert_true(habit.first() == First::kNo);
    assert_int_equal(after(habit, 1, 100), kUsual);
    assert_true(habit.first() == First::kNo);
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
        cmocka_unit_test(each_length_finds_whether_it_is_first),
        cmocka_unit_test(who_has_not_met_is_not_first),
        cmocka_unit_test(short_ones_are_not_first),
        cmocka_unit_test(it_is_tried_whether_they_have_met),
        cmocka_unit_test(what_is_in_vain_ends),
        cmocka_unit_test(those_in_sets_are_not_first),
        cmocka_unit_test(a_child_begins_anew),
        cmocka_unit_test(on_one_processor),
        cmocka_unit_test(what_was_learned_is_forgotten),
        cmocka_unit_test(a_mixture),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
