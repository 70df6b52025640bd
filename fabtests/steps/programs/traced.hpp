// SPDX-License-Identifier: BSD-2-Clause
// A traced thread as ptrace() and waitpid() show it: words that tracee.cpp and breakpoint.cpp have in common.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace step {

// ptrace() takes numbers as pointers.
inline void *as_pointer(std::uintptr_t value)
{
    return reinterpret_cast<void *>(value); // NOLINT
}

// Until it stops or ends. 0: it has ended, and somebody has been told.
inline int wait_for_stop(pid_t thread)
{
    int status = 0;
    while (::waitpid(thread, &status, __WALL) < 0)
        if (errno != EINTR)
            return 0;
    return status;
}

// PTRACE_EVENT_..., 0 of a signal, of a stop.
inline int event_of(int status)
{
    return status >> 16;
}

// What stopped it is to be delivered when it goes on.
inline int signal_of(int status)
{
    return event_of(status) == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
}

// One that stands: what it is about to execute.
inline std::uint64_t instruction_of(pid_t thread)
{
    return static_cast<std::uint64_t>(
        ::ptrace(PTRACE_PEEKUSER, thread, as_pointer(offsetof(user_regs_struct, rip)), nullptr));
}

// One that stands goes on as `request` says, with the signal.
inline void resume(__ptrace_request request, pid_t thread, int signal)
{
    ::ptrace(request, thread, nullptr, as_pointer(static_cast<std::uintptr_t>(signal)));
}

// What one that stands for such an event has started.
inline pid_t started_by(pid_t thread)
{
    unsigned long started = 0;
    ::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &started);
    return static_cast<pid_t>(started);
}

} // namespace step
