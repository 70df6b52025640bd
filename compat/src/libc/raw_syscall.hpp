// SPDX-License-Identifier: BSD-2-Clause
// A system call without libc, for what runs where a signal handler begins: no function is called and errno is not
// touched. On x86-64 no register is used but those that a function may, and not the three that a handler's arguments
// are in: nothing need be put on the stack. On AArch64 there are enough for these to be kept in others.
#pragma once

#include <sys/syscall.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cerrno>

#include "compat/src/libc/real.hpp"
#endif

namespace vma::libc {

struct Ids {
    long process;
    long thread;
};

#if defined(__x86_64__)

[[gnu::always_inline]] inline Ids raw_ids()
{
    long process;
    register long thread asm("r8");
    asm volatile("movl %2, %%eax\n\t"
                 "syscall\n\t"
                 "movq %%rax, %%r9\n\t"
                 "movl %3, %%eax\n\t"
                 "syscall\n\t"
                 "movq %%rax, %%r8\n\t"
                 "movq %%r9, %%rcx"
                 : "=c"(process), "=r"(thread)
                 : "i"(SYS_getpid), "i"(SYS_gettid)
                 : "rax", "r9", "r11", "memory");
    return {process, thread};
}

// The result, or the negative error.
template <typename A, typename B, typename C, typename D = long>
[[gnu::always_inline]] inline long raw_syscall(long number, A a, B b, C c, D d = 0)
{
    // NOLINTBEGIN(google-readability-casting): numbers and pointers
    long first = (long)a;
    register long second asm("r8") = (long)b;
    register long third asm("r9") = (long)c;
    register long fourth asm("r10") = (long)d;
    // NOLINTEND(google-readability-casting)
    asm volatile("movq %%rdi, %%xmm0\n\t"
                 "movq %%rsi, %%xmm1\n\t"
                 "movq %%rdx, %%xmm2\n\t"
                 "movq %%rcx, %%rdi\n\t"
                 "movq %%r8, %%rsi\n\t"
                 "movq %%r9, %%rdx\n\t"
                 "syscall\n\t"
                 "movq %%xmm0, %%rdi\n\t"
                 "movq %%xmm1, %%rsi\n\t"
                 "movq %%xmm2, %%rdx"
                 : "+a"(number), "+c"(first)
                 : "r"(second), "r"(third), "r"(fourth)
                 : "r11", "xmm0", "xmm1", "xmm2", "memory");
    return number;
}

#elif defined(__aarch64__)

// The result, or the negative error.
template <typename A, typename B, typename C, typename D = long>
[[gnu::always_inline]] inline long raw_syscall(long number, A a, B b, C c, D d = 0)
{
    // NOLINTBEGIN(google-readability-casting): numbers and pointers
    register long call asm("x8") = number;
    register long first asm("x0") = (long)a;
    register long second asm("x1") = (long)b;
    register long third asm("x2") = (long)c;
    register long fourth asm("x3") = (long)d;
    // NOLINTEND(google-readability-casting)
    asm volatile("svc #0" : "+r"(first) : "r"(call), "r"(second), "r"(third), "r"(fourth) : "memory");
    return first;
}

[[gnu::always_inline]] inline Ids raw_ids()
{
    return {raw_syscall(SYS_getpid, 0, 0, 0), raw_syscall(SYS_gettid, 0, 0, 0)};
}

#else

inline Ids raw_ids()
{
    return {real.syscall(SYS_getpid), real.syscall(SYS_gettid)};
}

template <typename... Arguments> inline long raw_syscall(long number, Arguments... arguments)
{
    const int saved = errno;
    const long result = real.syscall(number, arguments...);
    const long told = result == -1 ? -long{errno} : result;
    errno = saved;
    return told;
}

#endif

} // namespace vma::libc
