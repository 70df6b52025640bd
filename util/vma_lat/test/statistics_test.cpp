// SPDX-License-Identifier: BSD-2-Clause
// Percentiles and histogram of vma_lat, against sorting; and the reckoning of sequence numbers.
#include "fabtests/unit.hpp"

#include "util/vma_lat/measure/message.hpp"
#include "util/vma_lat/measure/statistics.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace {

using namespace vma::lat;

void histogram_buckets_join(void **)
{
    // Every bucket begins where the one before ends, and finds itself.
    for (std::size_t i = 0; i + 1 < Histogram::index_of(UINT64_MAX); ++i) {
        assert_int_equal(Histogram::smallest_in(i + 1), Histogram::largest_in(i) + 1);
        assert_int_equal(Histogram::index_of(Histogram::smallest_in(i)), i);
        assert_int_equal(Histogram::index_of(Histogram::largest_in(i)), i);
    }
    assert_true(Histogram::largest_in(Histogram::index_of(UINT64_MAX)) == UINT64_MAX);
}

void histogram_keeps_the_promised_precision(void **)
{
    for (std::uint64_t value = 1; value < UINT64_MAX / 3; value = value * 3 + 1) {
        Histogram histogram;
        histogram.add(value);
        const std::uint64_t told = histogram.value_at_rank(1);
        assert_true(told >= value);
        assert_true(told - value <= value / 128);
    }
}

void bars_have_every_value_once(void **)
{
    Histogram histogram;
    std::vector<std::uint64_t> values = {0, 1, 2, 3, 180, 181, 255, 256, 361, 362, 363, 1000000, UINT64_MAX};
    for (const std::uint64_t value : values)
        histogram.add(value);
    const auto bars = histogram.bars();
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < bars.size(); ++i) {
        assert_true(bars[i].from < bars[i].below);
        if (i > 0)
            assert_true(bars[i].from == bars[i - 1].below);
        const auto inside = [&](std::uint64_t v) {
            return v >= bars[i].from && (v < bars[i].below || bars[i].below == UINT64_MAX);
        };
        assert_int_equal(bars[i].count, std::count_if(values.begin(), values.end(), inside));
        total += bars[i].count;
    }
    assert_int_equal(total, values.size());
    assert_true(Histogram().bars().empty());
}

void ranks_are_nearest(void **)
{
    assert_int_equal(rank_of(50, 1), 1);
    assert_int_equal(rank_of(50, 2), 1);
    assert_int_equal(rank_of(50, 3), 2);
    assert_int_equal(rank_of(99, 100), 99);
    assert_int_equal(rank_of(99.9, 1000), 999);
    assert_int_equal(rank_of(99.9, 1001), 1000);
    assert_int_equal(rank_of(99.99, 10), 10);
    assert_int_equal(rank_of(99.99, 3000000000), 2999700000);
}

void summary_of_nothing(void **)
{
    const Summary summary = Samples(10).summary();
    assert_int_equal(summary.count, 0);
    assert_int_equal(summary.max, 0);
}

// With room for all samples, and with room for half of them.
void summary_agrees_with_sorting(void **)
{
    const unsigned seed = std::random_device()();
    print_message("# seed %u\n", seed);
    std::mt19937 random(seed);
    std::lognormal_distribution<double> latency(8, 1.5);
    constexpr std::size_t kCount = 20000;
    Samples all(kCount);
    Samples half(kCount / 2);
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < kCount; ++i) {
        values.push_back(static_cast<std::uint64_t>(latency(random)));
        all.record(0, i, i, values.back());
        half.record(0, i, i, values.back());
    }
    std::sort(values.begin(), values.end());
    const Summary exact = all.summary();
    const Summary near = half.summary();
    assert_true(exact.exact);
    assert_false(near.exact);
    assert_int_equal(half.kept(), kCount / 2);
    assert_int_equal(near.count, kCount);
    for (const Summary &summary : {exact, near}) {
        assert_int_equal(summary.min, values.front());
        assert_int_equal(summary.max, values.back());
    }
    for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
        const std::uint64_t right = values[rank_of(kPercentiles[i], kCount) - 1];
        assert_int_equal(exact.percentiles[i], right);
        assert_true(near.percentiles[i] >= right);
        assert_true(near.percentiles[i] - right <= right / 128);
    }
}

void sequence_tells_what_came(void **)
{
    using Seen = Sequence::Seen;
    Sequence sequence;
    assert_true(sequence.see(0) == Seen::kNext);
    assert_true(sequence.see(0) == Seen::kDuplicate);
    assert_true(sequence.see(5) == Seen::kNext);
    assert_true(sequence.see(3) == Seen::kReordered);
    assert_true(sequence.see(3) == Seen::kDuplicate);
    assert_true(sequence.see(5) == Seen::kDuplicate);
    assert_true(sequence.see(5 + Sequence::kWindow) == Seen::kNext);
    assert_true(sequence.see(6) == Seen::kReordered);
    assert_true(sequence.see(6) == Seen::kDuplicate);
    assert_true(sequence.see(5) == Seen::kReordered); // too long ago to know
    assert_true(sequence.see(1000000) == Seen::kNext);
    assert_true(sequence.see(999999) == Seen::kReordered);
    assert_true(sequence.see(UINT64_MAX - 1) == Seen::kNext);
}

void pattern_shows_each_damaged_byte(void **)
{
    std::array<std::byte, 100> message{};
    write_header(message.data(), 7, kReplyWanted, 0x123456789abcULL);
    write_pattern(message, 0x123456789abcULL);
    const MessageHeader header = read_header(message.data());
    assert_int_equal(header.session, 7);
    assert_int_equal(header.flags, kReplyWanted);
    assert_true(header.sequence() == 0x123456789abcULL);
    assert_true(pattern_holds(message, header.sequence()));
    for (std::size_t i = kMinSize; i < message.size(); ++i) {
        message[i] ^= std::byte{1};
        assert_false(pattern_holds(message, header.sequence()));
        message[i] ^= std::byte{1};
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(histogram_buckets_join),     cmocka_unit_test(histogram_keeps_the_promised_precision),
        cmocka_unit_test(bars_have_every_value_once), cmocka_unit_test(ranks_are_nearest),
        cmocka_unit_test(summary_of_nothing),         cmocka_unit_test(summary_agrees_with_sorting),
        cmocka_unit_test(sequence_tells_what_came),   cmocka_unit_test(pattern_shows_each_damaged_byte),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
