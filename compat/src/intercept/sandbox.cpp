// SPDX-License-Identifier: BSD-2-Clause
// prctl(): before a program puts itself under a filter of system calls its sockets go back to the kernel, and are not
// followed any more: each of its calls is the one system call then that it would be without the library. What sets a
// filter is listed in doc/sandboxes.md.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/sandbox.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <atomic>

#include "compat/src/config/log.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/sandbox_trial.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::intercept {

namespace {

void forget_descriptors()
{
    each_of_ours(0, kLastTracked, [](int fd) {
        if (sock::may_forget(fd) && !mux::is_epoll(fd))
            retire(fd);
    });
}

// Who comes second waits until it is done; not for ever, as a child of fork() may have a copy of a lock that is held.
bool may_enter(const std::atomic<bool> &done)
{
    constexpr int kMostMs = 3000;
    for (int i = 0; i < kMostMs && !done.load(std::memory_order_acquire); ++i) {
        if (sock::g_engine_tables.sandbox.entering.try_lock())
            return true;
        real.poll(nullptr, 0, 1);
    }
    return false;
}

void enter(const char *how)
{
    leave_once(sock::g_engine_tables.sandbox.entered, how, [](const char *by) {
        sock::sandbox_comes(by);
        forget_descriptors();
        config::set_log_level(static_cast<int>(config::Level::kNone)); // a line takes more calls than write()
    });
}

// Programs ask whether there are filters by giving none.
bool is_program(const void *program)
{
    return program != nullptr && libc::can_read(program, sizeof(sock_fprog));
}

} // namespace

void leave_once(std::atomic<bool> &done, const char *how, void (*leave)(const char *how))
{
    if (libc::in_vfork_child())
        return;
    const KeepErrno keep;
    const libc::NotCancelled whole;
    if (!may_enter(done))
        return;
    if (!done.load(std::memory_order_acquire)) {
        leave(how);
        done.store(true, std::memory_order_release);
    }
    sock::g_engine_tables.sandbox.entering.unlock();
}

void before_seccomp(unsigned operation, unsigned flags, const void *program)
{
    const bool strict = operation == SECCOMP_SET_MODE_STRICT && flags == 0 && program == nullptr;
    if (strict || (operation == SECCOMP_SET_MODE_FILTER && is_program(program)))
        enter("seccomp()");
}

void before_prctl(int option, unsigned long mode, const void *program)
{
    if (option == PR_SET_SECCOMP &&
        (mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && is_program(program))))
        enter("prctl(PR_SET_SECCOMP)");
}

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

// Not variadic: the arguments are where libc's own expects them.
extern "C" [[gnu::visibility("default")]] int vma_prctl(int option, unsigned long a, unsigned long b, unsigned long c,
                                                        unsigned long d) noexcept asm("prctl");

int vma_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) noexcept
{
    if (option == PR_SET_SECCOMP) [[unlikely]]
        before_prctl(option, a, reinterpret_cast<const void *>(b));
    return real.prctl(option, a, b, c, d);
}
