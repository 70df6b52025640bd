// SPDX-License-Identifier: BSD-2-Clause
// The table of instructions that may fail, and the handler that stands for SIG_DFL: one that does what SIG_DFL does to all other
// faults. The program never sees it.
#include "compat/src/libc/fault.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"

namespace vma::libc {

constinit std::atomic<bool> g_faults_are_caught{false};

namespace {

struct Touch { // both relative to where they stand
    std::int32_t instruction;
    std::int32_t fault;
};

constinit std::atomic<bool> g_caught[2] = {}; // SIGSEGV, SIGBUS: SIG_DFL is ours

std::uintptr_t place_of(const std::int32_t &relative)
{
    return reinterpret_cast<std::uintptr_t>(&relative) + static_cast<std::uintptr_t>(std::intptr_t{relative});
}

} // namespace

extern "C" {
[[gnu::visibility("hidden"), gnu::weak]] extern const Touch __start_vma_touches[];
[[gnu::visibility("hidden"), gnu::weak]] extern const Touch __stop_vma_touches[];
}

namespace {

std::atomic<bool> *caught(int signal)
{
    return signal == SIGSEGV ? &g_caught[0] : signal == SIGBUS ? &g_caught[1] : nullptr;
}

// All other faults: the instruction fails again, without a handler. A signal that somebody sent has to be sent once more. Whoever
// installed a handler in this moment gets it; one that calls us as the handler that it found has nothing better than the end.
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
#if defined(__x86_64__)
    greg_t &at = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP];
    for (const Touch *touch = __start_vma_touches; touch != __stop_vma_touches; ++touch) {
        if (place_of(touch->instruction) != static_cast<std::uintptr_t>(at))
            continue;
        at = static_cast<greg_t>(place_of(touch->fault));
        return true;
    }
#else
    static_cast<void>(context);
#endif
    return false;
}

bool has_default_action(int signal, struct sigaction &action)
{
    const std::atomic<bool> *const set = caught(signal);
    if (set == nullptr || !set->load(std::memory_order_relaxed))
        return false;
    action = {};
    action.sa_sigaction = failed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
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
    g_faults_are_caught.store(true, std::memory_order_release);
}

} // namespace vma::libc
