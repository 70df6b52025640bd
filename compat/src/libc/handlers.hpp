// SPDX-License-Identifier: BSD-2-Clause
// Installs the program's signal handlers behind a trampoline that counts them (signals.hpp). Each function is what libc's
// of that name is to the program; handlers that are queried are the program's own. Handlers that were there before us,
// or that came past libc, are left alone and not counted. All are async-signal-safe.
#pragma once

#include <signal.h>

namespace vma::libc {

int set_sigaction(int signal, const struct sigaction *action, struct sigaction *old);
sighandler_t set_signal(int signal, sighandler_t handler);
sighandler_t set_sysv_signal(int signal, sighandler_t handler);
sighandler_t set_sigset(int signal, sighandler_t handler);
int set_siginterrupt(int signal, int interrupts);

} // namespace vma::libc
