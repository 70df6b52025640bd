// SPDX-License-Identifier: BSD-2-Clause
// How much may be under way: NewReno (RFC 5681, 6582) and CUBIC (RFC 9438), windows in bytes. Which segments are lost
// is decided elsewhere (recovery.cpp); here a loss is a call.
#pragma once

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

enum class CongestionAlgorithm : std::uint8_t { kReno, kCubic };

class Congestion
{
public:
    void start(CongestionAlgorithm algorithm, std::uint32_t mss); // RFC 6928: ten segments
    void change(CongestionAlgorithm algorithm);
    void set_mss(std::uint32_t mss) { mss_ = mss; }

    // `acked` bytes were delivered, and the window was what held the sender back (else it doesn't grow: RFC 9438, 5.8).
    void on_ack(Nanos now, std::uint32_t acked, Nanos smoothed_rtt);

    void on_loss(std::uint32_t in_flight);                // once a round trip: the new threshold, not yet the window
    void on_timeout(std::uint32_t in_flight, bool first); // RFC 5681, 3.1: one segment
    void after_idle();                                    // RFC 5681, 4.1
    void set_window(std::uint32_t bytes);                 // what recovery says (RFC 6937)
    void end_recovery(Nanos now);                         // the window becomes the threshold
    void undo();                                          // the last loss was none (RFC 3522, 4015): all as before it

    std::uint32_t window() const { return static_cast<std::uint32_t>(window_); }
    std::uint32_t threshold() const { return threshold_; }
    bool slow_start() const { return window_ < threshold_; }
    CongestionAlgorithm algorithm() const { return algorithm_; }

    static constexpr double kCubicBeta = 0.7; // RFC 9438, 4.6
    static constexpr double kCubicC = 0.4;    // RFC 9438, 5.1; segments per second cubed

private:
    void reno(std::uint32_t acked);
    void cubic(Nanos now, std::uint32_t acked, Nanos smoothed_rtt);
    void begin_epoch(Nanos now);

    CongestionAlgorithm algorithm_ = CongestionAlgorithm::kCubic;
    std::uint32_t mss_ = 536;
    double window_ = 0;
    std::uint32_t threshold_ = ~std::uint32_t{0};

    // CUBIC, in segments.
    double most_ = 0;     // W_max
    double estimate_ = 0; // W_est
    double prior_ = 0;    // cwnd_prior
    double origin_ = 0;   // K, in seconds
    Nanos epoch_ = 0;     // 0: none

    double undo_window_ = 0;
    std::uint32_t undo_threshold_ = 0;
    double undo_most_ = 0;
};

} // namespace vma::inet
