// SPDX-License-Identifier: BSD-2-Clause
// The timing wheel against a sorted list, over a clock that is only a number.
#include "fabtests/unit.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include "vma/wheel.hpp"

namespace {

using vma::Timer;
using vma::Wheel;

constexpr std::uint64_t kStart = 123'456'789'012'345;
constexpr std::uint64_t kTurn = std::uint64_t{Wheel::kSlots} << Wheel::kShift;

unsigned fired_at(Wheel &wheel, std::uint64_t now)
{
    unsigned count = 0;
    wheel.advance(now, [&](Timer &timer) {
        assert_true(timer.due <= now);
        assert_false(timer.waits());
        ++count;
    });
    return count;
}

void fires_at_the_nanosecond(void **)
{
    for (const std::uint64_t after :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{20'000}, kTurn - 1, kTurn, kTurn + 1, 1000 * kTurn}) {
        Wheel wheel;
        Timer timer;
        assert_int_equal(wheel.next(), UINT64_MAX);
        wheel.add(timer, kStart + after, kStart);
        assert_int_equal(wheel.next(), kStart + after);
        if (after) {
            assert_int_equal(fired_at(wheel, kStart + after - 1), 0);
            assert_int_equal(wheel.next(), kStart + after);
        }
        assert_int_equal(fired_at(wheel, kStart + after), 1);
        assert_true(wheel.empty());
    }
}

void what_is_overdue_fires_at_once(void **)
{
    Wheel wheel;
    Timer first;
    Timer second;
    wheel.add(first, kStart + 10 * kTurn, kStart);
    assert_int_equal(fired_at(wheel, kStart + 5 * kTurn), 0);
    wheel.add(second, kStart, kStart + 5 * kTurn);
    assert_int_equal(wheel.next(), kStart);
    assert_int_equal(fired_at(wheel, kStart + 5 * kTurn), 1);
    assert_int_equal(fired_at(wheel, kStart + 10 * kTurn), 1);
}

void one_that_is_moved_or_removed(void **)
{
    Wheel wheel;
    Timer timers[3];
    for (Timer &timer : timers)
        wheel.add(timer, kStart + 100, kStart);
    wheel.add(timers[0], kStart + kTurn, kStart);
    wheel.remove(timers[1]);
    wheel.remove(timers[1]);
    assert_int_equal(fired_at(wheel, kStart + 100), 1);
    assert_true(timers[0].waits());
    assert_int_equal(fired_at(wheel, kStart + kTurn), 1);
    assert_true(wheel.empty());
}

void one_that_adds_itself_again(void **)
{
    Wheel wheel;
    Timer timer;
    wheel.add(timer, kStart, kStart);
    unsigned count = 0;
    std::uint64_t now = kStart;
    for (; count < 1000; now += 7000)
        wheel.advance(now, [&](Timer &one) {
            ++count;
            wheel.add(one, now + 7000, now);
        });
    assert_int_equal(wheel.next(), now);
}

void as_a_sorted_list(void **)
{
    const char *const wanted = std::getenv("VMA_TEST_SEED");
    std::uint64_t state = wanted ? std::strtoull(wanted, nullptr, 0) : static_cast<std::uint64_t>(getpid());
    std::printf("# VMA_TEST_SEED=%llu\n", static_cast<unsigned long long>(state));
    const auto random = [&state](std::uint64_t below) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return (state >> 20) % below;
    };
    auto wheel = std::make_unique<Wheel>();
    std::vector<Timer> timers(500);
    std::set<std::pair<std::uint64_t, Timer *>> list;
    std::uint64_t now = kStart;
    for (unsigned i = 0; i < 200'000; ++i) {
        Timer &timer = timers[random(timers.size())];
        list.erase({timer.due, &timer});
        if (random(3) == 0) {
            wheel->remove(timer);
        } else {
            wheel->add(timer, now + random(random(2) ? kTurn / 8 : 4 * kTurn), now);
            list.insert({timer.due, &timer});
        }
        assert_int_equal(wheel->next(), list.empty() ? UINT64_MAX : list.begin()->first);
        if (random(8))
            continue;
        now += random(random(20) ? 50'000 : 3 * kTurn);
        wheel->advance(now, [&](Timer &fired) {
            assert_true(fired.due <= now);
            assert_int_equal(list.erase({fired.due, &fired}), 1);
        });
        assert_true(list.empty() || list.begin()->first > now);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(fires_at_the_nanosecond),
        cmocka_unit_test(what_is_overdue_fires_at_once),
        cmocka_unit_test(one_that_is_moved_or_removed),
        cmocka_unit_test(one_that_adds_itself_again),
        cmocka_unit_test(as_a_sorted_list),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
