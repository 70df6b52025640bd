// SPDX-License-Identifier: BSD-2-Clause
// The one thread of the library's own, which VMA's manual calls the internal thread: how it is started and on which
// processors it runs. What it does is in engine.cpp.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/config/cpu_list.hpp"

namespace vma::sock {

// Starts work(nullptr) in a thread with all signals blocked. It first takes the place that VMA_INTERNAL_THREAD_CPUSET
// and VMA_INTERNAL_THREAD_AFFINITY name; one that is not to be had is a warning, and it runs where it is. Returns 0 or
// a negative errno. Not for two callers at a time.
int start_helper_thread(void *(*work)(void *));

// It is to end soon: `work` looks, and returns. Who has asked wakes it, and then waits until it is gone, with no lock
// held.
bool helper_is_to_end();
void end_helper_soon();
void join_helper_thread();

// Likewise, another one, where the caller is, with `attributes` for more. It has their stack until measure_stack() was
// called, which waits for the loader.
int start_quiet_thread(pthread_t &thread, pthread_attr_t &attributes, void *(*work)(void *), void *argument);
void measure_stack();

struct HelperPlace {
    void *(*work)(void *) = nullptr;
    int tasks = -1; // of the cpuset
    bool bound = false;
    config::CpuMask cpus; // if so
};

struct HelperThread {
    // The thread has it whenever it doesn't sleep, and takes it before all other locks. Who forks holds it too: a child
    // has a copy of the process as it is then, of the thread nothing, and what is half done stays so (an allocator's
    // lock that is held, for one: the C library frees its own in a child, AddressSanitizer's runtime does not).
    Mutex turn;
    // Atomic.
    std::atomic<bool> to_end{false};
    std::atomic<std::uint32_t> begun{0}; // helper_thread.cpp: whether it is started, and does not run yet
    std::atomic<std::uint32_t> tick{0};  // written by the helper thread
    // The helper thread's.
    std::uint32_t next_ring = 0; // the index of the socket whose ring is looked at next
    HelperPlace place;           // this and below are written before it is started, by the one that starts it
    pthread_t thread = {};
    std::size_t stack_size = 0; // of threads of ours; 0: the default
};
extern constinit HelperThread g_helper;

// From its creation until it runs code of ours: what is done for a new thread before that may hold an allocator's lock,
// too. The second waits until that is over; a child has no such thread.
bool helper_is_beginning();
void wait_for_helper_to_begin();
void helper_after_fork_in_child();

// How often it has a turn while sockets are accelerated: VMA_TIMER_RESOLUTION_MSEC; at most 100, as peers wait for what
// only it may answer.
std::uint32_t helper_turn_ms();
std::uint32_t helper_turns_in(std::uint32_t milliseconds); // at least 1
std::uint32_t helper_turns_per_drain();                    // VMA_PROGRESS_ENGINE_INTERVAL, likewise

} // namespace vma::sock
