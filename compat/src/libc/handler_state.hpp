// SPDX-License-Identifier: BSD-2-Clause
// What is known of the process's signal handlers. All atomic but where it says more, as handlers read it at any moment.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vma::libc {

struct KernelAction { // as rt_sigaction() has it
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)();
    std::uint64_t mask;
};

struct Handlers {
    // Has catch_faults() been called? Read by each call.
    std::atomic<bool> faults_are_caught{false};
    std::atomic<bool> faults_caught[2] = {}; // SIGSEGV, SIGBUS: SIG_DFL is ours
    // Handlers of SIGINT that have run in any thread, if that is to end the polling of all (VMA_HANDLE_SIGINTR); else
    // 0.
    std::atomic<std::uint32_t> interrupts_of_all{0};
    std::atomic<std::uintptr_t> records[NSIG] = {}; // handlers.cpp
    std::atomic<std::uint64_t> interrupts{0};       // signals that siginterrupt() made signal() not restart
    std::atomic<std::uint32_t *> turns{nullptr};
    std::size_t turn_stride = 0; // in words; there before anybody sleeps so
    std::atomic<bool> interrupts_end_all{false};
    std::atomic<bool> bypassed{false};
    KernelAction once[NSIG] = {}; // of handlers for one signal; threads that come together read and write the same
};
[[gnu::visibility("hidden")]] extern constinit Handlers g_handlers;

} // namespace vma::libc
