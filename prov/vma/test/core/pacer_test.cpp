// SPDX-License-Identifier: BSD-2-Clause
// The pacer over a clock that is only a number: rates, bursts, late wake-ups, changes on the way, idle time, extremes.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstdlib>

#include "vma/pacer.hpp"

namespace {

using vma::Pacer;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMbit = 125'000;
constexpr std::uint64_t kRates[] = {kMbit, 10 * kMbit, 100 * kMbit, 1000 * kMbit, 10'000 * kMbit, 400'000 * kMbit};
constexpr std::uint64_t kChunks[] = {1, 28, 100, 999, 1448, 1500, 4096, 9000, 16384, 32768, 65507};
constexpr std::uint64_t kStart = 987'654'321'012'345;

Pacer pacer_of(std::uint64_t rate, std::uint32_t burst = 0)
{
    Pacer pacer;
    pacer.set(kStart, rate, burst, 0);
    return pacer;
}

// Sends chunks whenever they may go, `late(i)` ns after the i-th wake-up was due, until `end`. Bytes sent.
template <typename Late>
std::uint64_t run(Pacer &pacer, std::uint64_t &now, std::uint64_t end, std::uint64_t chunk, Late late)
{
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; now < end; ++i) {
        while (pacer.ready(now, chunk)) {
            pacer.take(chunk);
            sent += chunk;
        }
        const std::uint64_t due = pacer.due(now, chunk);
        assert_true(due > now);
        now = due + static_cast<std::uint64_t>(late(i));
    }
    return sent;
}

void near(std::uint64_t sent, std::uint64_t rate, std::uint64_t elapsed, std::uint64_t slack)
{
    const double wanted = static_cast<double>(rate) * static_cast<double>(elapsed) / 1e9;
    const double error = static_cast<double>(sent) - wanted;
    if (std::abs(error) > wanted / 1000 + static_cast<double>(slack)) {
        print_error("%llu bytes a second for %llu ns: %llu bytes\n", static_cast<unsigned long long>(rate),
                    static_cast<unsigned long long>(elapsed), static_cast<unsigned long long>(sent));
        UNIT_FAIL("the rate is not held");
    }
}

// What one second can be off by is the half burst at the beginning, and the chunk that was not due at the end.
void rate_is_held_for_all_chunks(void **)
{
    for (const std::uint64_t rate : kRates) {
        for (const std::uint64_t chunk : kChunks) {
            if (rate / chunk > 2'000'000)
                continue; // as exact, and slow
            Pacer pacer = pacer_of(rate);
            std::uint64_t now = kStart;
            const std::uint64_t sent = run(pacer, now, kStart + kSecond, chunk, [](std::uint64_t) { return 0; });
            near(sent, rate, now - kStart, pacer.piece() + chunk);
        }
    }
}

// A burst of 1500 bytes is 1.2 % of a second at 1 Mbit/s, and the largest share: within 2 % also in the first second.
void the_first_second_is_within_two_percent(void **)
{
    for (const std::uint64_t rate : kRates) {
        const std::uint64_t chunk = std::min<std::uint64_t>(pacer_of(rate).piece(), 32768);
        Pacer pacer = pacer_of(rate);
        std::uint64_t now = kStart;
        std::uint64_t sent = 0;
        while (now < kStart + kSecond) {
            if (pacer.ready(now, chunk)) {
                pacer.take(chunk);
                sent += chunk;
            }
            now = std::max(now, pacer.due(now, chunk));
        }
        assert_in_range(sent, rate - rate / 50, rate + rate / 50);
    }
}

// Two packets would be half a minute of it: the first of it went as fast as it could.
void a_slow_rate_is_held_from_the_first_second(void **)
{
    for (const std::uint64_t rate : {1U, 100U, 5000U, 20'000U}) {
        std::uint64_t now = kStart;
        Pacer pacer = pacer_of(rate);
        const std::uint64_t sent = run(pacer, now, kStart + 10 * kSecond, 14, [](std::uint64_t) { return 0; });
        near(sent, rate, now - kStart, rate / 20 + 14);
        assert_true(pacer.piece() >= Pacer::kTypicalPacket); // what can be cut is not cut to crumbs
    }
}

// As long as wake-ups are no later than half a burst lasts, they cost nothing.
void late_wake_ups_are_caught_up_with(void **)
{
    for (const std::uint64_t rate : kRates) {
        for (const std::uint64_t chunk : {std::uint64_t{1448}, std::uint64_t{9000}, std::uint64_t{65507}}) {
            Pacer pacer = pacer_of(rate);
            std::uint64_t now = kStart;
            std::uint64_t seed = 1;
            const std::uint64_t sent = run(pacer, now, kStart + kSecond, chunk, [&seed](std::uint64_t i) {
                seed = seed * 6364136223846793005 + 1442695040888963407;
                return i % 50 == 49 ? 990'000 : (seed >> 33) % 200'000;
            });
            near(sent, rate, now - kStart, pacer.burst() + chunk);
        }
    }
}

// Nothing is rounded, so nothing adds up: a rate and a chunk that divide nothing, for ten million chunks.
void no_drift(void **)
{
    const std::uint64_t rate = 1'234'567'891;
    Pacer pacer = pacer_of(rate);
    std::uint64_t now = kStart;
    std::uint64_t sent = 0;
    for (unsigned i = 0; i < 10'000'000; ++i) {
        now = pacer.due(now, 997);
        pacer.take(997);
        sent += 997;
    }
    const double wanted = static_cast<double>(now - kStart) * static_cast<double>(rate) / 1e9;
    assert_true(std::abs(static_cast<double>(sent) - wanted - pacer.piece()) <= 2000);
}

// In any stretch of time no more than the burst and what it earns, whatever was before it.
void bursts_are_bounded(void **)
{
    for (const std::uint32_t burst : {2u, 3000u, 100'000u}) {
        const std::uint64_t rate = 1'000'000;
        for (const std::uint64_t chunk : {std::uint64_t{1}, std::uint64_t{burst / 4}, std::uint64_t{burst / 2}}) {
            if (chunk == 0)
                continue;
            Pacer pacer = pacer_of(rate, burst);
            assert_int_equal(pacer.burst(), burst);
            for (const std::uint64_t idle : {std::uint64_t{0}, kSecond / 100, kSecond, 100'000 * kSecond}) {
                const std::uint64_t now = kStart + 200'000 * kSecond + idle;
                std::uint64_t sent = 0;
                while (pacer.ready(now, chunk)) {
                    pacer.take(chunk);
                    sent += chunk;
                }
                assert_true(sent <= burst);
            }
        }
    }
}

void a_long_message_goes_whole_and_is_paid_for(void **)
{
    Pacer pacer = pacer_of(kMbit, 3000);
    assert_true(pacer.ready(kStart, 1 << 20));
    pacer.take(1 << 20);
    // 1 MiB and the byte, less the 1500 it began with.
    const std::uint64_t bytes = (1 << 20) + 1 - 1500;
    assert_int_equal(pacer.due(kStart, 1), kStart + bytes * kSecond / kMbit);
    assert_false(pacer.ready(kStart + bytes * kSecond / kMbit - 1, 1));
    assert_true(pacer.ready(kStart + bytes * kSecond / kMbit, 1));
}

// Whoever waits, and comes too late by more than a burst: no more than a burst goes at once, and over the second
// nothing is lost.
void a_busy_processor_is_made_up_for(void **)
{
    for (const std::uint64_t rate : kRates) {
        Pacer pacer = pacer_of(rate);
        const std::uint64_t chunk = std::min<std::uint64_t>(pacer.piece(), 32768);
        std::uint64_t now = kStart;
        std::uint64_t sent = 0;
        std::uint64_t stall = kStart;
        while (now < kStart + kSecond) {
            std::uint64_t at_once = 0;
            for (; pacer.due(now, chunk) == now; at_once += chunk)
                pacer.take(chunk);
            assert_true(at_once <= pacer.burst());
            sent += at_once;
            now = pacer.due(now, chunk);
            if (now >= stall) {
                now += 15'000'000;
                stall = now + 60'000'000;
            }
        }
        near(sent, rate, now - kStart,
             std::uint64_t{2} * pacer.burst() + rate * 15 / 1000); // the last stall is not made up for yet
    }
}

// It is not made up for by more than 50 ms, at twice the rate.
void lost_time_is_bounded(void **)
{
    const std::uint64_t rate = 100 * kMbit;
    Pacer pacer = pacer_of(rate);
    pacer.take(pacer.piece());
    std::uint64_t now = pacer.due(kStart, 1000) + 3600 * kSecond;
    const std::uint64_t start = now;
    const auto punctual = [](std::uint64_t) { return 0; };
    const std::uint64_t soon = run(pacer, now, start + kSecond / 50, 1000, punctual);
    assert_true(soon <= pacer.burst() + 1000 + rate / 25);
    const std::uint64_t later = run(pacer, now, start + kSecond, 1000, punctual);
    near(soon + later, rate, now - start, pacer.burst() + 1000 + rate / 20);
    // Who had nothing to send has lost nothing.
    pacer.take(1000);
    now += 3600 * kSecond;
    const std::uint64_t idle = now;
    const std::uint64_t afterwards = run(pacer, now, idle + kSecond / 10, 1000, punctual);
    near(afterwards, rate, now - idle, pacer.burst() + 1000);
}

void a_new_rate_holds_from_its_moment(void **)
{
    Pacer pacer = pacer_of(100 * kMbit);
    std::uint64_t now = kStart;
    const auto punctual = [](std::uint64_t) { return 0; };
    std::uint64_t sent = run(pacer, now, kStart + kSecond, 1448, punctual);
    near(sent, 100 * kMbit, now - kStart, pacer.burst() + 1448);
    for (const std::uint64_t rate : {kMbit, 1000 * kMbit, 10 * kMbit}) {
        const std::uint64_t start = now;
        pacer.set(now, rate, 0, 0);
        sent = run(pacer, now, start + kSecond, 1448, punctual);
        near(sent, rate, now - start, pacer.burst() + 1448);
    }
    pacer.set(now, 0, 0, 0);
    assert_false(pacer.limited());
    assert_true(pacer.ready(now, UINT64_MAX));
    assert_int_equal(pacer.due(now, UINT64_MAX), now);
}

// Setting the same rate again and again gives nothing away.
void setting_earns_nothing(void **)
{
    Pacer pacer = pacer_of(kMbit);
    std::uint64_t sent = 0;
    for (unsigned i = 0; i < 1000; ++i) {
        pacer.set(kStart, kMbit, 0, 0);
        for (; pacer.ready(kStart, 100); sent += 100)
            pacer.take(100);
    }
    assert_true(sent <= pacer.burst());
}

void extremes_do_not_overflow(void **)
{
    Pacer fast = pacer_of(UINT64_MAX - 1, UINT32_MAX);
    for (std::uint64_t i = 0; i < 100; ++i) {
        assert_true(fast.ready(kStart + i, UINT64_MAX));
        fast.take(UINT64_MAX);
        assert_true(fast.due(kStart + i, UINT64_MAX) <= kStart + i + 1);
    }
    Pacer slow = pacer_of(1, UINT32_MAX);
    assert_true(slow.ready(kStart, UINT64_MAX));
    slow.take(UINT64_MAX);
    // Half the longest burst is owed.
    assert_false(slow.ready(kStart + kSecond, 1));
    assert_true(slow.due(kStart, UINT64_MAX) >= kStart + UINT32_MAX / 2 * kSecond);
    assert_true(slow.ready(UINT64_MAX, UINT64_MAX)); // some 580 years later
    Pacer last;
    last.set(UINT64_MAX - 5, 1, 10, 0);
    last.take(10);
    assert_int_equal(last.due(UINT64_MAX - 5, 1), UINT64_MAX);
    last.set(UINT64_MAX - 5, Pacer::kUnlimited, 0, 0);
    assert_false(last.limited());
}

void a_clock_that_goes_back_earns_nothing(void **)
{
    Pacer pacer = pacer_of(kMbit, 3000);
    pacer.take(1500);
    assert_false(pacer.ready(kStart - kSecond, 1));
    assert_false(pacer.ready(0, 1));
    assert_true(pacer.ready(kStart + 8000, 1));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(rate_is_held_for_all_chunks),
        cmocka_unit_test(the_first_second_is_within_two_percent),
        cmocka_unit_test(late_wake_ups_are_caught_up_with),
        cmocka_unit_test(no_drift),
        cmocka_unit_test(a_slow_rate_is_held_from_the_first_second),
        cmocka_unit_test(bursts_are_bounded),
        cmocka_unit_test(a_long_message_goes_whole_and_is_paid_for),
        cmocka_unit_test(a_busy_processor_is_made_up_for),
        cmocka_unit_test(lost_time_is_bounded),
        cmocka_unit_test(a_new_rate_holds_from_its_moment),
        cmocka_unit_test(setting_earns_nothing),
        cmocka_unit_test(extremes_do_not_overflow),
        cmocka_unit_test(a_clock_that_goes_back_earns_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
