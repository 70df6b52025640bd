// SPDX-License-Identifier: BSD-2-Clause
// What tests of signal handlers install.
#pragma once

#include <signal.h>

#include "fabtests/unit.hpp"

namespace vma::test {

inline struct sigaction action_of(sighandler_t handler, int flags)
{
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigemptyset(&action.sa_mask);
    return action;
}

inline struct sigaction action_of(void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    return action;
}

inline void needs_the_kernels_signals()
{
#ifdef __SANITIZE_THREAD__
    UNIT_SKIP("ThreadSanitizer has a sigaction() of its own");
#endif
}

} // namespace vma::test
