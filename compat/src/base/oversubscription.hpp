// SPDX-License-Identifier: BSD-2-Clause
// Whether more threads want to run than there are processors for them. Who spins then, even if it lets others run in
// each turn, takes time from those for which it waits: it had better sleep. A wait without a limit (VMA_RX_POLL=-1) is
// asked for, and spins on.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/process_words.hpp"

namespace vma::mux {

inline bool oversubscribed(std::int64_t now)
{
    return now < sock::g_process.oversubscription.until.load(std::memory_order_relaxed);
}

// In place of sched_yield() in a spinning wait that lets others run. True: in most of this thread's last turns somebody
// else ran, whether they were of this wait or of the ones before, so end the spin. Never with an open port. Most calls
// cost a sched_yield() and a comparison, one in 16 another system call.
bool yield_finds_oversubscription(std::int64_t now);

// What others take of a thread's time while it spins by habit (spin_habit.hpp).
struct Rest {
    std::int64_t until = 0; // ns of CLOCK_MONOTONIC: no wait of it spins before
    std::int64_t length = 0;
    std::int64_t lost = 0; // to others
    std::int64_t lost_at = 0;
    long switches = 0;               // when it was last asked for them
    std::int64_t no_turns_until = 0; // before, it does not yield
    std::int64_t no_turns = 0;       // how long that was the last time
};

// In place of this thread, since the last time that it asked. A system call.
bool others_have_run(Rest &rest);
// They had the processor for so long while it spun. True: more than an eighth of the time lately, so it rests for 1 ms,
// and for twice the time before where it had hardly begun to spin again.
bool loses_too_much(Rest &rest, std::int64_t now, std::int64_t lost);

// Who yields lets those run for whom it waits, which costs them less than waking it. But beside a thread that computes
// each turn lasts for milliseconds: after one of more than 200 us there is none for 50 ms, doubled up to 2 s where that
// happens again.
inline bool gives_turns(const Rest &rest, std::int64_t now)
{
    return now >= rest.no_turns_until;
}
void note_turn(Rest &rest, std::int64_t before, std::int64_t after);

} // namespace vma::mux
