// SPDX-License-Identifier: BSD-2-Clause
// When a program that reads a queue again and again, and finds nothing, lets others have the processor: whoever is to
// send may be one of them. MPI spins so, with more ranks than processors too, and its own yields don't come with the
// libfabric of connections.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sched.h>

#include "core/clock.hpp"

namespace vma::local {

// With the queue's lock held, but for yield(). Several threads that read one queue disturb nothing but each other's
// counts.
class Turns
{
public:
    // One read. True: it is time to yield(), when no lock is held.
    bool note(bool found) noexcept
    {
        const unsigned row = found ? 0 : row_.load(std::memory_order_relaxed) + 1;
        row_.store(row, std::memory_order_relaxed);
        return row >= wait_.load(std::memory_order_relaxed);
    }

    // A turn in which somebody else ran makes the next one come soon; alone, there is one in a thousand reads. Returns
    // the time.
    std::uint64_t yield() noexcept
    {
        const std::uint64_t before = core::monotonic_ns();
        sched_yield();
        const std::uint64_t after = core::monotonic_ns();
        const bool others_ran = after - before >= kOthersRan;
        const unsigned longer = std::min(wait_.load(std::memory_order_relaxed) * 2, kAlone);
        wait_.store(others_ran ? kSoon : longer, std::memory_order_relaxed);
        row_.store(0, std::memory_order_relaxed);
        return after;
    }

private:
    static constexpr std::uint64_t kOthersRan =
        2000; // ns: two switches; a call that gives nothing to anybody takes some 300
    static constexpr unsigned kSoon = 16, kAlone = 1024; // reads that find nothing, of some 50 ns

    std::atomic<unsigned> row_{0}; // reads that found nothing since one that did
    std::atomic<unsigned> wait_{kAlone};
};

} // namespace vma::local
