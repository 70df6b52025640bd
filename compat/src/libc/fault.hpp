// SPDX-License-Identifier: BSD-2-Clause
// Is the memory that the program names there? The kernel finds out while it copies, and says EFAULT; we find out the
// same way, as the kernel's own exception tables do: one instruction touches each page, its address is in a table with
// the place to go on at if it fails, and the handler of SIGSEGV and SIGBUS goes there (doc/faults.md). A page that is
// there costs that instruction. Async-signal-safe, any thread. Memory that another thread takes away after the look is
// not seen to.
//
// Before the process has its first socket of ours no handler is in place, as none is wanted there. Until then the
// functions below ask the kernel instead: there is no moment at which a wrapper that looks by them can fail. touch_*()
// are for callers with a socket.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/libc/handler_state.hpp"

namespace vma::libc {

inline constexpr std::uintptr_t kSmallestPage = 4096;
inline constexpr std::size_t kMostTouched = 1 << 20; // bytes, where it is not known how many are moved

#if defined(__x86_64__) || defined(__aarch64__)
// The entry is part of the group of the function that it is of, or what the linker drops would leave entries of
// nothing.
#define VMA_TOUCHES(fault)                                                                                             \
    ".pushsection vma_touches, \"a?\"\n"                                                                               \
    ".balign 4\n"                                                                                                      \
    ".long 1b - .\n"                                                                                                   \
    ".long " fault " - .\n"                                                                                            \
    ".popsection"
#endif
#if defined(__x86_64__)
#define VMA_READ "1: testb $0, %0\n"
#define VMA_OVERWRITE "1: movb $0, %0\n"
#define VMA_UPDATE "1: orb $0, %0\n"
#define VMA_SPOILS "cc"
#elif defined(__aarch64__)
#define VMA_READ "1: ldrb wzr, %0\n"
#define VMA_OVERWRITE "1: strb wzr, %0\n"
#define VMA_UPDATE "1: ldrb w9, %0\n" VMA_TOUCHES("%l[fault]") "\n1: strb w9, %0\n"
#define VMA_SPOILS "x9"
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define VMA_TOUCH(instruction, address)                                                                                \
    asm goto(instruction VMA_TOUCHES("%l[fault]")                                                                      \
             :                                                                                                         \
             : "m"(*reinterpret_cast<unsigned char *>(address))                                                        \
             : VMA_SPOILS, "memory"                                                                                    \
             : fault)
#else // a fault ends the program
#define VMA_TOUCH(instruction, address)                                                                                \
    if ((address) == 0)                                                                                                \
    goto fault
#endif

// One byte: can it be read, can it be overwritten (it is 0 then), can it be written (it is what it was)? Kept out of
// the way of AddressSanitizer: these are no accesses of ours.
[[gnu::always_inline, nodiscard]] inline bool touch_to_read(std::uintptr_t address)
{
    VMA_TOUCH(VMA_READ, address);
    return true;
fault:
    return false;
}

[[gnu::always_inline, nodiscard]] inline bool touch_to_overwrite(std::uintptr_t address)
{
    VMA_TOUCH(VMA_OVERWRITE, address);
    return true;
fault:
    return false;
}

[[gnu::always_inline, nodiscard]] inline bool touch_to_update(std::uintptr_t address)
{
    VMA_TOUCH(VMA_UPDATE, address);
    return true;
fault:
    return false;
}

// Bytes from `address` on that `touch` finds no fault with, `length` if none.
template <typename Touch>
[[gnu::always_inline]] inline std::size_t touch_pages(const void *address, std::size_t length, Touch touch)
{
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t last = first + length - 1;
    if (length == 0)
        return 0;
    if (last < first || !touch(first)) [[unlikely]]
        return 0;
    for (std::uintptr_t page = (first | (kSmallestPage - 1)) + 1; page <= last && page != 0; page += kSmallestPage)
        if (!touch(page)) [[unlikely]]
            return page - first;
    return length;
}

// Has catch_faults() been called? Not if there never was a socket of ours: then no call is about one, whatever it
// names.
[[gnu::always_inline]] inline bool faults_are_caught()
{
    return g_handlers.faults_are_caught.load(std::memory_order_relaxed);
}

// A system call a page, which leaves the memory as it is.
[[gnu::cold, nodiscard]] bool ask_to_read(const void *address, std::size_t length);
[[gnu::cold, nodiscard]] bool ask_to_write(const void *address, std::size_t length);

[[gnu::always_inline, nodiscard]] inline bool can_read(const void *address, std::size_t length)
{
    if (!faults_are_caught()) [[unlikely]]
        return ask_to_read(address, length);
    return touch_pages(address, length, touch_to_read) == length;
}

// Of what is overwritten next: a byte of each page is 0 then.
[[gnu::always_inline, nodiscard]] inline bool can_overwrite(void *address, std::size_t length)
{
    if (!faults_are_caught()) [[unlikely]]
        return ask_to_write(address, length);
    return touch_pages(address, length, touch_to_overwrite) == length;
}

// Leaves what is there; what another thread writes there at the same moment may be lost.
[[gnu::always_inline, nodiscard]] inline bool can_update(const void *address, std::size_t length)
{
    if (!faults_are_caught()) [[unlikely]]
        return ask_to_write(address, length);
    return touch_pages(address, length, touch_to_update) == length;
}

// Where a register is perhaps not what it was when a load into it has failed.
template <typename T> [[gnu::always_inline]] inline T loaded_or(const T &place, T otherwise)
{
    const auto address = reinterpret_cast<std::uintptr_t>(&place);
    return touch_to_read(address) && touch_to_read(address + sizeof place - 1) ? place : otherwise;
}

// What stands there, or `otherwise` if nothing does. Only where faults are caught: a loop over what a program gives to
// poll() has looked.
[[gnu::always_inline]] inline int load_or(const int &place, int otherwise)
{
#if defined(__x86_64__)
    asm("1: movl %1, %0\n2:\n" VMA_TOUCHES("2b") : "+r"(otherwise) : "m"(place));
    return otherwise;
#else
    return loaded_or(place, otherwise);
#endif
}

[[gnu::always_inline]] inline long load_or(const long &place, long otherwise)
{
#if defined(__x86_64__)
    asm("1: movq %1, %0\n2:\n" VMA_TOUCHES("2b") : "+r"(otherwise) : "m"(place));
    return otherwise;
#else
    return loaded_or(place, otherwise);
#endif
}

// ---- what sees to it

// From here on, unless the program, or what it runs under, has a handler that did not come by us. Once, in any thread.
void catch_faults();

// In a handler of SIGSEGV or SIGBUS that was called with `context`: true if an instruction of the table failed. The
// handler just returns.
bool recover(void *context);

// What stands for SIG_DFL of `signal` from catch_faults() on. False before, and of other signals.
bool has_default_action(int signal, struct sigaction &action);
bool is_default_handler(sighandler_t handler);

} // namespace vma::libc
