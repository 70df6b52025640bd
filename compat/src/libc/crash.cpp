// SPDX-License-Identifier: BSD-2-Clause
// Runs in a program whose memory may be anyhow: no allocation, no stdio, and it can fail only once (SA_RESETHAND). The
// unwinder is the compiler's, which we carry with us: glibc's backtrace(3) would load a library first.
#include "compat/src/libc/crash.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdint>

#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/report.hpp"

namespace vma::libc {

namespace {

constexpr int kMostFrames = 64;

struct Trace {
    int count = 0;
    std::uintptr_t frames[kMostFrames];
};

_Unwind_Reason_Code note_frame(_Unwind_Context *context, void *argument)
{
    auto &trace = *static_cast<Trace *>(argument);
    int before = 0; // the address is the instruction's own, as in the frame of the fault, and not that after a call
    const std::uintptr_t address = _Unwind_GetIPInfo(context, &before);
    if (address == 0 || trace.count == kMostFrames)
        return _URC_END_OF_STACK;
    trace.frames[trace.count++] = before != 0 ? address : address - 1;
    return _URC_NO_REASON;
}

void log_frame(int number, std::uintptr_t address)
{
    Dl_info info = {};
    void *const at = reinterpret_cast<void *>(address); // NOLINT(performance-no-int-to-ptr): it is one
    if (::dladdr(at, &info) == 0 || info.dli_fname == nullptr)
        report_error("[%d] %p", number, at);
    else if (info.dli_sname != nullptr)
        report_error("[%d] %p %s(%s+0x%zx)", number, at, info.dli_fname, info.dli_sname,
                     static_cast<std::size_t>(address - reinterpret_cast<std::uintptr_t>(info.dli_saddr)));
    else
        report_error("[%d] %p %s(+0x%zx)", number, at, info.dli_fname,
                     static_cast<std::size_t>(address - reinterpret_cast<std::uintptr_t>(info.dli_fbase)));
}

void crashed(int signal, siginfo_t *info, void *context)
{
    if (recover(context)) {
        trace_crashes(); // SA_RESETHAND
        return;
    }
    report_error("segmentation fault of thread %d at address %p; these calls led to it:", ::gettid(), info->si_addr);
    Trace trace;
    _Unwind_Backtrace(note_frame, &trace);
    for (int i = 0; i < trace.count; ++i)
        log_frame(i, trace.frames[i]);
    // The instruction fails again, without a handler. A signal that somebody sent has to be sent once more.
    if (info->si_code <= 0)
        real.syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
}

} // namespace

void trace_crashes()
{
    struct sigaction before = {};
    struct sigaction ours = {};
    if (real.sigaction(SIGSEGV, nullptr, &before) != 0 || before.sa_handler != SIG_DFL)
        return;
    ours.sa_sigaction = crashed;
    ours.sa_flags = static_cast<int>(static_cast<unsigned>(SA_SIGINFO) | SA_RESETHAND | SA_ONSTACK);
    real.sigaction(SIGSEGV, &ours, nullptr);
}

bool is_crash_handler(sighandler_t handler)
{
    return reinterpret_cast<std::uintptr_t>(handler) == reinterpret_cast<std::uintptr_t>(&crashed);
}

void hide_crash_handler(struct sigaction &action)
{
    if (is_crash_handler(action.sa_handler)) {
        action.sa_handler = SIG_DFL;
        action.sa_flags = 0;
    }
}

} // namespace vma::libc
