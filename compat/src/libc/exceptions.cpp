// SPDX-License-Identifier: BSD-2-Clause
// What the library has of C++ exceptions, in place of libstdc++'s. Nothing here throws but what is out of memory, which
// nobody catches; and libstdc++ takes each program that starts two brk() and four page faults for a pool of 72 KB, and
// one more for the tables of a demangler.
//
// Itanium C++ ABI, exception handling, 2.4.2: room for the runtime's header stands before what is thrown.
#include <stdlib.h>

#include <cstddef>

#include "compat/src/libc/report.hpp"
#include "compat/src/libc/sections.hpp"

namespace {

constexpr std::size_t kHeader = 256; // libstdc++'s is 128 bytes (struct __cxa_refcounted_exception)

// Who is out of memory has to be able to say so, in several threads at once.
constexpr std::size_t kLast = 8, kLastSize = 1024;
constinit struct {
    alignas(16) char room[kLast][kLastSize] = {};
    int taken = 0; // atomic
} g_last;

void *room_for(std::size_t thrown)
{
    const std::size_t size = kHeader + thrown;
    if (void *const made = ::calloc(1, size); made != nullptr)
        return static_cast<char *>(made) + kHeader;
    const int mine = __atomic_fetch_add(&g_last.taken, 1, __ATOMIC_RELAXED);
    if (size > kLastSize || mine >= static_cast<int>(kLast))
        ::abort();
    return g_last.room[mine] + kHeader;
}

void give_back(void *thrown)
{
    char *const made = static_cast<char *>(thrown) - kHeader;
    if (made < &g_last.room[0][0] ||
        made >= &g_last.room[0][0] + sizeof g_last.room) // the last ones are not given back
        ::free(made);
}

} // namespace

extern "C" {

// __gnu_cxx::__verbose_terminate_handler(): libstdc++'s prints the type of what was thrown, for which it has a
// demangler.
[[noreturn]] [[gnu::visibility("hidden")]] void vma_terminate() asm("_ZN9__gnu_cxx27__verbose_terminate_handlerEv");
void vma_terminate()
{
    vma::libc::report_panic("out of memory where nothing else can be done: the process ends");
    ::abort();
}

// __cxxabiv1::__terminate_handler and __unexpected_handler: here, as the loader writes to them.
using Handler = void (*)();
extern Handler vma_terminate_handler asm("_ZN10__cxxabiv119__terminate_handlerE");
extern Handler vma_unexpected_handler asm("_ZN10__cxxabiv120__unexpected_handlerE");
[[VMA_STARTUP_DATA]] [[gnu::visibility("hidden")]] constinit Handler vma_terminate_handler = vma_terminate;
[[VMA_STARTUP_DATA]] [[gnu::visibility("hidden")]] constinit Handler vma_unexpected_handler = ::abort;

[[gnu::visibility("hidden")]] void *__cxa_allocate_exception(std::size_t size) noexcept
{
    return room_for(size);
}

[[gnu::visibility("hidden")]] void __cxa_free_exception(void *thrown) noexcept
{
    give_back(thrown);
}

} // extern "C"
