// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace vma::lat {

Histogram::Histogram() : counts_(kSize) {}

std::size_t Histogram::index_of(std::uint64_t value)
{
    const auto width = static_cast<unsigned>(std::bit_width(value));
    const unsigned shift = width > kBits + 1 ? width - kBits - 1 : 0;
    return (std::size_t{shift} << kBits) + static_cast<std::size_t>(value >> shift);
}

std::uint64_t Histogram::smallest_in(std::size_t index)
{
    const std::size_t octave = index >> kBits;
    if (octave < 2)
        return index;
    const std::uint64_t mantissa = (std::uint64_t{1} << kBits) + (index & ((1U << kBits) - 1));
    return mantissa << (octave - 1);
}

std::uint64_t Histogram::largest_in(std::size_t index)
{
    return index + 1 < kSize ? smallest_in(index + 1) - 1 : UINT64_MAX;
}

std::uint64_t Histogram::value_at_rank(std::uint64_t rank) const
{
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        before += counts_[i];
        if (before >= rank)
            return largest_in(i);
    }
    return 0;
}

// An octave is split at some square root of two, where a bucket begins: bar 1 + 2 * octave, and the one after it.
std::vector<Histogram::Bar> Histogram::bars() const
{
    const auto middle = [](std::uint64_t octave) { return octave + octave / 128 * 53 + octave % 128 * 53 / 128; };
    std::vector<Bar> bars{{0, 1, 0}};
    for (unsigned i = 0; i < 64; ++i) {
        const std::uint64_t octave = std::uint64_t{1} << i;
        bars.push_back({octave, middle(octave), 0});
        bars.push_back({middle(octave), i < 63 ? octave * 2 : UINT64_MAX, 0});
    }
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        const std::uint64_t value = smallest_in(i);
        const auto width = static_cast<std::size_t>(std::bit_width(value));
        bars[width == 0 ? 0 : 2 * width - 1 + (value >= bars[2 * width].from ? 1 : 0)].count += counts_[i];
    }
    std::erase_if(bars, [](const Bar &bar) { return bar.from == bar.below; });
    const auto filled = [](const Bar &bar) { return bar.count != 0; };
    bars.erase(std::find_if(bars.rbegin(), bars.rend(), filled).base(), bars.end());
    bars.erase(bars.begin(), std::find_if(bars.begin(), bars.end(), filled));
    return bars;
}

std::uint64_t rank_of(double percent, std::uint64_t n)
{
    // Per million, so that 99.9 of 1000 is rank 999 and no rounding makes it 1000.
    const auto share = static_cast<std::uint64_t>(std::llround(percent * 10000));
    const std::uint64_t rank = n / 1000000 * share + (n % 1000000 * share + 999999) / 1000000;
    return std::clamp<std::uint64_t>(rank, 1, std::max<std::uint64_t>(n, 1));
}

// Touched here: a vector's elements are written when it is made.
Samples::Samples(std::size_t room) : room_(room) {}

Summary Samples::summary() const
{
    Summary out;
    out.count = histogram_.total();
    if (out.count == 0)
        return out;
    out.min = min_;
    out.max = max_;
    out.mean = static_cast<double>(sum_) / static_cast<double>(out.count);
    out.exact = kept_ == out.count && max_ < UINT32_MAX;
    std::vector<std::uint32_t> sorted;
    if (out.exact) {
        sorted.reserve(kept_);
        for (std::size_t i = 0; i < kept_; ++i)
            sorted.push_back(room_[i].rtt_ns);
        std::sort(sorted.begin(), sorted.end());
    }
    for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
        const std::uint64_t rank = rank_of(kPercentiles[i], out.count);
        out.percentiles[i] = out.exact ? sorted[rank - 1] : std::min(histogram_.value_at_rank(rank), max_);
    }
    return out;
}

} // namespace vma::lat
