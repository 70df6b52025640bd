// SPDX-License-Identifier: BSD-2-Clause
// How often who reads a queue looks for new senders. They know no doorbell of the queue's yet, so nothing but their
// sockets tells of them, and asking those takes a system call: too much for each read of a program that spins. A count
// of reads alone would leave them waiting for a second where a program reads once in a while, or has the processor only
// now and then. So the looks go by time, and the clock is read after so many reads as lately took a look's interval.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/clock.hpp"

namespace vma::local {

class Lookout
{
public:
    static constexpr std::uint64_t kInterval = 50'000; // ns
    static constexpr unsigned kMost = 64;              // reads: who has spun may read once a millisecond from now on

    // With the queue's lock held, in each read, of which it is the how manieth. True: it is time to look.
    bool due(unsigned reads) noexcept
    {
        if (next_ - reads - 1 < kMost) [[likely]] // it is one to kMost reads ahead; else behind, however far
            return false;
        return check(reads, core::monotonic_ns());
    }

    // Without locks: the time is known anyhow.
    bool due_at(std::uint64_t now) noexcept
    {
        if (now - looked_at_.load(std::memory_order_relaxed) < kInterval)
            return false;
        looked_at_.store(now, std::memory_order_relaxed);
        return true;
    }

    bool check(unsigned reads, std::uint64_t now) noexcept
    {
        const std::uint64_t took = now - checked_at_;
        if (took > kInterval * 2)
            every_ = static_cast<unsigned>(std::max<std::uint64_t>(every_ * kInterval / took, 1));
        else if (took < kInterval / 2)
            every_ = std::min(every_ * 2, kMost);
        next_ = reads + every_;
        checked_at_ = now;
        return due_at(now);
    }

private:
    unsigned every_ = 1;
    unsigned next_ = 0; // the read in which the clock is looked at next
    std::uint64_t checked_at_ = 0;
    std::atomic<std::uint64_t> looked_at_{0};
};

} // namespace vma::local
