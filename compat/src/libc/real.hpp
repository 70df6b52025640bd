// SPDX-License-Identifier: BSD-2-Clause
// libc's own functions, as they are behind our wrappers. Everything in libvma.so that means the kernel calls through
// this table, never by the plain name, which would come back to us. It lies outside of intercept/ so that unit tests,
// which have no wrappers, link it too.
#pragma once

#include <features.h>

#if !defined(__GLIBC__)
#error                                                                                                                 \
    "libvma.so stands in for the functions of glibc: names, versions and cancellation. Another libc can have the provider alone (doc/portability.md)"
#endif

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utmp.h>
#include <wordexp.h>

extern "C" {
#include <sys/pidfd.h> // glibc 2.36's does not say that it is C
}

namespace vma::libc {

// clang-format off
// name of the member and of the symbol; add what you need, sorted by group.
#define VMA_REAL_FUNCTIONS(X)                                                                                          \
    X(socket)                                                                                                          \
    X(socketpair)                                                                                                      \
    X(pipe) X(pipe2) X(accept) X(accept4) X(connect) X(listen) X(bind) X(shutdown) X(getsockname) X(getpeername)       \
        X(getsockopt) X(setsockopt) X(open) X(openat) X(creat) X(eventfd) X(timerfd_create) X(signalfd)                \
            X(inotify_init) X(inotify_init1) X(memfd_create) X(close) X(close_range) X(closefrom) X(dup) X(dup2)       \
                X(dup3) X(fcntl) X(ioctl) X(fdopen) X(fclose) X(freopen) X(freopen64) X(vdprintf) X(read) X(readv)     \
                    X(preadv2) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(write) X(writev) X(pwritev2) X(send)       \
                        X(sendto) X(sendmsg) X(sendmmsg) X(sendfile) X(splice) X(select) X(pselect) X(poll) X(ppoll)   \
                            X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
                                X(sigaction) X(signal) X(sysv_signal) X(sigset) X(siginterrupt) X(fork) X(_Fork) X(vfork)      \
                                    X(clone) X(daemon) X(system) X(popen) X(posix_spawn) X(posix_spawnp) X(execve)     \
                                        X(execv) X(execvp) X(execvpe) X(fexecve) X(execveat) X(syscall)    \
                                            X(wordexp) X(aio_read) X(aio_read64) X(aio_write) X(aio_write64)           \
                                                X(lio_listio) X(lio_listio64) X(backtrace_symbols_fd) X(eventfd_read)  \
                                                    X(eventfd_write) X(setsourcefilter) X(setipv4sourcefilter)         \
                                                        X(login_tty) X(forkpty) X(fanotify_init) X(shm_open)           \
    X(pidfd_open) X(pidfd_getfd) X(fsopen) X(fsmount) X(fspick) X(open_tree) X(open_by_handle_at) X(mkstemp)           \
        X(mkstemps) X(mkostemp) X(mkostemps) X(posix_openpt) X(getpt) X(rresvport) X(rresvport_af) X(fopen) X(fopen64) \
            X(tmpfile) X(tmpfile64) X(opendir) X(mq_open) X(openpty) X(prctl) X(unshare)                               \
    X(setenv) X(unsetenv) X(putenv) X(clearenv)                                                                        \
    X(posix_spawn_file_actions_adddup2)

// Of functions that glibc has in a header of its own, or only for fortified programs.
using ReadChk = ssize_t (*)(int, void *, size_t, size_t);
using RecvChk = ssize_t (*)(int, void *, size_t, size_t, int);
using RecvfromChk = ssize_t (*)(int, void *, size_t, size_t, int, sockaddr *, socklen_t *);
using PollChk = int (*)(pollfd *, nfds_t, int, size_t);
using PpollChk = int (*)(pollfd *, nfds_t, const timespec *, const sigset_t *, size_t);
using Open2 = int (*)(const char *, int);
using Openat2 = int (*)(int, const char *, int);
using RegisterAtfork = int (*)(void (*)(), void (*)(), void (*)(), void *) noexcept;
using VdprintfChk = int (*)(int, int, const char *, va_list);
using DlFindObject = int (*)(void *, dl_find_object *) noexcept; // since 2.35
#define VMA_REAL_CHECKED(X)                                                                                            \
    X(ReadChk, __read_chk)                                                                                             \
    X(RecvChk, __recv_chk)                                                                                             \
    X(RecvfromChk, __recvfrom_chk) X(PollChk, __poll_chk) X(PpollChk, __ppoll_chk) X(VdprintfChk, __vdprintf_chk)    \
    X(Open2, __open_2) X(Openat2, __openat_2) X(Open2, __mq_open_2)                                  \
    X(RegisterAtfork, __register_atfork) X(DlFindObject, _dl_find_object)

// clang-format on

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"      // the types leave out nonnull and its like
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // programs still call sigset() and siginterrupt()

struct Real {
#define X(name) decltype(&::name) name;
    VMA_REAL_FUNCTIONS(X)
#undef X
#define X(type, name) type name;
    VMA_REAL_CHECKED(X)
#undef X
};

#pragma GCC diagnostic pop

// Before resolve_real() each entry is a stub that calls it, so the table may be used at any time, by a constructor of
// another library that runs before ours too, and a call through it checks nothing.
extern constinit Real real; // written once, entry by entry

// Fills the table; idempotent. Not async-signal-safe: our constructor calls it, before any signal handler can.
void resolve_real();
void resolve_real_at_start(); // likewise, before another object is loaded

} // namespace vma::libc
