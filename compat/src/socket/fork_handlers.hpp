// SPDX-License-Identifier: BSD-2-Clause
// What fork() does to the library as a whole, in the one right order; and pthread_atfork() that makes it happen.
#pragma once

#include "compat/src/socket/lock.hpp"

namespace vma::sock {

// Held by a thread that forks, from before the first handler on, and while the provider is being loaded: a fork that had
// begun by then would go by the wrong order of handlers. Whoever loads only tries it.
extern Mutex g_fork_gate;

// Around whatever copies this process.
void fork_begins();
void fork_ends_in_parent();
void fork_ends_in_child();

// Makes libc's fork() call these. At load, so that they run last before a fork, when no handler of another library will
// use sockets any more; and again when the provider has registered its own handlers, as ours need the provider, and so
// must run before it locks itself up. Only the later registration is in force.
void register_fork_handlers();

} // namespace vma::sock
