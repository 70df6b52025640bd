// SPDX-License-Identifier: BSD-2-Clause
// The windows against their RFCs' equations, computed here once more: RFC 5681 in segments a round trip, RFC 9438 in
// closed form.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cmath>

#include "prov/vma/src/inet/tcp/congestion.hpp"

namespace {

using namespace vma::inet;

constexpr std::uint32_t kMss = 1448;
constexpr Nanos kRtt = 100 * kMillisecond;

double segments(const Congestion &c)
{
    return static_cast<double>(c.window()) / kMss;
}

// A round trip: a window's worth of acknowledgements, one for every second segment.
void round_trip(Congestion &c, Nanos &now)
{
    const std::uint32_t window = c.window();
    for (std::uint32_t acked = 0; acked + 2 * kMss <= window; acked += 2 * kMss) {
        now += kRtt * 2 * kMss / window;
        c.on_ack(now, 2 * kMss, kRtt);
    }
}

void begins_with_ten_segments_and_doubles(void **)
{
    for (const auto algorithm : {CongestionAlgorithm::kReno, CongestionAlgorithm::kCubic}) {
        Congestion c;
        Nanos now = kSecond;
        c.start(algorithm, kMss);
        assert_int_equal(c.window(), 10 * kMss);
        for (double expected = 20; expected <= 640; expected *= 2) {
            round_trip(c, now);
            assert_true(std::fabs(segments(c) - expected) < 0.01 * expected);
        }
    }
}

void reno_halves_and_adds_one_a_round_trip(void **)
{
    Congestion c;
    Nanos now = kSecond;
    c.start(CongestionAlgorithm::kReno, kMss);
    while (segments(c) < 100)
        round_trip(c, now);
    const double before = segments(c);
    c.on_loss(c.window());
    c.end_recovery(now);
    assert_true(std::fabs(segments(c) - before / 2) < 1);
    for (int i = 1; i <= 20; ++i) {
        round_trip(c, now);
        assert_true(std::fabs(segments(c) - before / 2 - i) < 0.05 * i + 1);
    }
}

// W_cubic(t) = C (t - K)^3 + W_max, K = cbrt((W_max - cwnd) / C): RFC 9438, 4.2; within 5 % over two minutes. Both
// sides of the plateau are passed, and the window is large enough for the Reno-friendly region not to count.
void cubic_follows_its_function(void **)
{
    Congestion c;
    Nanos now = kSecond;
    c.start(CongestionAlgorithm::kCubic, kMss);
    while (segments(c) < 4000)
        round_trip(c, now);
    const double most = segments(c);
    c.on_loss(c.window());
    c.end_recovery(now);
    const double floor = segments(c);
    assert_true(std::fabs(floor - 0.7 * most) < 2);
    c.on_ack(now, 1, kRtt); // the epoch begins
    const Nanos epoch = now;
    const double k = std::cbrt((most - floor) / 0.4);
    double worst = 0;
    while (now - epoch < 40 * kSecond) {
        round_trip(c, now);
        const double t = static_cast<double>(now - epoch) / 1e9;
        const double expected = 0.4 * std::pow(t - k, 3) + most;
        worst = std::max(worst, std::fabs(segments(c) - expected) / expected);
    }
    print_message("# K = %.2f s, at most %.2f %% away\n", k, worst * 100);
    assert_true(segments(c) > 1.2 * most); // it has passed the plateau
    assert_true(worst < 0.05);
}

// Where CUBIC would be slower than Reno it is as fast (RFC 9438, 4.3): small windows, short round trips.
void cubic_is_no_slower_than_reno(void **)
{
    Congestion c;
    Nanos now = kSecond;
    c.start(CongestionAlgorithm::kCubic, kMss);
    round_trip(c, now); // 20 segments
    c.on_loss(c.window());
    c.end_recovery(now);
    const double from = segments(c);
    constexpr double kAlpha = 3 * 0.3 / 1.7;
    const Nanos begin = now;
    double trips = 0;
    while (now - begin < 500 * kMillisecond) { // round trips of a millisecond
        const std::uint32_t window = c.window();
        for (std::uint32_t acked = 0; acked + kMss <= window; acked += kMss) {
            now += kMillisecond * kMss / window;
            c.on_ack(now, kMss, kMillisecond);
        }
        ++trips;
        if (segments(c) < 20) { // until it has what it had, then faster
            assert_true(segments(c) > from + kAlpha * (trips - 1) * 0.9);
            assert_true(segments(c) < from + kAlpha * (trips + 1) * 1.1);
        }
    }
    assert_true(segments(c) > 20 + 0.8 * (trips - (20 - from) / kAlpha)); // alpha is 1 then
}

void fast_convergence_gives_room(void **)
{
    Congestion c;
    Nanos now = kSecond;
    c.start(CongestionAlgorithm::kCubic, kMss);
    while (segments(c) < 1000)
        round_trip(c, now);
    c.on_loss(c.window());
    c.end_recovery(now);
    const double second = segments(c); // a loss below the last maximum: somebody else wants a share
    c.on_loss(c.window());
    c.end_recovery(now);
    assert_true(std::fabs(segments(c) - 0.7 * second) < 2);
    const double plateau = second * 1.7 / 2;
    double last = segments(c);
    double slowest = 1e9;
    double at_slowest = 0;
    while (segments(c) < 1.1 * second) {
        round_trip(c, now);
        if (segments(c) - last < slowest) {
            slowest = segments(c) - last;
            at_slowest = segments(c);
        }
        last = segments(c);
    }
    assert_true(std::fabs(at_slowest - plateau) < 0.1 * plateau);
}

void a_time_out_leaves_one_segment_and_undo_gives_all_back(void **)
{
    Congestion c;
    Nanos now = kSecond;
    c.start(CongestionAlgorithm::kCubic, kMss);
    while (segments(c) < 100)
        round_trip(c, now);
    const std::uint32_t window = c.window();
    c.on_timeout(window, true);
    assert_int_equal(c.window(), kMss);
    assert_true(c.slow_start());
    const std::uint32_t threshold = c.threshold();
    c.on_timeout(kMss, false); // the same segment again: RFC 5681, 3.1
    assert_int_equal(c.threshold(), threshold);
    c.undo();
    assert_int_equal(c.window(), window);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_ten_segments_and_doubles),
        cmocka_unit_test(reno_halves_and_adds_one_a_round_trip),
        cmocka_unit_test(cubic_follows_its_function),
        cmocka_unit_test(cubic_is_no_slower_than_reno),
        cmocka_unit_test(fast_convergence_gives_room),
        cmocka_unit_test(a_time_out_leaves_one_segment_and_undo_gives_all_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
