// SPDX-License-Identifier: BSD-2-Clause
// What is kept of a thread on the floors below the sockets'. Its own; handlers that interrupt it see it too.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstdint>

namespace vma::libc {

struct Critical {
    std::uint32_t depth;    // stretches begun and not ended
    std::uint64_t deferred; // signals that wait, blocked, for the end: a bit each
};

struct SignalCounts {
    std::uint32_t all;          // handlers run
    std::uint32_t interrupting; // of these, installed without SA_RESTART
};

struct ThreadSignals : SignalCounts {
    // An eventfd of this thread that the trampoline writes 1 to after it has counted, or -1: a thread that looked at
    // the counts and is about to sleep with this descriptor in its set then can't miss a handler that runs in between.
    // kTurnAtPlace - n: it sleeps without one, by futex(2) on the n-th of the words below, to which 1 is added.
    int wake_fd = -1;
};

// Of a thread that lets others run while it spins (base/oversubscription.cpp).
struct Turns {
    unsigned count;
    long switches_before;
};

struct ThisThread {
    Critical critical;     // critical.hpp
    ThreadSignals signals; // signals.hpp
    std::uint32_t id;      // stats/count.hpp: gettid(); 0: not asked for yet
    bool in_log_callback;  // config/log.cpp
    std::uint8_t set_ups;  // intercept/liburing.hpp: of io_urings, begun and not ended
    Turns turns;
    _pthread_cleanup_buffer *to_undo; // when_left.hpp: of the outermost call of ours that is on libc's list
    pid_t vfork_caller;               // vfork.hpp: who called it; 0: no vfork() since the last look
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThisThread t_libc;

} // namespace vma::libc
