// SPDX-License-Identifier: BSD-2-Clause
// Fills the table of libc's own functions, by dlsym(RTLD_NEXT): another preloaded library behind us keeps its wrappers.
#include "compat/src/libc/real.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <iterator>

#include "compat/src/libc/next_symbol.hpp"
#include "compat/src/libc/sections.hpp"

#pragma GCC diagnostic ignored "-Wignored-attributes" // of libc's declarations; only their types are meant here

namespace vma::libc {

namespace {

constexpr char kNames[][48] = { // no pointers: each program that starts would have a copy of their page
#define X(name) #name,
    VMA_REAL_FUNCTIONS(X)
#undef X
#define X(type, name) #name,
        VMA_REAL_CHECKED(X)
#undef X
};
constexpr std::size_t kCount = std::size(kNames);

constexpr std::array<std::uint32_t, kCount> kHashes = [] {
    std::array<std::uint32_t, kCount> hashes{};
    std::transform(std::begin(kNames), std::end(kNames), hashes.begin(), symbol_hash);
    return hashes;
}();

// The table as what it is made of: pointers, in the order of the names.
using Slot [[gnu::may_alias]] = void *;
static_assert(sizeof(Real) == kCount * sizeof(Slot));

Slot *slots()
{
    return reinterpret_cast<Slot *>(&real);
}

// In place of a function that this libc lacks; libc's convention for "not there".
long missing()
{
    errno = ENOSYS;
    return -1;
}

// Several threads may do it at once, with the same value.
[[VMA_AT_STARTUP]] void fill(std::size_t index, void *from)
{
    void *found = ::dlsym(from, kNames[index]);
    if (found == nullptr)
        found = reinterpret_cast<void *>(&missing);
    __atomic_store_n(&slots()[index], found, __ATOMIC_RELAXED);
}

// Where libc's functions are. A program may dlopen() us instead of preloading, and then there may be nothing next.
[[VMA_AT_STARTUP]] void *source()
{
    return ::dlsym(RTLD_NEXT, kNames[0]) != nullptr ? RTLD_NEXT : ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

// Only the one: a stub may be called by a malloc() that is being initialised, so nothing here may allocate, and dlsym()
// does so when it finds nothing.
template <auto Member> auto resolve_one()
{
    const int saved = errno;
    Slot *const slot = reinterpret_cast<Slot *>(&(real.*Member));
    fill(static_cast<std::size_t>(slot - slots()), source());
    errno = saved;
    return real.*Member;
}

// Stub<type of the function>::call<member of Real> fills its entry, then goes on to the function itself.
template <typename F> struct Stub;

template <typename R, typename... A> struct Stub<R (*)(A...)> {
    template <auto Member> static R call(A... args) { return resolve_one<Member>()(args...); }
};

template <typename R, typename... A> struct Stub<R (*)(A...) noexcept> {
    template <auto Member> static R call(A... args) noexcept { return resolve_one<Member>()(args...); }
};

// The variadic ones read as many arguments as the function can have, as libc's own do: absent ones are garbage that
// nobody looks at.
template <> struct Stub<decltype(&::fcntl)> {
    template <auto Member> static int call(int a, int b, ...)
    {
        std::va_list rest;
        va_start(rest, b);
        void *const argument = va_arg(rest, void *);
        va_end(rest);
        return resolve_one<Member>()(a, b, argument);
    }
};

template <> struct Stub<decltype(&::ioctl)> {
    template <auto Member> static int call(int fd, unsigned long request, ...) noexcept
    {
        std::va_list rest;
        va_start(rest, request);
        void *const argument = va_arg(rest, void *);
        va_end(rest);
        return resolve_one<Member>()(fd, request, argument);
    }
};

template <> struct Stub<decltype(&::open)> {
    template <auto Member> static int call(const char *path, int flags, ...)
    {
        std::va_list rest;
        va_start(rest, flags);
        const mode_t mode = va_arg(rest, mode_t);
        va_end(rest);
        return resolve_one<Member>()(path, flags, mode);
    }
};

template <> struct Stub<decltype(&::openat)> {
    template <auto Member> static int call(int dir, const char *path, int flags, ...)
    {
        std::va_list rest;
        va_start(rest, flags);
        const mode_t mode = va_arg(rest, mode_t);
        va_end(rest);
        return resolve_one<Member>()(dir, path, flags, mode);
    }
};

template <> struct Stub<decltype(&::mq_open)> {
    template <auto Member> static mqd_t call(const char *name, int flags, ...) noexcept
    {
        std::va_list rest;
        va_start(rest, flags);
        const mode_t mode = va_arg(rest, mode_t);
        void *const attributes = va_arg(rest, void *);
        va_end(rest);
        return resolve_one<Member>()(name, flags, mode, attributes);
    }
};

template <> struct Stub<decltype(&::clone)> {
    template <auto Member> static int call(int (*fn)(void *), void *stack, int flags, void *argument, ...) noexcept
    {
        std::va_list rest;
        va_start(rest, argument);
        void *const parent_tid = va_arg(rest, void *);
        void *const tls = va_arg(rest, void *);
        void *const child_tid = va_arg(rest, void *);
        va_end(rest);
        return resolve_one<Member>()(fn, stack, flags, argument, parent_tid, tls, child_tid);
    }
};

template <> struct Stub<decltype(&::prctl)> {
    template <auto Member> static int call(int option, ...) noexcept
    {
        std::va_list rest;
        va_start(rest, option);
        unsigned long arguments[4];
        for (unsigned long &argument : arguments)
            argument = va_arg(rest, unsigned long);
        va_end(rest);
        return resolve_one<Member>()(option, arguments[0], arguments[1], arguments[2], arguments[3]);
    }
};

template <> struct Stub<decltype(&::syscall)> {
    template <auto Member> static long call(long number, ...) noexcept
    {
        std::va_list rest;
        va_start(rest, number);
        long arguments[6];
        for (long &argument : arguments)
            argument = va_arg(rest, long);
        va_end(rest);
        return resolve_one<Member>()(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                                     arguments[5]);
    }
};

} // namespace

constinit Real real = {
#define X(name) .name = &Stub<decltype(Real::name)>::call<&Real::name>,
    VMA_REAL_FUNCTIONS(X)
#undef X
#define X(type, name) .name = &Stub<type>::call<&Real::name>,
        VMA_REAL_CHECKED(X)
#undef X
};

void resolve_real()
{
    const int saved = errno;
    void *const from = source();
    for (std::size_t i = 0; i < kCount; ++i)
        fill(i, from);
    errno = saved;
}

[[VMA_AT_STARTUP]] void resolve_real_at_start()
{
    const int saved = errno;
    const NextSymbols next;
    for (std::size_t i = 0; i < kCount; ++i) {
        if (void *const found = next.find(kNames[i], kHashes[i]))
            __atomic_store_n(&slots()[i], found, __ATOMIC_RELAXED);
        else
            fill(i, source());
    }
    errno = saved;
}

} // namespace vma::libc
