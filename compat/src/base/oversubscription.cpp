// SPDX-License-Identifier: BSD-2-Clause
// A thread that yields is still runnable: if another runs in its place, that is an involuntary switch (getrusage(2)),
// and there is none if it has the processor for itself. So the kernel counts for us which turns went to others.
#include "compat/src/base/oversubscription.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>

#include "compat/src/libc/this_thread.hpp"

namespace vma::mux {

namespace {

constexpr unsigned kTurns = 16;
constexpr std::int64_t kSleeps = 50'000'000; // ns

long involuntary_switches()
{
    rusage usage = {};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

constexpr std::int64_t kShortestRest = 1'000'000; // ns
constexpr std::int64_t kLongestRest = 64'000'000;
constexpr std::int64_t kMostLost = 500'000; // more, less an eighth of the time that has passed, and it is no accident
constexpr std::int64_t kShareLost = 8;

} // namespace

bool others_have_run(Rest &rest)
{
    if (turns_are_refused()) [[unlikely]] // so may be the question
        return true;
    const long before = rest.switches;
    rest.switches = involuntary_switches();
    return rest.switches != before;
}

bool loses_too_much(Rest &rest, std::int64_t now, std::int64_t lost)
{
    rest.lost = std::max<std::int64_t>(rest.lost - (now - rest.lost_at) / kShareLost, 0) + lost;
    rest.lost_at = now;
    if (rest.lost < kMostLost)
        return false;
    const bool again = now - rest.until < 2 * rest.length;
    rest.length = again ? std::min(2 * rest.length, kLongestRest) : kShortestRest;
    rest.until = now + rest.length;
    rest.lost = 0;
    return true;
}

void note_turn(Rest &rest, std::int64_t before, std::int64_t after)
{
    constexpr std::int64_t kLongTurn = 200'000;
    constexpr std::int64_t kShortest = 50'000'000;
    constexpr std::int64_t kLongest = 2'000'000'000;
    if (after - before > kLongTurn) {
        rest.no_turns = std::clamp(2 * rest.no_turns, kShortest, kLongest);
        rest.no_turns_until = after + rest.no_turns;
    } else if (after - rest.no_turns_until > 2 * rest.no_turns) {
        rest.no_turns = 0;
    }
}

bool yield_finds_oversubscription(std::int64_t now)
{
    if (turns_are_refused()) [[unlikely]]
        return true;
    libc::Turns &turns = libc::t_libc.turns;
    if (turns.count == 0)
        turns.switches_before = involuntary_switches();
    ::sched_yield();
    if (++turns.count < kTurns || sock::g_process.oversubscription.turns_are_for_ports.load(std::memory_order_relaxed))
        return false;
    turns.count = 0;
    if (involuntary_switches() - turns.switches_before < kTurns / 2)
        return false;
    std::int64_t until = sock::g_process.oversubscription.until.load(std::memory_order_relaxed);
    if (until < now + kSleeps)
        sock::g_process.oversubscription.until.compare_exchange_strong(until, now + kSleeps, std::memory_order_relaxed);
    return true;
}

} // namespace vma::mux
