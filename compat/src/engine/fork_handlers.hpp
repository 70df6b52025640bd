// SPDX-License-Identifier: BSD-2-Clause
// What fork() does to the library as a whole, in the one right order; and pthread_atfork() that makes it happen.
#pragma once

#include "compat/src/base/lock.hpp"

namespace vma::sock {

// Held by a thread that forks, from before the first handler on, and while a socket is offloaded; who offloads only
// tries it. Also while the provider is loaded, where its handlers go past us: a fork that had begun by then would go by
// the wrong order of handlers.
extern Mutex g_fork_gate;

// Before the handlers, with the gate held: what needs memory, as an allocator (jemalloc) is locked by its own handler,
// which runs before ours. And behind the handlers, in the parent.
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
// locks itself up in handlers of its own: these are run by ours.
void register_fork_handlers();

using ForkHandler = void (*)();

// While the provider is loaded by this thread: what it and the libraries that it needs register is kept for ours to
// run, any of it nullptr. False: libc is to have it, as it is not the provider's, or one too many (said in the log).
bool keep_fork_handlers(ForkHandler prepare, ForkHandler parent, ForkHandler child);
void loading_provider(bool begins);

} // namespace vma::sock
