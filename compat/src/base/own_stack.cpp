// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/own_stack.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

#include "compat/src/config/stacks.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::sock {

namespace {

// A handler on the alternate stack goes on below its own frame as long as it stands there. From another stack the
// kernel would begin at the top again, above what is still needed: so nothing but a fault may come meanwhile.
class NoAlternate
{
public:
    NoAlternate()
    {
        stack_t stack = {};
        if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_ONSTACK) == 0) [[likely]]
            return;
        sigset_t all;
        ::sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
            ::sigdelset(&all, fault);
        on_it_ = ::pthread_sigmask(SIG_BLOCK, &all, &before_) == 0;
    }
    ~NoAlternate()
    {
        if (on_it_) [[unlikely]]
            ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoAlternate(const NoAlternate &) = delete;
    NoAlternate &operator=(const NoAlternate &) = delete;

private:
    bool on_it_ = false;
    sigset_t before_;
};

} // namespace

// Its lowest whole page: work that takes more than there is ends by SIGSEGV, not in what lies below.
void OwnStack::guard()
{
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t lowest = (reinterpret_cast<std::uintptr_t>(bytes_) + page - 1) & ~(page - 1);
    if (page <= kGuard / 2)
        ::mprotect(reinterpret_cast<void *>(lowest), page, PROT_NONE); // it does without where that is refused
    guarded_ = true;
}

void OwnStack::call(void (*work)(void *), void *argument)
{
    const NoAlternate blocked;
    const libc::NotCancelled whole;
    if (!guarded_ && config::g_switches_stacks) [[unlikely]]
        guard();
    config::call_on_own_stack(work, argument, bytes_, sizeof bytes_);
}

} // namespace vma::sock
