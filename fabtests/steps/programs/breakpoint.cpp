// SPDX-License-Identifier: BSD-2-Clause
// A breakpoint for one of several threads: see breakpoint.hpp.
#include "fabtests/steps/programs/breakpoint.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "fabtests/steps/programs/traced.hpp"

namespace step {

namespace {

constexpr std::uint8_t kInt3 = 0xcc;
constexpr std::uintptr_t kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;

std::string proc(pid_t process, const char *what)
{
    return "/proc/" + std::to_string(process) + what;
}

// Memory that is not to be written by the process itself is written so too.
bool write_code(pid_t process, std::uint64_t place, std::uint8_t byte)
{
    const int fd = ::open(proc(process, "/mem").c_str(), O_RDWR | O_CLOEXEC);
    const bool done = fd >= 0 && ::pwrite(fd, &byte, 1, static_cast<off_t>(place)) == 1;
    ::close(fd);
    return done;
}

bool read_code(pid_t process, std::uint64_t place, std::uint8_t (&code)[2])
{
    const int fd = ::open(proc(process, "/mem").c_str(), O_RDONLY | O_CLOEXEC);
    const bool done = fd >= 0 && ::pread(fd, code, sizeof code, static_cast<off_t>(place)) == sizeof code;
    ::close(fd);
    return done;
}

// What the kernel has still to deliver to it.
bool awaits_trap(pid_t thread)
{
    siginfo_t found[8];
    __ptrace_peeksiginfo_args from{0, 0, 8};
    const long count = ::ptrace(PTRACE_PEEKSIGINFO, thread, &from, found);
    return std::any_of(found, found + std::max(count, 0L),
                       [](const siginfo_t &one) { return one.si_signo == SIGTRAP; });
}

} // namespace

bool Breakpoint::set(std::uint64_t place, pid_t thread)
{
    clear();
    place_ = place;
    thread_ = thread;
    if (::ptrace(PTRACE_SETOPTIONS, thread, nullptr, as_pointer(kOptions)) != 0)
        return false;
    take_in_threads();
    put();
    return true;
}

// One that is there already starts others only as a traced one: what is found to be new was there before.
void Breakpoint::take_in_threads()
{
    for (bool more = true; more;) {
        more = false;
        DIR *const folder = ::opendir(proc(process_, "/task").c_str());
        while (folder != nullptr) {
            const dirent *const entry = ::readdir(folder);
            if (entry == nullptr)
                break;
            const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
            if (thread <= 0 || thread == thread_ || others_.count(thread) != 0)
                continue;
            if (::ptrace(PTRACE_SEIZE, thread, nullptr, as_pointer(kOptions)) == 0) {
                others_[thread] = false;
                more = true;
            }
        }
        if (folder != nullptr)
            ::closedir(folder);
    }
}

void Breakpoint::put()
{
    if (place_ != 0 && !in_)
        in_ = read_code(process_, place_, code_) && write_code(process_, place_, kInt3);
}

void Breakpoint::take_out()
{
    if (in_)
        write_code(process_, place_, code_[0]);
    in_ = false;
}

void Breakpoint::forget()
{
    in_ = false;
    place_ = 0;
    others_.clear();
}

void Breakpoint::clear()
{
    if (place_ == 0)
        return;
    take_out();
    leaves_ = true;
    while (!others_.empty())
        let_go(others_.begin()->first);
    leaves_ = false;
    place_ = 0;
    ::ptrace(PTRACE_SETOPTIONS, thread_, nullptr, as_pointer(PTRACE_O_TRACEEXEC));
}

// Wherever it is; one that stands behind an int3 that is there no more goes back to the instruction.
void Breakpoint::let_go(pid_t thread)
{
    others_.erase(thread);
    ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    int status = wait_for_stop(thread);
    if (WIFSTOPPED(status) && !is_hit(thread))
        report(thread, status);
    if (!WIFSTOPPED(status)) {
        ended_[thread] = status;
        return;
    }
    note(thread, status);
    resume(PTRACE_DETACH, thread, signal_of(status));
}

bool Breakpoint::is_hit(pid_t thread)
{
    siginfo_t why{};
    const bool by_int3 = ::ptrace(PTRACE_GETSIGINFO, thread, nullptr, &why) == 0 && why.si_signo == SIGTRAP &&
                         why.si_code == SI_KERNEL && instruction_of(thread) == place_ + 1;
    if (by_int3)
        ::ptrace(PTRACE_POKEUSER, thread, as_pointer(offsetof(user_regs_struct, rip)), as_pointer(place_));
    return by_int3;
}

void Breakpoint::report(pid_t thread, int &status)
{
    if (!awaits_trap(thread))
        return;
    resume(PTRACE_CONT, thread, signal_of(status));
    status = wait_for_stop(thread);
    if (WIFSTOPPED(status))
        is_hit(thread);
}

int Breakpoint::pass(pid_t thread, int &signal)
{
    take_out();
    const bool calls =
        code_[0] == 0x0f && code_[1] == 0x05; // it may stay in a call for long: led into it, not through it
    int status;
    do {
        resume(calls ? PTRACE_SYSCALL : PTRACE_SINGLESTEP, thread, signal);
        status = wait_for_stop(thread);
        if (!WIFSTOPPED(status))
            break;
        signal = signal_of(status);
    } while (instruction_of(thread) == place_);
    put();
    return status;
}

void Breakpoint::note(pid_t thread, int status)
{
    const int event = event_of(status);
    if (event != PTRACE_EVENT_CLONE && event != PTRACE_EVENT_FORK && event != PTRACE_EVENT_VFORK)
        return;
    const pid_t child = started_by(thread);
    if (!WIFSTOPPED(wait_for_stop(child)))
        return;
    if (event == PTRACE_EVENT_FORK || leaves_) {
        if (in_)
            write_code(child, place_, code_[0]); // its copy of the memory
        resume(PTRACE_DETACH, child, 0);
        return;
    }
    others_[child] = event == PTRACE_EVENT_VFORK;
    resume(PTRACE_CONT, child, 0);
}

void Breakpoint::serve()
{
    for (auto at = others_.begin(); at != others_.end();) {
        const pid_t thread = (at++)->first; // it may be taken out
        int status = 0;
        if (::waitpid(thread, &status, __WALL | WNOHANG) == thread)
            stopped(thread, status);
    }
}

void Breakpoint::stopped(pid_t thread, int status)
{
    if (!WIFSTOPPED(status)) {
        ended_[thread] = status;
        others_.erase(thread);
        return;
    }
    if (event_of(status) == PTRACE_EVENT_EXEC && others_[thread]) {
        others_.erase(thread); // a process of its own
        resume(PTRACE_DETACH, thread, 0);
        return;
    }
    note(thread, status);
    int signal = signal_of(status);
    if (in_ && is_hit(thread)) {
        signal = 0;
        status = pass(thread, signal);
        if (!WIFSTOPPED(status)) {
            stopped(thread, status);
            return;
        }
        note(thread, status);
    }
    if (event_of(status) == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP)
        ::ptrace(PTRACE_LISTEN, thread, nullptr, nullptr); // all of it is stopped
    else
        resume(PTRACE_CONT, thread, signal);
}

} // namespace step
