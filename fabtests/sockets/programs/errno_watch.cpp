// SPDX-License-Identifier: BSD-2-Clause
// Preloaded before libvma.so: a call that succeeds leaves errno as it was, as the kernel's own does, or the program
// ends. Some programs look at errno first (sockperf takes ECONNRESET after a successful recv() for the end of a
// connection).
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace {

constexpr int kChanged = 99; // exit status; the next is where nobody could be told

[[noreturn]] void changed(const char *call, int before, int after, long result)
{
    char line[128];
    const int length = std::snprintf(line, sizeof line, "%s() returned %ld and errno went from %d to %d\n", call,
                                     result, before, after);
    const ssize_t told = length > 0 ? ::write(STDERR_FILENO, line, static_cast<std::size_t>(length)) : 0;
    ::_exit(told >= 0 ? kChanged : kChanged + 1);
}

template <typename Call> auto watched(const char *name, const Call &call)
{
    const int before = errno;
    const auto result = call();
    if (result >= 0 && errno != before)
        changed(name, before, errno, result);
    return result;
}

} // namespace

#define WATCHED(type, name, parameters, arguments, exceptions)                                                         \
    extern "C" [[gnu::visibility("default")]] type name parameters exceptions                                          \
    {                                                                                                                  \
        using Function = type(*) parameters exceptions;                                                                \
        static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, #name));                                \
        return watched(#name, [&] { return next arguments; });                                                         \
    }

WATCHED(ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size), )
WATCHED(ssize_t, readv, (int fd, const iovec *parts, int count), (fd, parts, count), )
WATCHED(ssize_t, recv, (int fd, void *bytes, size_t size, int flags), (fd, bytes, size, flags), )
WATCHED(ssize_t, recvfrom, (int fd, void *bytes, size_t size, int flags, sockaddr *from, socklen_t *length),
        (fd, bytes, size, flags, from, length), )
WATCHED(ssize_t, recvmsg, (int fd, msghdr *message, int flags), (fd, message, flags), )
WATCHED(int, recvmmsg, (int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout),
        (fd, messages, count, flags, timeout), )
WATCHED(ssize_t, writev, (int fd, const iovec *parts, int count), (fd, parts, count), )
WATCHED(ssize_t, send, (int fd, const void *bytes, size_t size, int flags), (fd, bytes, size, flags), )
WATCHED(ssize_t, sendto, (int fd, const void *bytes, size_t size, int flags, const sockaddr *to, socklen_t length),
        (fd, bytes, size, flags, to, length), )
WATCHED(ssize_t, sendmsg, (int fd, const msghdr *message, int flags), (fd, message, flags), )
WATCHED(int, sendmmsg, (int fd, mmsghdr *messages, unsigned count, int flags), (fd, messages, count, flags), )
WATCHED(ssize_t, sendfile, (int fd, int file, off_t *offset, size_t count), (fd, file, offset, count), noexcept)
WATCHED(ssize_t, splice, (int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size, unsigned flags),
        (in, in_offset, out, out_offset, size, flags), )
WATCHED(int, connect, (int fd, const sockaddr *address, socklen_t length), (fd, address, length), )
WATCHED(int, accept, (int fd, sockaddr *address, socklen_t *length), (fd, address, length), )
WATCHED(int, accept4, (int fd, sockaddr *address, socklen_t *length, int flags), (fd, address, length, flags), )
WATCHED(int, shutdown, (int fd, int how), (fd, how), noexcept)
WATCHED(int, close, (int fd), (fd), )
WATCHED(int, socket, (int domain, int type, int protocol), (domain, type, protocol), noexcept)
WATCHED(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length),
        (fd, level, name, value, length), noexcept)
WATCHED(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length),
        (fd, level, name, value, length), noexcept)
WATCHED(int, poll, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout), )
WATCHED(int, ppoll, (pollfd * fds, nfds_t count, const timespec *timeout, const sigset_t *mask),
        (fds, count, timeout, mask), )
WATCHED(int, select, (int count, fd_set *in, fd_set *out, fd_set *err, timeval *timeout),
        (count, in, out, err, timeout), )
WATCHED(int, epoll_ctl, (int set, int operation, int fd, epoll_event *event), (set, operation, fd, event), noexcept)
WATCHED(int, epoll_wait, (int set, epoll_event *events, int most, int timeout), (set, events, most, timeout), )
WATCHED(int, dup, (int fd), (fd), noexcept)
WATCHED(int, dup2, (int fd, int number), (fd, number), noexcept)
WATCHED(pid_t, fork, (), (), noexcept)
