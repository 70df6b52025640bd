// SPDX-License-Identifier: BSD-2-Clause
// What fork() does to the library as a whole, in the one right order; and pthread_atfork() that makes it happen.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"

namespace vma::sock {

using ForkHandler = void (*)();

struct ForkHandlers {
    ForkHandler prepare;
    ForkHandler parent;
    ForkHandler child;
};
inline constexpr unsigned kMostForkHandlers = 16;

struct Forks {
    // Held by a thread that forks, from before the first handler on, and while a socket is offloaded; who offloads only
    // tries it. Also while the provider is loaded, where its handlers go past us: a fork that had begun by then would
    // go by the wrong order of handlers.
    Mutex gate;
    // Atomic.
    std::atomic<bool> registered{false};
    std::atomic<bool> again{false};
    // Written by the thread that loads the provider. A fork goes by those handlers that there were when it began.
    bool excludes_forks = false;
    std::atomic<unsigned> count{0};
    ForkHandlers providers[kMostForkHandlers] = {};
    // Written once, by the thread that has set `allocator_claimed`.
    std::atomic<bool> allocator_claimed{false};
    std::atomic<bool> allocator_kept{false};
    ForkHandlers allocator = {};
    // Offload lock, and by the only thread of a child.
    bool is_child = false;          // of a fork
    std::uint32_t depth_before = 0; // of the forking thread
};
extern constinit Forks g_forks;

// Before the handlers, with the gate held: what needs memory, as an allocator that is not known for one
// (keep_allocators_handlers()) is locked by its own handler, which runs before ours. And behind the handlers, in the
// parent.
void fork_comes();
void fork_is_over();

// Around whatever copies this process. `clone_begins()` where no handlers of fork() run: the provider does not hear of
// it, and nothing of what it has open may be in the copy.
void fork_begins();
void clone_begins();
void fork_ends_in_parent();
void fork_ends_in_child();

// Makes libc's fork() call these. Ours are registered before any of the program's (intercept/process.cpp), so that they
// run last before a fork and first after it: handlers of others use sockets as they like. Ours need the provider, which
// locks itself up in handlers of its own: these are run by ours. So are those of an allocator (jemalloc's lock it),
// between all others: who has a lock of ours may be asking for memory, and would wait for the allocator for ever while
// the thread that forks waits for him.
void register_fork_handlers();

// While the provider is loaded by this thread: what it and the libraries that it needs register is kept for ours to
// run, any of it nullptr. False: libc is to have it, as it is not the provider's, or one too many (said in the log).
bool keep_fork_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child);
void loading_provider(bool begins);

// Likewise, where these are the first of a library, not of the program, that has a malloc() of its own.
bool keep_allocators_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child);

} // namespace vma::sock
