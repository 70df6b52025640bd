// SPDX-License-Identifier: BSD-2-Clause
// After how many calls a connection leaves the kernel where nobody has said it. To leave costs what some ten exchanges
// gain, so where connections end just behind VMA_LIFT_AFTER the next ones wait longer, and where they go on for long
// between processes that have met before they wait less: how long earlier ones were says what would have been best.
// doc/rendezvous.md
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
    // The shortest wait is a quarter of VMA_LIFT_AFTER, each further choice the double of the one before.
    static constexpr std::size_t kChoices = 7;
    static constexpr std::uint32_t kBegin = 2; // VMA_LIFT_AFTER itself
    // Calls by an endpoint that gain what the way there takes, measured by contrib/bench/short_conn. With one processor
    // for both ends they gain less.
    static constexpr std::int64_t kCost = 20;
    static constexpr std::int64_t kSharedCost = 66;

    // How many calls one waits, where `usual` is VMA_LIFT_AFTER. One relaxed load.
    std::uint32_t wait(std::uint32_t usual) const { return shortest(usual) << choice_.load(std::memory_order_relaxed); }

    // One has become accelerated. `known`: its two processes had another one before. Where most are not, the way costs
    // more than that, and none is shorter than VMA_LIFT_AFTER.
    void learn_peer(bool known);
    // An accelerated one is about to end. `shared`: what it waited for came while others had its processor.
    void learn_cost(bool shared);
    // One has ended after so many calls on its end. Fewer than the shortest wait teach nothing.
    void ended(std::uint64_t calls, std::uint32_t usual);
    void after_fork_in_child() { lock_.reset(); }

private:
    static std::uint32_t shortest(std::uint32_t usual) { return usual > (1U << kBegin) ? usual >> kBegin : 1; }

    static constexpr std::int32_t kAll = 256;
    static constexpr std::int32_t kTrust = 512; // the usual wait has to be wrong some times before another one is tried

    std::atomic<std::uint32_t> choice_{kBegin};
    Mutex lock_;
    // All with lock_: what each choice would have gained lately, in sixteenths of calls, and how many of the last were
    // between processes that had not met, or shared a processor, in 256ths.
    std::array<std::int32_t, kChoices> gains_ = {0, 0, kTrust};
    std::int32_t unmet_ = kAll;
    std::int32_t shared_ = 0;
};

class Stream;
// How many sends and receives take a connection off the kernel. Who was let go (VMA_IDLE_STREAMS) has to show that it
// is used again, where one call would do.
std::uint32_t calls_before_offload(const Stream &s);
void learn_about_peer(const Stream &s);   // it has become accelerated; its endpoint is there
void note_end_of_stream(const Stream &s); // it is closed: the last that is done with its counters
void offload_habits_after_fork_in_child();

} // namespace vma::sock
