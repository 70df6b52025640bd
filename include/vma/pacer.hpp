// SPDX-License-Identifier: BSD-2-Clause
// A rate limit as arithmetic: told the time and how many bytes are to go, it says whether they may, and if not, when.
// It reads no clock and waits for nobody. Both libraries use it, so it stands here; it is not installed. doc/pacing.md
// tells why so.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vma {

// A token bucket that counts in 1e-9 bytes: what a nanosecond earns at a rate in bytes a second is then a whole number,
// and nothing is ever rounded. Not thread-safe. Times are ns of any clock that doesn't go back (where one does, nothing
// is earned until it has caught up).
class Pacer
{
public:
    static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
    static constexpr std::uint32_t kTypicalPacket = 1500;

    // `rate` in bytes a second, 0 or kUnlimited: none. `max_burst` in bytes, 0: chosen here. `typical_packet` in bytes,
    // 0: kTypicalPacket. What was earned at the old rate, or is owed, stays. A limit that is new begins with half a
    // burst.
    void set(std::uint64_t now, std::uint64_t rate, std::uint32_t max_burst, std::uint16_t typical_packet) noexcept
    {
        if (rate == kUnlimited)
            rate = 0;
        earn(now);
        const bool fresh = rate_ == 0;
        rate_ = rate;
        typical_packet_ = typical_packet;
        wanted_burst_ = max_burst;
        burst_ = max_burst ? max_burst : default_burst(rate, packet_or(typical_packet));
        last_ = now;
        credit_ = fresh ? units(burst_) / 2 : std::min(credit_, units(burst_));
        held_ = false;
        lost_ = 0;
    }

    bool limited() const noexcept { return rate_ != 0; }
    std::uint64_t rate() const noexcept { return rate_; }
    std::uint32_t burst() const noexcept { return burst_; } // what holds: the one asked for, or the one chosen
    std::uint16_t typical_packet() const noexcept { return typical_packet_; }
    // Who can cut its bytes anywhere sends so many at a time. At least 1; no less than a packet where the burst was
    // chosen here, for what is cut shorter only comes in pieces.
    std::uint32_t piece() const noexcept
    {
        return wanted_burst_ != 0 ? half() : std::max<std::uint32_t>(half(), packet_or(typical_packet_));
    }

    // Whether so many bytes may go now. They go whole: of what is longer than a piece, as much is owed as there was no
    // credit for, and paid back before anything follows.
    bool ready(std::uint64_t now, std::uint64_t bytes) noexcept
    {
        if (!rate_)
            return true;
        earn(now);
        return credit_ >= needed(bytes);
    }

    // When ready() turns true if nothing goes before: `now` or later, to the nanosecond. Whoever is told to wait has
    // something to send: if he comes back so late that the bucket is full, what he lost is made up for, at up to twice
    // the rate.
    std::uint64_t due(std::uint64_t now, std::uint64_t bytes) noexcept
    {
        if (ready(now, bytes))
            return now;
        held_ = true;
        const auto missing = static_cast<std::uint64_t>(needed(bytes)) - static_cast<std::uint64_t>(credit_);
        const std::uint64_t time = missing / rate_ + (missing % rate_ != 0);
        const std::uint64_t wait = time > 2 * lost_ ? time - lost_ : time - time / 2;
        return wait > kUnlimited - now ? kUnlimited : now + wait;
    }

    // They go. After ready() or due(), at the same time.
    void take(std::uint64_t bytes) noexcept
    {
        held_ = false;
        if (rate_)
            credit_ -= units(std::min(bytes, kMostAtOnce));
    }

private:
    static constexpr std::int64_t kUnit = 1'000'000'000;
    static constexpr std::uint64_t kMostAtOnce = UINT32_MAX; // a longer one counts as so long: the sums fit 64 bits
    static constexpr std::uint64_t kMostLost = 50'000'000;   // ns

    static constexpr std::int64_t units(std::uint64_t bytes) noexcept
    {
        return static_cast<std::int64_t>(bytes) * kUnit;
    }

    static constexpr std::uint32_t packet_or(std::uint16_t typical) noexcept
    {
        return typical != 0 ? typical : kTypicalPacket;
    }

    // Half of it must last for as long as a thread takes to wake up, or the rate is not reached: 1 ms, as long as Linux
    // lets TCP fill a queue ahead. Not less than two packets, unless these were seconds of a slow rate: then 50 ms.
    static std::uint32_t default_burst(std::uint64_t rate, std::uint32_t packet) noexcept
    {
        const std::uint64_t least = std::min(std::uint64_t{packet} * 2, std::max<std::uint64_t>(rate / 20, 2));
        return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rate / 500, least, UINT32_MAX));
    }

    std::uint32_t half() const noexcept { return std::max(burst_ / 2, 1U); }
    std::int64_t needed(std::uint64_t bytes) const noexcept { return units(std::min<std::uint64_t>(bytes, half())); }

    void earn(std::uint64_t now) noexcept
    {
        if (now <= last_)
            return;
        std::uint64_t elapsed = now - last_;
        last_ = now;
        if (!rate_)
            return;
        const std::uint64_t made_up = std::min({elapsed, lost_, kUnlimited - elapsed});
        lost_ -= made_up;
        elapsed += made_up;
        const auto room = static_cast<std::uint64_t>(units(burst_)) - static_cast<std::uint64_t>(credit_);
        const std::uint64_t until_full = room / rate_;
        if (elapsed <= until_full) {
            credit_ += static_cast<std::int64_t>(elapsed * rate_);
            return;
        }
        credit_ = units(burst_);
        lost_ = held_ ? std::min(lost_ + std::min(elapsed - until_full, kMostLost), kMostLost) : 0;
    }

    std::uint64_t rate_ = 0;
    std::uint64_t last_ = 0;  // time of `credit_`
    std::int64_t credit_ = 0; // 1e-9 bytes that may go; negative: owed
    std::uint64_t lost_ = 0;  // ns that somebody who waited came too late
    bool held_ = false;       // somebody waits
    std::uint32_t burst_ = 0;
    std::uint32_t wanted_burst_ = 0;
    std::uint16_t typical_packet_ = 0;
};

} // namespace vma
