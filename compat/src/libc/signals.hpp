// SPDX-License-Identifier: BSD-2-Clause
// How many signal handlers have run in this thread, so that a call that spins can end with EINTR as signal(7) says.
// handlers.cpp wraps the program's handlers and counts; here is only what the waits read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/libc/handler_state.hpp"
#include "compat/src/libc/this_thread.hpp"

namespace vma::libc {

void let_interrupts_end_all_polling(); // from here on

// A handler may run between any two instructions of this thread: what was read before is not what is there now.
inline SignalCounts signal_counts()
{
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint32_t of_all = g_handlers.interrupts_of_all.load(std::memory_order_relaxed);
    return {t_libc.signals.all + of_all, t_libc.signals.interrupting + of_all};
}

inline constexpr int kTurnAtPlace = -2;
void set_signal_turns(std::uint32_t *turns, std::size_t stride); // every so many words; nullptr: there are none

inline void set_signal_wake_fd(int fd)
{
    t_libc.signals.wake_fd = fd;
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

// A handler that sleeps itself puts it back. -1: nothing sleeps that a handler is to wake.
inline int signal_wake_fd()
{
    return t_libc.signals.wake_fd;
}

// A handler that runs on an alternate stack can't tell by addresses how deep the interrupted call lies.
bool on_alternate_stack();

} // namespace vma::libc
