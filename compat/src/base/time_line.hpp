// SPDX-License-Identifier: BSD-2-Clause
// What a time by one clock is by another, from moments at which both were read: VMA_HW_TS_CONVERSION. No clock is read
// here, nothing is allocated. doc/time-stamps.md, "By which clock".
#pragma once

#include <cstdint>

namespace vma::sock {

// Times in ns. `to` is no farther off than `within`.
struct Moment {
    std::int64_t from;
    std::int64_t to;
    std::int64_t within;
};

// Three straight pieces that meet: what was said before `from`, how the error that was found there goes away, and the
// rest. A later time never becomes an earlier one.
class Line
{
public:
    std::int64_t at(std::int64_t time) const noexcept
    {
        const std::int64_t passed = less(time, from_);
        if (passed < 0)
            return go(to_, passed, before_);
        return passed < kMending ? go(to_, passed, mending_) : go(mended_, passed - kMending, after_);
    }

    // It goes on from where it is at `from`, is right again after kMending where it was off by so much, and then goes
    // so much faster than the first clock (a share, no more than kMostRate).
    Line mended(std::int64_t from, std::int64_t off, double rate) const noexcept;
    // It begins anew.
    static Line through(std::int64_t from, std::int64_t to, double rate) noexcept;

    static constexpr std::int64_t kMending = 1'000'000'000; // ns
    static constexpr double kMostRate = 2e-3;

private:
    // Of numbers from anywhere: they wrap.
    static std::int64_t less(std::int64_t a, std::int64_t b) noexcept
    {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
    }
    static std::int64_t plus(std::int64_t a, std::int64_t b) noexcept
    {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    }
    static std::int64_t go(std::int64_t from, std::int64_t passed, double rate) noexcept
    {
        return plus(plus(from, passed), static_cast<std::int64_t>(static_cast<double>(passed) * rate));
    }

    std::int64_t from_ = 0;
    std::int64_t to_ = 0;
    std::int64_t mended_ = kMending; // at from_ and kMending
    double before_ = 0;              // how much faster the second clock goes than the first, as a share
    double mending_ = 0;
    double after_ = 0;
};

// Follows two clocks. Small differences are mended in a second, so that times keep their order; where one of the clocks
// was set, it begins anew.
class TimeLine
{
public:
    // What was read, in the order in which it was, every second or oftener at first. False: it says too little to be
    // used.
    bool add(const Moment &moment) noexcept;

    bool is_known() const noexcept { return known_; }
    const Line &line() const noexcept { return line_; }

    static constexpr std::int64_t kStep = 1'000'000; // ns: who is off by more was set

private:
    void begin(const Moment &moment) noexcept;
    void measure(const Moment &moment) noexcept;

    bool known_ = false;
    Line line_;
    double rate_ = 0;
    Moment last_{};
    Moment anchor_{}; // the rate is measured since then
    Moment next_anchor_{};
};

} // namespace vma::sock
