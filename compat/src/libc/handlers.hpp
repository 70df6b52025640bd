// SPDX-License-Identifier: BSD-2-Clause
// Installs the program's signal handlers behind a trampoline that counts them (signals.hpp). Each function is what
// libc's of that name is to the program; handlers that are queried are the program's own. Handlers that were there
// before us, or that came past libc, are left alone and not counted, unless the library was opened at run time. All are
// async-signal-safe.
#pragma once

#include <signal.h>

namespace vma::libc {

int set_sigaction(int signal, const struct sigaction *action, struct sigaction *old);
sighandler_t set_signal(int signal, sighandler_t handler);
sighandler_t set_sysv_signal(int signal, sighandler_t handler);
sighandler_t set_sigset(int signal, sighandler_t handler);
int set_siginterrupt(int signal, int interrupts);

// A program that opens the library at run time installs its handlers past us: those that stand now go behind the
// trampoline. Who asks for a handler past us too gets the trampoline; putting that back does no harm.
void adopt_handlers_if_bypassed();
void handlers_bypass_us(); // from here on

bool is_trampoline(sighandler_t handler); // for libc/fault.cpp

} // namespace vma::libc
