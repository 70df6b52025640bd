// SPDX-License-Identifier: BSD-2-Clause
// After how many calls a connection leaves the kernel where nobody has said it. To leave costs what some ten exchanges
// gain, so where connections end just behind VMA_LIFT_AFTER the next ones wait longer: how long earlier ones were says
// what would have been best. doc/rendezvous.md
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"

namespace vma::sock {

// Of the connections that a process makes, or of those that it accepts. Any thread.
class OffloadHabit
{
public:
    static constexpr std::size_t kChoices = 5;
    // Calls by an endpoint that gain what the way there takes, measured by contrib/bench/short_conn. With one processor
    // for both ends they gain less.
    static constexpr std::int64_t kCost = 24;
    static constexpr std::int64_t kSharedCost = 100;

    // How often the wait is doubled that one begins with. One relaxed load.
    std::uint32_t doublings() const { return doublings_.load(std::memory_order_relaxed); }

    // An accelerated one is about to end. `shared`: what it waited for came while others had its processor.
    void learn_cost(bool shared);
    // One has ended after so many calls on its end. `first` is VMA_LIFT_AFTER; fewer teach nothing.
    void ended(std::uint64_t calls, std::uint32_t first);
    void after_fork_in_child() { lock_.reset(); }

private:
    std::atomic<std::uint32_t> doublings_{0};
    Mutex lock_;
    std::array<std::int32_t, kChoices> gains_ = {kTrust}; // what each choice would have gained lately, in calls; lock_

    std::int32_t shared_ = 0; // how many of the last were so, in 256ths; lock_

    static constexpr std::int32_t kTrust =
        512; // the first choice has to be wrong some times before another one is tried
};

class Stream;
// How many sends and receives take a connection off the kernel. Who was let go (VMA_IDLE_STREAMS) has to show that it
// is used again, where one call would do.
std::uint32_t calls_before_offload(const Stream &s);
void note_end_of_stream(const Stream &s); // it is closed: the last that is done with its counters
void offload_habits_after_fork_in_child();

} // namespace vma::sock
