// SPDX-License-Identifier: BSD-2-Clause
// What makes a descriptor that is none of ours: the number is new, whatever we still know of it. Only a descriptor that
// was closed past libc (a system call of the program's own) can have left something there. What makes sockets is
// create.cpp.
#include "compat/src/intercept/export.hpp"

#include <dirent.h>
#include <mqueue.h>
#include <netdb.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/mount.h>

#include <cstdarg>

namespace vma::intercept {

namespace {

int given(int fd)
{
    number_given(fd);
    return fd;
}

FILE *given(FILE *stream)
{
    if (stream != nullptr)
        number_given(::fileno_unlocked(stream));
    return stream;
}

DIR *given(DIR *directory)
{
    if (directory != nullptr)
        number_given(::dirfd(directory));
    return directory;
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

#define VMA_MAKER(type, name, parameters, arguments)                                                                   \
    VMA_EXPORT type name parameters                                                                                    \
    {                                                                                                                  \
        let_loads_end();                                                                                               \
        return given(real.name arguments);                                                                             \
    }

// clang-format off
VMA_MAKER(int, eventfd, (unsigned count, int flags) noexcept, (count, flags))
VMA_MAKER(int, timerfd_create, (clockid_t clock, int flags) noexcept, (clock, flags))
VMA_MAKER(int, inotify_init, () noexcept, ())
VMA_MAKER(int, inotify_init1, (int flags) noexcept, (flags))
VMA_MAKER(int, fanotify_init, (unsigned flags, unsigned events) noexcept, (flags, events))
VMA_MAKER(int, memfd_create, (const char *name, unsigned flags) noexcept, (name, flags))
VMA_MAKER(int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
VMA_MAKER(int, pidfd_open, (pid_t pid, unsigned flags) noexcept, (pid, flags))
VMA_MAKER(int, pidfd_getfd, (int pidfd, int fd, unsigned flags) noexcept, (pidfd, fd, flags))
VMA_MAKER(int, fsopen, (const char *name, unsigned flags) noexcept, (name, flags))
VMA_MAKER(int, fsmount, (int fd, unsigned flags, unsigned attributes) noexcept, (fd, flags, attributes))
VMA_MAKER(int, fspick, (int directory, const char *path, unsigned flags) noexcept, (directory, path, flags))
VMA_MAKER(int, open_tree, (int directory, const char *path, unsigned flags) noexcept, (directory, path, flags))
VMA_MAKER(int, open_by_handle_at, (int mount, file_handle *handle, int flags), (mount, handle, flags))
VMA_MAKER(int, mkstemp, (char *name), (name))
VMA_MAKER(int, mkstemps, (char *name, int suffix), (name, suffix))
VMA_MAKER(int, mkostemp, (char *name, int flags), (name, flags))
VMA_MAKER(int, mkostemps, (char *name, int suffix, int flags), (name, suffix, flags))
VMA_MAKER(int, posix_openpt, (int flags), (flags))
VMA_MAKER(int, getpt, () , ())
VMA_MAKER(int, __open_2, (const char *path, int flags), (path, flags))
VMA_MAKER(int, __openat_2, (int directory, const char *path, int flags), (directory, path, flags))
VMA_MAKER(int, __mq_open_2, (const char *name, int flags), (name, flags))
VMA_MAKER(int, rresvport, (int *port), (port))
VMA_MAKER(int, rresvport_af, (int *port, sa_family_t family), (port, family))
VMA_MAKER(FILE *, fopen, (const char *path, const char *mode), (path, mode))
VMA_MAKER(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
VMA_MAKER(FILE *, tmpfile, (), ())
VMA_MAKER(FILE *, tmpfile64, (), ())
VMA_MAKER(DIR *, opendir, (const char *path), (path))
// clang-format on

VMA_ALIAS(mkstemp) int mkstemp64(char *);
VMA_ALIAS(mkstemps) int mkstemps64(char *, int);
VMA_ALIAS(mkostemp) int mkostemp64(char *, int);
VMA_ALIAS(mkostemps) int mkostemps64(char *, int, int);
VMA_ALIAS(__open_2) int __open64_2(const char *, int);
VMA_ALIAS(__openat_2) int __openat64_2(int, const char *, int);

VMA_EXPORT int signalfd(int fd, const sigset_t *mask, int flags) noexcept
{
    if (fd >= 0)
        return real.signalfd(fd, mask, flags);
    let_loads_end();
    return given(real.signalfd(fd, mask, flags));
}

VMA_EXPORT mqd_t mq_open(const char *name, int flags, ...) noexcept
{
    std::va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t); // garbage, and not used, unless the flags make a queue
    mq_attr *const attributes = va_arg(rest, mq_attr *);
    va_end(rest);
    let_loads_end();
    return given(real.mq_open(name, flags, mode, attributes));
}

VMA_EXPORT int openpty(int *first, int *second, char *name, const termios *settings, const winsize *size) noexcept
{
    let_loads_end();
    const int result = real.openpty(first, second, name, settings, size);
    if (result == 0) {
        number_given(*first);
        number_given(*second);
    }
    return result;
}
