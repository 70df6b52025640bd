// SPDX-License-Identifier: BSD-2-Clause
// The one thread of the library's own, which VMA's manual calls the internal thread: how it is started and on which
// processors it runs. What it does is in engine.cpp.
#pragma once

namespace vma::sock {

// Starts work(nullptr) in a thread with all signals blocked. It first takes the place that VMA_INTERNAL_THREAD_CPUSET
// and VMA_INTERNAL_THREAD_AFFINITY name; one that is not to be had is a warning, and it runs where it is. Returns 0 or
// a negative errno. Not for two callers at a time.
int start_helper_thread(void *(*work)(void *));

} // namespace vma::sock
