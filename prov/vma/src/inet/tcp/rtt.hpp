// SPDX-License-Identifier: BSD-2-Clause
// The retransmission time-out from measured round trips (RFC 6298), and the smallest round trip of the last minutes,
// which RACK needs (RFC 8985, 6.2). Nothing here knows what a segment is.
#pragma once

#include <algorithm>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

class RoundTrip
{
public:
    static constexpr Nanos kFirstRto = kSecond;            // RFC 6298, 2.1
    static constexpr Nanos kAfterLostSyn = 3 * kSecond;    // RFC 6298, 5.7
    static constexpr Nanos kLeastRto = 200 * kMillisecond; // RFC 6298 says a second; Linux, and every peer, 200 ms
    static constexpr Nanos kMostRto = 120 * kSecond;       // RFC 6298, 2.5: at least 60 s
    static constexpr Nanos kGranularity = kMillisecond;    // G of RFC 6298
    static constexpr Nanos kMinimumLasts = 300 * kSecond;

    void sample(Nanos rtt, Nanos now) // RFC 6298, 2.2 and 2.3
    {
        rtt = std::max<Nanos>(rtt, 1);
        if (smoothed_ == 0) {
            smoothed_ = rtt;
            variation_ = rtt / 2;
        } else {
            const Nanos error = smoothed_ > rtt ? smoothed_ - rtt : rtt - smoothed_;
            variation_ = variation_ - variation_ / 4 + error / 4;
            smoothed_ = smoothed_ - smoothed_ / 8 + rtt / 8;
        }
        if (rtt <= least_ || now - least_at_ > kMinimumLasts) {
            least_ = rtt;
            least_at_ = now;
        }
        backoff_ = 0;
    }

    Nanos rto() const
    {
        const Nanos base =
            smoothed_ == 0 ? first_ : std::max(kLeastRto, smoothed_ + std::max(kGranularity, 4 * variation_));
        return std::min(kMostRto, std::min(kMostRto, base) << std::min(backoff_, 16U));
    }

    void syn_was_lost() { first_ = kAfterLostSyn; } // until there is a sample
    void back_off() { ++backoff_; }                 // RFC 6298, 5.5
    void forget_backoff() { backoff_ = 0; }         // new data was acknowledged
    unsigned backoff() const { return backoff_; }

    bool known() const { return smoothed_ != 0; }
    Nanos smoothed() const { return smoothed_; }
    Nanos variation() const { return variation_; }
    Nanos least() const { return least_; } // kNever: no sample yet

private:
    Nanos first_ = kFirstRto;
    Nanos smoothed_ = 0; // 0: nothing measured yet
    Nanos variation_ = 0;
    Nanos least_ = kNever;
    Nanos least_at_ = 0;
    unsigned backoff_ = 0;
};

} // namespace vma::inet
