// SPDX-License-Identifier: BSD-2-Clause
// The functions that install signal handlers; what they do is in libc/handlers.cpp, where unit tests can reach it.
#include "compat/src/intercept/export.hpp"

#include "compat/src/libc/handlers.hpp"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

using namespace vma;

VMA_EXPORT int sigaction(int signal, const struct sigaction *action, struct sigaction *old) noexcept
{
    return libc::set_sigaction(signal, action, old);
}

VMA_ALIAS(sigaction) int __sigaction(int, const struct sigaction *, struct sigaction *) noexcept;

VMA_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept
{
    return libc::set_signal(signal, handler);
}

VMA_ALIAS(signal) sighandler_t bsd_signal(int, sighandler_t) noexcept;
VMA_ALIAS(signal) sighandler_t ssignal(int, sighandler_t) noexcept;

VMA_EXPORT sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept
{
    return libc::set_sysv_signal(signal, handler);
}

VMA_ALIAS(sysv_signal) sighandler_t __sysv_signal(int, sighandler_t) noexcept;

VMA_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept
{
    return libc::set_sigset(signal, handler);
}

VMA_EXPORT int siginterrupt(int signal, int interrupts) noexcept
{
    return libc::set_siginterrupt(signal, interrupts);
}
