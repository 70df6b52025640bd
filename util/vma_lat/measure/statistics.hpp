// SPDX-License-Identifier: BSD-2-Clause
// Samples of a test and what they amount to. All memory is taken, and touched, before the test: recording allocates
// nothing and faults nowhere. Samples beyond the room count in the histogram; percentiles are then as exact as that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vma::lat {

// Counts of values by size. Values below 256 are told apart one by one, larger ones within 1/128 of themselves.
class Histogram
{
public:
    Histogram();

    void add(std::uint64_t value)
    {
        ++counts_[index_of(value)];
        ++total_;
    }
    std::uint64_t total() const { return total_; }
    std::uint64_t value_at_rank(std::uint64_t rank) const; // the rank-th smallest, from 1; at most 1/128 too large

    struct Bar {
        std::uint64_t from = 0; // values from..below
        std::uint64_t below = 0;
        std::uint64_t count = 0;
    };
    std::vector<Bar> bars() const; // two an octave, from the first with a value to the last

    static std::size_t index_of(std::uint64_t value);
    static std::uint64_t largest_in(std::size_t index);
    static std::uint64_t smallest_in(std::size_t index);

private:
    static constexpr unsigned kBits = 7;
    static constexpr std::size_t kSize = (64 - kBits + 1) << kBits;

    std::vector<std::uint64_t> counts_;
    std::uint64_t total_ = 0;
};

inline constexpr std::array<double, 5> kPercentiles = {50, 90, 99, 99.9, 99.99};
inline constexpr std::array<const char *, 5> kPercentileNames = {"p50", "p90", "p99", "p99.9", "p99.99"};

struct Summary {
    std::uint64_t count = 0;
    std::uint64_t min = 0; // ns, as all of them
    double mean = 0;
    std::array<std::uint64_t, kPercentiles.size()> percentiles{};
    std::uint64_t max = 0;
    bool exact = true; // of every sample, not from the histogram
};

// Of n sorted values the one that `percent` of them do not exceed: the nearest rank, from 1 to n.
std::uint64_t rank_of(double percent, std::uint64_t n);

struct Sample {
    std::uint64_t sequence = 0;
    std::uint64_t sent_ns = 0; // since the start of the test
    std::uint32_t channel = 0;
    std::uint32_t rtt_ns = 0; // 4.2 s at most
};

class Samples
{
public:
    explicit Samples(std::size_t room);

    void record(std::uint32_t channel, std::uint64_t sequence, std::uint64_t sent_ns, std::uint64_t rtt_ns)
    {
        if (kept_ < room_.size())
            room_[kept_++] = {sequence, sent_ns, channel,
                              static_cast<std::uint32_t>(rtt_ns < UINT32_MAX ? rtt_ns : UINT32_MAX)};
        histogram_.add(rtt_ns);
        sum_ += rtt_ns;
        min_ = rtt_ns < min_ ? rtt_ns : min_;
        max_ = rtt_ns > max_ ? rtt_ns : max_;
    }
    std::size_t kept() const { return kept_; }
    const Sample &operator[](std::size_t i) const { return room_[i]; }
    const Histogram &histogram() const { return histogram_; }
    Summary summary() const;

private:
    std::vector<Sample> room_;
    std::size_t kept_ = 0;
    Histogram histogram_;
    std::uint64_t sum_ = 0;
    std::uint64_t min_ = UINT64_MAX;
    std::uint64_t max_ = 0;
};

} // namespace vma::lat
