// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/time_line.hpp"

#include <algorithm>

namespace vma::sock {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMostWithin = 100'000;      // ns: whoever read the clocks was interrupted
constexpr std::int64_t kPatience = 10 * kSecond;   // a doubtful moment is better than none since then
constexpr std::int64_t kLeastSpan = 10'000'000;    // ns, to measure a rate by
constexpr std::int64_t kAnchorEvery = 8 * kSecond; // the rate is that of the last 8 to 16 s
constexpr double kMostDrift = 1e-3;                // of quartzes it is below 1e-4
constexpr double kMostDoubt = 1e-4;                // a rate that is less certain is no better than none

std::uint64_t distance(std::int64_t a, std::int64_t b)
{
    const std::uint64_t difference = static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
    return std::min(difference, 0 - difference);
}

// Of numbers that may be far apart.
double apart(std::int64_t a, std::int64_t b)
{
    return static_cast<double>(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)));
}

} // namespace

Line Line::through(std::int64_t from, std::int64_t to, double rate) noexcept
{
    Line made;
    made.from_ = from;
    made.to_ = to;
    made.before_ = made.mending_ = made.after_ = std::clamp(rate, -kMostRate, kMostRate);
    made.mended_ = go(to, kMending, made.mending_);
    return made;
}

Line Line::mended(std::int64_t from, std::int64_t off, double rate) const noexcept
{
    const bool was_mending = less(from, from_) < kMending;
    Line made = through(from, at(from), rate);
    made.before_ = was_mending ? mending_ : after_;
    made.mending_ =
        std::clamp(made.after_ + static_cast<double>(off) / static_cast<double>(kMending), -kMostRate, kMostRate);
    made.mended_ = go(made.to_, kMending, made.mending_);
    return made;
}

// The rate is still what it was, if the clocks were read before.
void TimeLine::begin(const Moment &moment) noexcept
{
    known_ = true;
    line_ = Line::through(moment.from, moment.to, rate_);
    last_ = anchor_ = next_anchor_ = moment;
}

void TimeLine::measure(const Moment &moment) noexcept
{
    const double span = apart(moment.from, anchor_.from);
    const double doubt = static_cast<double>(moment.within) + static_cast<double>(anchor_.within);
    if (span >= static_cast<double>(kLeastSpan) && doubt <= span * kMostDoubt)
        rate_ = std::clamp((apart(moment.to, anchor_.to) - span) / span, -kMostDrift, kMostDrift);
    if (apart(moment.from, next_anchor_.from) >= static_cast<double>(kAnchorEvery)) {
        anchor_ = next_anchor_;
        next_anchor_ = moment;
    }
}

bool TimeLine::add(const Moment &moment) noexcept
{
    if (!known_) {
        begin(moment);
        return true;
    }
    const double passed = apart(moment.from, last_.from);
    if (moment.within > kMostWithin && passed >= 0 && passed < static_cast<double>(kPatience))
        return false;
    const std::int64_t said = line_.at(moment.from);
    const std::uint64_t slack =
        static_cast<std::uint64_t>(kStep) + static_cast<std::uint64_t>(std::max<std::int64_t>(moment.within, 0));
    if (passed <= 0 || distance(moment.to, said) > slack) {
        begin(moment);
        return true;
    }
    measure(moment);
    line_ = line_.mended(moment.from, moment.to - said, rate_);
    last_ = moment;
    return true;
}

} // namespace vma::sock
