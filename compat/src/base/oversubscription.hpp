// SPDX-License-Identifier: BSD-2-Clause
// Whether more threads want to run than there are processors for them. Who spins then, even if it lets others run in
// each turn, takes time from those for which it waits: it had better sleep. A wait without a limit that a variable says
// (VMA_RX_POLL=-1) is asked for, and spins on.
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

// A filter of system calls may refuse those by which a thread lets others run, or sleeps where it would have spun on.
inline bool turns_are_refused()
{
    return sock::g_process.oversubscription.until.load(std::memory_order_acquire) == kNoTurns;
}

// What others take of a thread's time while it spins by habit (spin_habit.hpp), or for ever as a profile has it.
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
// A gap of so many ns between two looks at the clock of a thread that spins, until `now`. A short one is a look that
// had something to do, or a turn of somebody who gives it back at once: two threads that spin so on one processor lose
// little. True: it was others that ran, and they take too much.
inline constexpr std::int64_t kLeastGap = 20'000;
template <typename OthersRan> bool gap_is_too_much(Rest &rest, std::int64_t now, std::int64_t gap, OthersRan others_ran)
{
    return gap >= kLeastGap && others_ran(rest) && loses_too_much(rest, now, gap);
}

// Who yields lets those run for whom it waits, which costs them less than waking it. But beside a thread that computes
// each turn lasts for milliseconds: after one of more than 200 us there is none for 50 ms, doubled up to 2 s where that
// happens again.
inline bool gives_turns(const Rest &rest, std::int64_t now)
{
    return now >= rest.no_turns_until;
}
void note_turn(Rest &rest, std::int64_t before, std::int64_t after);

} // namespace vma::mux
