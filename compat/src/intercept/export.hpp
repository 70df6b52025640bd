// SPDX-License-Identifier: BSD-2-Clause
// What the files of intercept/ share: how a libc function is defined here, and what is known of a descriptor.
// Include it first: it turns off what would give libc's names another body than ours.
#pragma once

#undef _FORTIFY_SOURCE // inline read(), recv(), poll() ...
#undef _FILE_OFFSET_BITS

#include <cerrno>

#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/table/socket.hpp"

// libc's declarations promise what programs give us (nonnull); we make no use of it.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

#define VMA_EXPORT extern "C" [[gnu::visibility("default")]]
// A second name of an exported function of the same file.
#define VMA_ALIAS(name) extern "C" [[gnu::visibility("default"), gnu::alias(#name)]]

namespace vma::intercept {

using libc::real;

using libc::keep_errno;
using libc::KeepErrno;

// The number is tracked, and a child of vfork() has it, or a thread in whose table it is another file. (By the number
// alone, so that who doesn't get here has nothing to keep for it.) descriptors.cpp
bool is_of_another_table(int fd);

// The tracked socket behind a descriptor of this process, or nullptr.
inline sock::Socket *tracked(int fd)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s != nullptr && libc::numbers_may_differ() && (libc::t_libc.vfork_caller != 0 || libc::tables_apart()) &&
        is_of_another_table(fd)) [[unlikely]]
        return nullptr;
    return s;
}

// The numbers that are tracked sockets, epoll sets or io_urings whose submissions are read. Atomic.
extern libc::DescriptorMap<sock::kMaxTracked> g_ours;

inline bool ours(int fd)
{
    return g_ours.has(fd);
}

inline constexpr unsigned kLastTracked = sock::kMaxTracked - 1;

// Each of a range, which it may take out.
template <typename What> void each_of_ours(unsigned first, unsigned last, What &&what)
{
    for (int fd = g_ours.next(first, last); fd >= 0; fd = g_ours.next(static_cast<unsigned>(fd) + 1, last))
        what(fd);
}

// ---- create.cpp
int accept_tracked(int listener, sockaddr *address, socklen_t *length, int flags); // accept4()

// Before the kernel gives out a number, or takes one back; and before what is made meanwhile is inherited, or what the
// loader of the provider reads is changed.
inline void let_loads_end()
{
    if (sock::is_any_loading()) [[unlikely]]
        sock::wait_once_for_loads();
}

// ---- around a system call that copies this process, as process.cpp's _Fork() does
template <typename Copy> long copy_process(Copy copy)
{
    const libc::NotCancelled whole;
    let_loads_end(); // who loads takes the gate
    sock::g_forks.gate.lock();
    sock::clone_begins();
    const long pid = copy();
    const KeepErrno keep;
    if (pid == 0) {
        sock::fork_ends_in_child();
    } else {
        sock::fork_ends_in_parent();
        sock::forked(static_cast<pid_t>(pid));
    }
    sock::g_forks.gate.unlock();
    return pid;
}

// ---- around a function of libc's that forks, and so calls handlers
template <typename Fork> int fork_with_handlers(Fork fork)
{
    const libc::NotCancelled whole;
    const pid_t caller = sock::sandboxed() ? 0 : ::getpid(); // without sockets of ours nobody is to be told
    let_loads_end();                                         // who loads takes the gate
    sock::g_forks.gate.lock();
    const bool borrows = libc::in_vfork_child(); // the sockets of its parent
    if (!borrows)
        sock::fork_comes();
    const int result = fork();
    const KeepErrno keep;
    if (result != 0 && !borrows)
        sock::fork_is_over();
    if (result != 0 && caller != 0 &&
        ::getpid() == caller) // a child in a namespace of its own may have the same number
        sock::forked(result);
    sock::g_forks.gate.unlock(); // the child's copy too
    return result;
}

// ---- descriptors.cpp

// Drops what is known of a number that is about to be closed.
void retire(int fd);

// The kernel gave out this number: what we still know of it was closed past us (a system call of the program's own,
// libc's insides).
inline void number_given(int fd)
{
    if (fd >= 0 && ours(fd)) [[unlikely]]
        retire(fd);
}

// After the kernel duplicated one descriptor.
void duplicated(int old_fd, int new_fd);
inline void was_duplicated(int old_fd, int new_fd)
{
    if (ours(old_fd) || ours(new_fd) || new_fd == STDERR_FILENO) [[unlikely]]
        duplicated(old_fd, new_fd);
}

// After a number became ours. A socket that got the number 0, 1 or 2 is given to the kernel: stdio and programs that
// are started later use these without asking us. So is one whose number an io_uring waits to use.
void number_tracked(int fd);

// Before threads have tables of their own: what is known of all numbers is dropped. Where bytes are left to read here
// that the kernel has not, the number stays, and tracked() looks at the file behind it.
void leave_numbers();
// First, as each call finds what is left to read by its file from the moment on that tables may differ.
void note_files();

// Retires all of a range.
void retire_range(unsigned first, unsigned last);

} // namespace vma::intercept
