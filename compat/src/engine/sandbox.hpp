// SPDX-License-Identifier: BSD-2-Clause
// Processes that may not make every system call (seccomp(2)). Acceleration makes calls that the program itself does
// not, by the program's threads and by the library's own, and a filter may end the process for any of them. So what is
// opened is opened under no filter, or under those that the program was started with, once they were tried
// (sandbox_trial.hpp); and before the program sets one itself, everything goes back to the kernel and nothing of the
// library is left that would make a call. doc/sandboxes.md
#pragma once

#include "compat/src/base/sandboxed.hpp"

namespace vma::sock {

// Before the process sets a filter, by `how`; no lock is held, and it is for one thread at a time. All sockets are on
// the kernel when it returns, the helper thread has ended, and what was opened of the provider is closed.
void sandbox_comes(const char *how);
// The first half of that: nothing becomes accelerated any more, and `give_back` has all sockets go back.
void leave_to_kernel(void (*give_back)());
bool may_forget(
    // nothing of this tracked socket is left for the library to do: not the last bytes that came by an endpoint, say
    int fd);

// The same just before a socket is accelerated, for filters that were set past libc since: the first eight times, then
// ever more rarely. True: a new one was met, and stay_in_sandbox() is due, with no lock held.
bool meets_filter();
void stay_in_sandbox();

} // namespace vma::sock
