// SPDX-License-Identifier: BSD-2-Clause
// The two window functions. CUBIC counts in segments and seconds, as its RFC does, and in doubles, as it has a cube
// root.
#include "prov/vma/src/inet/tcp/congestion.hpp"

#include <algorithm>
#include <cmath>

namespace vma::inet {

namespace {

constexpr std::uint32_t kInitialSegments = 10; // RFC 6928
constexpr double kLargestWindow = 1U << 30;    // RFC 7323, 2.2: more can't be advertised

double seconds(Nanos t)
{
    return static_cast<double>(t) / static_cast<double>(kSecond);
}

} // namespace

void Congestion::start(CongestionAlgorithm algorithm, std::uint32_t mss)
{
    *this = Congestion();
    algorithm_ = algorithm;
    mss_ = mss;
    window_ = static_cast<double>(kInitialSegments) * mss;
}

void Congestion::change(CongestionAlgorithm algorithm)
{
    algorithm_ = algorithm;
    epoch_ = 0;
}

void Congestion::on_ack(Nanos now, std::uint32_t acked, Nanos smoothed_rtt)
{
    if (slow_start()) { // RFC 5681, 3.1 with RFC 3465's L unbounded, as acknowledgements are often stretched
        const double room = static_cast<double>(threshold_) - window_;
        const double grows = std::min(static_cast<double>(acked), room);
        window_ = std::min(window_ + grows, kLargestWindow);
        acked -= static_cast<std::uint32_t>(grows);
        if (acked == 0)
            return;
    }
    if (algorithm_ == CongestionAlgorithm::kCubic)
        cubic(now, acked, smoothed_rtt);
    else
        reno(acked);
    window_ = std::min(window_, kLargestWindow);
}

void Congestion::reno(std::uint32_t acked)
{
    window_ += static_cast<double>(mss_) * acked / window_;
}

// RFC 9438, 4.2: the epoch begins with the first acknowledgement of congestion avoidance.
void Congestion::begin_epoch(Nanos now)
{
    const double segments = window_ / mss_;
    epoch_ = now;
    estimate_ = segments;
    if (most_ <= segments) {
        most_ = segments;
        origin_ = 0;
    } else {
        origin_ = std::cbrt((most_ - segments) / kCubicC);
    }
    if (prior_ == 0)
        prior_ = segments;
}

void Congestion::cubic(Nanos now, std::uint32_t acked, Nanos smoothed_rtt)
{
    if (epoch_ == 0)
        begin_epoch(now);
    const double segments = window_ / mss_;
    const double acked_segments = static_cast<double>(acked) / mss_;
    const double t = seconds(now - epoch_);
    const auto function = [this](double at) { return kCubicC * std::pow(at - origin_, 3) + most_; };

    constexpr double kAlpha = 3 * (1 - kCubicBeta) / (1 + kCubicBeta); // RFC 9438, 4.3
    estimate_ += (estimate_ >= prior_ ? 1.0 : kAlpha) * acked_segments / segments;

    double next = segments;
    if (function(t) < estimate_) {
        next = std::max(segments, estimate_);
    } else {
        const double target = std::clamp(function(t + seconds(smoothed_rtt)), segments, 1.5 * segments);
        next += (target - segments) / segments * acked_segments;
    }
    window_ = next * mss_;
}

void Congestion::on_loss(std::uint32_t in_flight)
{
    undo_window_ = window_;
    undo_threshold_ = threshold_;
    undo_most_ = most_;
    const double flight = std::min(static_cast<double>(in_flight), window_);
    const double beta = algorithm_ == CongestionAlgorithm::kCubic ? kCubicBeta : 0.5;
    if (algorithm_ == CongestionAlgorithm::kCubic) {
        const double segments = window_ / mss_;
        prior_ = segments;
        most_ = segments < most_ ? segments * (1 + kCubicBeta) / 2 : segments; // fast convergence: RFC 9438, 4.7
        epoch_ = 0;
    }
    threshold_ = std::max(static_cast<std::uint32_t>(flight * beta), 2 * mss_);
}

void Congestion::on_timeout(std::uint32_t in_flight, bool first)
{
    if (first) // RFC 5681, 3.1: the same segment's next time-outs don't lower the threshold again
        on_loss(in_flight);
    window_ = mss_;
    epoch_ = 0;
}

void Congestion::after_idle()
{
    window_ = std::min(window_, static_cast<double>(kInitialSegments) * mss_);
    epoch_ = 0;
}

void Congestion::set_window(std::uint32_t bytes)
{
    window_ = std::max(bytes, mss_);
}

void Congestion::end_recovery(Nanos)
{
    window_ = threshold_;
    epoch_ = 0;
}

void Congestion::undo()
{
    window_ = std::max(window_, undo_window_);
    threshold_ = std::max(threshold_, undo_threshold_);
    most_ = undo_most_;
    epoch_ = 0;
}

} // namespace vma::inet
