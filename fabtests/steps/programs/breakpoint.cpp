// SPDX-License-Identifier: BSD-2-Clause
// A breakpoint for one of several threads: see breakpoint.hpp.
#include "fabtests/steps/programs/breakpoint.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace step {

namespace {

constexpr std::uint8_t kInt3 = 0xcc;
constexpr std::uintptr_t kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;

void *as_pointer(std::uintptr_t value)
{
    return reinterpret_cast<void *>(value); // NOLINT
}

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

int wait_for(pid_t thread)
{
    int status = 0;
    while (::waitpid(thread, &status, __WALL) < 0)
        if (errno != EINTR)
            return 0; // ended, and somebody has been told
    return status;
}

int event_of(int status)
{
    return status >> 16;
}

// What stopped it is to be delivered when it goes on.
int signal_of(int status)
{
    return event_of(status) == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
}

std::uint64_t instruction_of(pid_t thread)
{
    return static_cast<std::uint64_t>(
        ::ptrace(PTRACE_PEEKUSER, thread, as_pointer(offsetof(user_regs_struct, rip)), nullptr));
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
    int status = wait_for(thread);
    if (WIFSTOPPED(status) && !is_hit(thread))
        report(thread, status);
    if (!WIFSTOPPED(status)) {
        ended_[thread] = status;
        return;
    }
    note(thread, status);
    ::ptrace(PTRACE_DETACH, thread, nullptr, as_pointer(static_cast<std::uintptr_t>(signal_of(status))));
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
    go_on(thread, signal_of(status));
    status = wait_for(thread);
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
        ::ptrace(calls ? PTRACE_SYSCALL : PTRACE_SINGLESTEP, thread, nullptr,
                 as_pointer(static_cast<std::uintptr_t>(signal)));
        status = wait_for(thread);
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
    unsigned long started = 0;
    ::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &started);
    const auto child = static_cast<pid_t>(started);
    if (!WIFSTOPPED(wait_for(child)))
        return;
    if (event == PTRACE_EVENT_FORK || leaves_) {
        if (in_)
            write_code(child, place_, code_[0]); // its copy of the memory
        ::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
        return;
    }
    others_[child] = event == PTRACE_EVENT_VFORK;
    go_on(child, 0);
}

void Breakpoint::go_on(pid_t thread, int signal)
{
    ::ptrace(PTRACE_CONT, thread, nullptr, as_pointer(static_cast<std::uintptr_t>(signal)));
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
        ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
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
        go_on(thread, signal);
}

} // namespace step
