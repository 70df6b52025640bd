// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/own_stack.hpp"

#include <pthread.h>
#include <signal.h>

#include <initializer_list>
#include <utility>

#include "compat/src/libc/this_thread.hpp"

// Sanitizers keep books on where a thread's stack lies; on processors that are not named here nothing is switched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && (defined(__x86_64__) || defined(__aarch64__))
#define VMA_OWN_STACK 1
#else
#define VMA_OWN_STACK 0
#endif

// work(argument) on the stack that ends at `top`. The frame's address is kept in the register that unwinders go by.
extern "C" [[gnu::visibility("hidden")]] void vma_call_on_stack(void (*work)(void *), void *argument, void *top);

#if VMA_OWN_STACK && defined(__x86_64__)
asm(R"(
        .pushsection .text
        .hidden vma_call_on_stack
        .globl  vma_call_on_stack
        .type   vma_call_on_stack, @function
vma_call_on_stack:
        .cfi_startproc
        endbr64
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        movq    %rdx, %rsp
        movq    %rdi, %rax
        movq    %rsi, %rdi
        call    *%rax
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   vma_call_on_stack, . - vma_call_on_stack
        .popsection
)");
#elif VMA_OWN_STACK
asm(R"(
        .pushsection .text
        .hidden vma_call_on_stack
        .globl  vma_call_on_stack
        .type   vma_call_on_stack, %function
vma_call_on_stack:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        mov     x29, sp
        .cfi_def_cfa_register x29
        mov     sp, x2
        mov     x8, x0
        mov     x0, x1
        blr     x8
        mov     sp, x29
        .cfi_def_cfa_register sp
        ldp     x29, x30, [sp], #16
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        ret
        .cfi_endproc
        .size   vma_call_on_stack, . - vma_call_on_stack
        .popsection
)");
#endif

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

void OwnStack::call(void (*work)(void *), void *argument)
{
#if VMA_OWN_STACK
    const NoAlternate blocked;
    // What waits on the other stack lies deeper, whatever its address says: a log callback's (config/log.cpp).
    _pthread_cleanup_buffer *const outer = std::exchange(libc::t_libc.to_undo, nullptr);
    vma_call_on_stack(work, argument, bytes_ + sizeof bytes_);
    libc::t_libc.to_undo = outer;
#else
    work(argument);
#endif
}

} // namespace vma::sock
