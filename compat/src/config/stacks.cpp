// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/stacks.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

#include "compat/src/libc/this_thread.hpp"

// Sanitizers keep books on where a thread's stack lies; on processors that are not named here nothing is switched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && (defined(__x86_64__) || defined(__aarch64__))
#define VMA_SWITCHES_STACKS 1
#else
#define VMA_SWITCHES_STACKS 0
#endif

// work(argument) on the stack that ends at `top`, while `left` has where this one ends, below this call's frame. Its
// address is kept in the register that unwinders go by.
extern "C" [[gnu::visibility("hidden")]] void vma_call_on_stack(void (*work)(void *), void *argument, void *top,
                                                                void **left);

#if VMA_SWITCHES_STACKS && defined(__x86_64__)
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
        movq    %rsp, (%rcx)
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
#elif VMA_SWITCHES_STACKS
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
        str     x29, [x3]
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

namespace vma::config {

const bool g_switches_stacks = VMA_SWITCHES_STACKS != 0;

namespace {

#if VMA_SWITCHES_STACKS

// Written by who is about to go there; others find that they are somewhere else.
constinit struct {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    void *programs = nullptr; // where the program's stack ends meanwhile
} g_own_stack;

// What waits on the other stack lies deeper, whatever its address says.
void switch_to(void *top, void (*work)(void *), void *argument, void *&left)
{
    _pthread_cleanup_buffer *const outer = std::exchange(libc::t_libc.to_undo, nullptr);
    vma_call_on_stack(work, argument, top, &left);
    libc::t_libc.to_undo = outer;
}

bool is_on_own_stack()
{
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    return here >= g_own_stack.begin.load(std::memory_order_relaxed) &&
           here < g_own_stack.end.load(std::memory_order_relaxed);
}

#endif

} // namespace

void call_on_own_stack(void (*work)(void *), void *argument, char *stack, std::size_t size)
{
#if VMA_SWITCHES_STACKS
    g_own_stack.begin.store(reinterpret_cast<std::uintptr_t>(stack), std::memory_order_relaxed);
    g_own_stack.end.store(reinterpret_cast<std::uintptr_t>(stack + size), std::memory_order_relaxed);
    switch_to(stack + size, work, argument, g_own_stack.programs);
#else
    static_cast<void>(stack);
    static_cast<void>(size);
    work(argument);
#endif
}

void call_on_programs_stack(void (*work)(void *), void *argument)
{
#if VMA_SWITCHES_STACKS
    void *left = nullptr;
    if (is_on_own_stack()) [[unlikely]]
        return switch_to(g_own_stack.programs, work, argument, left);
#endif
    work(argument);
}

} // namespace vma::config
