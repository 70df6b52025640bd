// SPDX-License-Identifier: BSD-2-Clause
// How many signal handlers have run in this thread, so that a call that spins can end with EINTR as signal(7) says.
// handlers.cpp wraps the program's handlers and counts; here is only what the waits read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vma::libc {

struct SignalCounts {
    std::uint32_t all;          // handlers run
    std::uint32_t interrupting; // of these, installed without SA_RESTART
};

// Of each thread, its own.
struct ThreadSignals : SignalCounts {
    // An eventfd of this thread that the trampoline writes 1 to after it has counted, or -1: a thread that looked at
    // the counts and is about to sleep with this descriptor in its set then can't miss a handler that runs in between.
    // kTurnAtPlace - n: it sleeps without one, by futex(2) on the n-th of the words below, to which 1 is added.
    int wake_fd = -1;
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThreadSignals t_signals;

// Handlers of SIGINT that have run in any thread, if that is to end the polling of all (VMA_HANDLE_SIGINTR); else 0.
extern constinit std::atomic<std::uint32_t> g_interrupts_of_all;
void let_interrupts_end_all_polling(); // from here on

// A handler may run between any two instructions of this thread: what was read before is not what is there now.
inline SignalCounts signal_counts()
{
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint32_t of_all = g_interrupts_of_all.load(std::memory_order_relaxed);
    return {t_signals.all + of_all, t_signals.interrupting + of_all};
}

inline constexpr int kTurnAtPlace = -2;
void set_signal_turns(std::uint32_t *turns, std::size_t stride); // every so many words; nullptr: there are none

inline void set_signal_wake_fd(int fd)
{
    t_signals.wake_fd = fd;
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

// A handler that runs on an alternate stack can't tell by addresses how deep the interrupted call lies.
bool on_alternate_stack();

} // namespace vma::libc
