// SPDX-License-Identifier: BSD-2-Clause
// What ended connections teach, and how many calls a new one waits by that.
#include "compat/src/offload/offload_habit.hpp"

#include <algorithm>
#include <cstddef>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/params.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kCallsAgain = 32;
constexpr std::int64_t kMost = 1024;        // calls of a connection that count
constexpr std::int64_t kInVainUs = 1000;    // what it costs that nobody takes offers
constexpr std::uint64_t kHelpersCalls = 16; // after which the helper threads' turns are over
constexpr std::int32_t kShare = 16;         // of one connection in what is expected of the next

// Of those that are made, and of those that are accepted.
struct Habits {
    OffloadHabit made;
    OffloadHabit accepted;
};
constinit Habits g_habits;

OffloadHabit &habit_of(Role role)
{
    return role == Role::kAcceptor ? g_habits.accepted : g_habits.made;
}

bool learns(const Stream &s)
{
    return config::params().offload_learns && !s.let_go;
}

void learn_gain(std::int32_t &average, std::int64_t gain)
{
    average += (static_cast<std::int32_t>(gain) * kShare - average) / kShare;
}

} // namespace

void OffloadHabit::learn_peer(bool known)
{
    const LockGuard guard(lock_);
    unmet_.learn(!known);
}

void OffloadHabit::learn_cost(bool shared)
{
    const LockGuard guard(lock_);
    shared_.learn(shared);
}

void OffloadHabit::learn_waiting(bool in_sets)
{
    const LockGuard guard(lock_);
    in_sets_.learn(in_sets);
}

void OffloadHabit::note_wait(std::int64_t us)
{
    waits_.note(us);
    if (waits_.leave_out()) {
        first_.store(First::kNo, std::memory_order_relaxed);
        first_if_asked_.store(First::kNo, std::memory_order_relaxed);
    }
}

void OffloadHabit::learn_first(std::int64_t us)
{
    const LockGuard guard(lock_);
    note_wait(us);
}

void OffloadHabit::learn_offer(bool taken)
{
    const LockGuard guard(lock_);
    missed_ = taken ? 0 : missed_ + 1;
    if (!taken && missed_ < kMissed)
        return;
    missed_ = 0;
    note_wait(taken ? 0 : kInVainUs);
}

void OffloadHabit::learn_waits(std::int64_t calls, std::uint32_t usual)
{
    shared_.forget();
    in_sets_.forget();
    const std::int64_t cost = shared_.is_most() ? kSharedCost : kCost;
    const std::size_t least = unmet_.is_most() ? kBegin : 0;
    std::size_t best = least;
    for (std::size_t i = 0; i < kChoices; ++i) {
        const std::int64_t wait = std::int64_t{shortest(usual)} << i;
        learn_gain(gains_[i], calls < wait ? 0 : calls - wait - cost);
        if (i > least && gains_[i] > gains_[best])
            best = i;
    }
    choice_.store(static_cast<std::uint32_t>(best), std::memory_order_relaxed);
}

OffloadHabit::First OffloadHabit::best_first() const
{
    const std::int64_t waits_gain = gains_[choice_.load(std::memory_order_relaxed)];
    if (waits_.leave_out() || in_sets_.is_most())
        return First::kNo;
    if (calls_ - kSharedFirstCost * kShare > waits_gain)
        return First::kAnywhere;
    return !shared_.is_most() && calls_ - kFirstCost * kShare > waits_gain ? First::kOnSeveral : First::kNo;
}

// Nothing is heard of those that stay on the kernel, while they may have met all the same.
void OffloadHabit::count_untried(std::int64_t calls, std::uint32_t usual)
{
    const bool would_gain = best_first() != First::kNo && calls < wait(usual);
    if (!unmet_.is_most())
        untried_ = 0;
    else if (would_gain || untried_ >= kUntried)
        untried_ = (untried_ + 1) % (kUntried + kTries);
}

void OffloadHabit::ended(std::uint64_t calls, std::uint32_t usual)
{
    const LockGuard guard(lock_);
    const auto counted = static_cast<std::int64_t>(std::min<std::uint64_t>(calls, kMost));
    if (calls >= shortest(usual))
        learn_waits(counted, usual);
    learn_gain(calls_, counted);
    waits_.connection_ended();
    count_untried(counted, usual);
    const First best = best_first();
    first_if_asked_.store(best, std::memory_order_relaxed);
    first_.store(!unmet_.is_most() || untried_ >= kUntried ? best : First::kNo, std::memory_order_relaxed);
}

void OffloadHabit::after_fork_in_child()
{
    lock_.reset();
    unmet_ = Share{Share::kAll};
    untried_ = 0;
    first_.store(First::kNo, std::memory_order_relaxed);
    choice_.store(std::max(choice_.load(std::memory_order_relaxed), kBegin), std::memory_order_relaxed);
}

std::uint32_t calls_before_offload(const Stream &s)
{
    const std::uint32_t calls = config::params().lift_after;
    if (s.let_go) [[unlikely]]
        return std::max(calls, kCallsAgain);
    return learns(s) ? habit_of(s.role).wait(calls) : calls;
}

OffloadHabit::First habitual_first(Role role)
{
    const OffloadHabit &habit = habit_of(role);
    if (!config::params().first_learns)
        return OffloadHabit::First::kNo;
    return role == Role::kAcceptor ? habit.first_if_asked() : habit.first();
}

void learn_about_first(const Stream &s, std::int64_t waited_ns)
{
    if (config::params().first_learns)
        habit_of(s.role).learn_first(waited_ns / 1000);
}

void learn_about_peer(const Stream &s)
{
    int reused = 0;
    std::size_t size = sizeof reused;
    if (learns(s) &&
        fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REUSED), &reused, &size) == 0)
        habit_of(s.role).learn_peer(reused != 0);
}

void note_end_of_stream(const Stream &s)
{
    if (s.offered_first && s.used.load(std::memory_order_relaxed))
        habit_of(s.role).learn_offer(s.was_accelerated);
    if (!learns(s) || &record_of(s) == &stats::g_nobodys.sink)
        return;
    const stats::Counters &counted = record_of(s).now;
    const std::uint64_t calls = stats::get(counted.rx.packets) + stats::get(counted.tx.packets) +
                                stats::get(counted.rx.os_packets) + stats::get(counted.tx.os_packets);
    if (s.was_accelerated && calls >= s.left_after + kHelpersCalls) {
        habit_of(s.role).learn_cost(s.receive_spins.by_many_turns());
        if (s.role == Role::kConnector)
            habit_of(s.role).learn_waiting((stats::get(counted.rx.poll_hit) | stats::get(counted.rx.poll_miss)) == 0);
    }
    habit_of(s.role).ended(calls, config::params().lift_after);
}

void offload_habits_after_fork_in_child()
{
    g_habits.made.after_fork_in_child();
    g_habits.accepted.after_fork_in_child();
}

} // namespace vma::sock
