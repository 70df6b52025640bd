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
constexpr std::int32_t kCostShare = 4;      // of one connection in the cost of the next
constexpr std::uint64_t kHelpersCalls = 16; // after which the helper threads' turns are over
constexpr std::int32_t kForget = 128;       // so that it is tried again
constexpr std::int32_t kShare = 16;         // of one connection in what is expected of the next

OffloadHabit &habit_of(const Stream &s)
{
    return s.role == Role::kAcceptor ? g_connections.accepted : g_connections.made;
}

bool learns(const Stream &s)
{
    return config::params().offload_learns && !s.let_go;
}

} // namespace

void OffloadHabit::learn_peer(bool known)
{
    const LockGuard guard(lock_);
    unmet_ += ((known ? 0 : kAll) - unmet_) / kCostShare;
}

void OffloadHabit::learn_cost(bool shared)
{
    const LockGuard guard(lock_);
    shared_ += ((shared ? kAll : 0) - shared_) / kCostShare;
}

void OffloadHabit::ended(std::uint64_t calls, std::uint32_t usual)
{
    if (calls < shortest(usual))
        return;
    const LockGuard guard(lock_);
    shared_ -= shared_ / kForget;
    const auto counted = static_cast<std::int64_t>(std::min<std::uint64_t>(calls, kMost));
    const std::int64_t cost = shared_ > kAll / 2 ? kSharedCost : kCost;
    const std::size_t least = unmet_ > kAll / 2 ? kBegin : 0;
    std::size_t best = least;
    for (std::size_t i = 0; i < kChoices; ++i) {
        const std::int64_t wait = std::int64_t{shortest(usual)} << i;
        const std::int64_t gain = counted < wait ? 0 : counted - wait - cost;
        gains_[i] += (static_cast<std::int32_t>(gain) * kShare - gains_[i]) / kShare;
        if (i > least && gains_[i] > gains_[best])
            best = i;
    }
    choice_.store(static_cast<std::uint32_t>(best), std::memory_order_relaxed);
}

std::uint32_t calls_before_offload(const Stream &s)
{
    const std::uint32_t calls = config::params().lift_after;
    if (s.let_go) [[unlikely]]
        return std::max(calls, kCallsAgain);
    return learns(s) ? habit_of(s).wait(calls) : calls;
}

void learn_about_peer(const Stream &s)
{
    int reused = 0;
    std::size_t size = sizeof reused;
    if (learns(s) &&
        fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REUSED), &reused, &size) == 0)
        habit_of(s).learn_peer(reused != 0);
}

void note_end_of_stream(const Stream &s)
{
    if (!learns(s) || &record_of(s) == &stats::g_nobodys.sink)
        return;
    const stats::Counters &counted = record_of(s).now;
    const std::uint64_t calls = stats::get(counted.rx.packets) + stats::get(counted.tx.packets) +
                                stats::get(counted.rx.os_packets) + stats::get(counted.tx.os_packets);
    if (s.was_accelerated && calls >= std::uint64_t{calls_before_offload(s)} + kHelpersCalls)
        habit_of(s).learn_cost(s.receive_spins.by_many_turns());
    habit_of(s).ended(calls, config::params().lift_after);
}

void offload_habits_after_fork_in_child()
{
    g_connections.made.after_fork_in_child();
    g_connections.accepted.after_fork_in_child();
}

} // namespace vma::sock
