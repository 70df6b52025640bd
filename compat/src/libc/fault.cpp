// SPDX-License-Identifier: BSD-2-Clause
// The table of instructions that may fail, and the handler that stands for SIG_DFL: one that does what SIG_DFL does to
// all other faults. The program never sees it.
#include "compat/src/libc/fault.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/touches.hpp"

namespace vma::libc {

namespace {

std::atomic<bool> *caught(int signal)
{
    return signal == SIGSEGV ? &g_handlers.faults_caught[0] : signal == SIGBUS ? &g_handlers.faults_caught[1] : nullptr;
}

// On the stack that the call is made on, which needs room anyhow. The alternate one is the program's, and may be
// anything while it has no handler there: gone, or too small. A stack that is used up ends the program without a
// handler, by the same signal.
constexpr int kStandInFlags = SA_SIGINFO | SA_RESTART;

// All other faults: the instruction fails again, without a handler. A signal that somebody sent has to be sent once
// more. Whoever installed a handler in this moment gets it; one that calls us as the handler that it found has nothing
// better than the end.
void failed(int signal, siginfo_t *info, void *context)
{
    struct sigaction now = {};
    if (recover(context))
        return;
    const int saved = errno;
    const bool replaced = real.sigaction(signal, nullptr, &now) == 0 && is_trampoline(now.sa_handler);
    if (!replaced) {
        now = {};
        now.sa_handler = SIG_DFL;
        real.sigaction(signal, &now, nullptr);
    }
    if (info->si_code <= 0 || (signal == SIGBUS && info->si_code == BUS_MCEERR_AO))
        real.syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
    errno = saved;
}

// ---- before there is a handler

constexpr std::uintptr_t kSignalSet = 8; // bytes, the kernel's
constexpr std::uintptr_t kWord = 4;

// The set is read before it is seen that there is nothing to do with it. Any other error than EFAULT means that it was.
bool kernel_reads(std::uintptr_t address)
{
    constexpr int kNothing = ~0;
    const std::uintptr_t set = std::max(address & ~(kSignalSet - 1), kSignalSet); // none at all is read at 0
    return real.syscall(SYS_rt_sigprocmask, kNothing, set, nullptr, kSignalSet) == 0 || errno != EFAULT;
}

// Wakes nobody who waits for `nobody`, and adds nothing to the word, atomically.
bool kernel_writes(std::uintptr_t address)
{
    std::uint32_t nobody = 0;
    return real.syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 0, 0L, address & ~(kWord - 1),
                        FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, 0)) == 0 ||
           errno != EFAULT;
}

template <typename Ask> bool ask_pages(const void *address, std::size_t length, Ask ask)
{
    const int saved = errno;
    const bool whole = touch_pages(address, length, ask) == length;
    errno = saved;
    return whole;
}

} // namespace

bool ask_to_read(const void *address, std::size_t length)
{
    return ask_pages(address, length, kernel_reads);
}

bool ask_to_write(const void *address, std::size_t length)
{
    return ask_pages(address, length, kernel_writes);
}

bool recover(void *context)
{
    return go_on(context);
}

bool has_default_action(int signal, struct sigaction &action)
{
    const std::atomic<bool> *const set = caught(signal);
    if (set == nullptr || !set->load(std::memory_order_relaxed))
        return false;
    action = {};
    action.sa_sigaction = failed;
    action.sa_flags = kStandInFlags;
    return true;
}

bool is_default_handler(sighandler_t handler)
{
    return reinterpret_cast<std::uintptr_t>(handler) == reinterpret_cast<std::uintptr_t>(&failed);
}

void catch_faults()
{
    for (const int signal : {SIGSEGV, SIGBUS}) {
        std::atomic<bool> &set = *caught(signal);
        if (set.exchange(true))
            continue;
        struct sigaction ours = {};
        struct sigaction before = {};
        if (!has_default_action(signal, ours) || real.sigaction(signal, nullptr, &before) != 0 ||
            before.sa_handler != SIG_DFL)
            continue; // once the program sets it to SIG_DFL
        real.sigaction(signal, &ours, &before);
        if (before.sa_handler != SIG_DFL) // in between
            real.sigaction(signal, &before, nullptr);
    }
    g_handlers.faults_are_caught.store(true, std::memory_order_release);
}

} // namespace vma::libc
