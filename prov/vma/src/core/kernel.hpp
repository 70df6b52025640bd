// SPDX-License-Identifier: BSD-2-Clause
// System calls, for all that the provider does with descriptors and paths. libc's functions of these names may be the
// program's own, or another library's: they may wait for a lock, and whoever calls the provider holds some. Nor do
// these end the thread when it has been cancelled (pthreads(7)), which would leave a lock held for ever. Arguments,
// results and errno are those of the manual pages, section 2. Thread-safe, and safe in signal handlers.
// fabtests/test_linkage.py sees to it that the provider calls none of libc's.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <type_traits>

struct statfs; // <sys/statfs.h>: of whoever asks

namespace vma::core::kernel {

static_assert(sizeof(void *) == 8, "off_t, time_t and struct stat are the kernel's own where words have 64 bits");

// An argument that is not a pointer fills its register: the kernel may look at all of it.
template <typename T> inline auto whole(T argument) noexcept
{
    if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>)
        return static_cast<const void *>(argument);
    else
        return static_cast<long>(argument);
}

template <typename Result = int, typename... Arguments> inline Result call(long number, Arguments... arguments) noexcept
{
    return static_cast<Result>(::syscall(number, whole(arguments)...));
}

// ---- any descriptor

inline int close(int fd) noexcept
{
    return call(SYS_close, fd);
}

inline int fcntl(int fd, int command, int argument = 0) noexcept
{
    return call(SYS_fcntl, fd, command, argument);
}

inline int ioctl(int fd, unsigned long request, void *argument) noexcept
{
    return call(SYS_ioctl, fd, request, argument);
}

inline ssize_t read(int fd, void *bytes, std::size_t length) noexcept
{
    return call<ssize_t>(SYS_read, fd, bytes, length);
}

// Of an eventfd, without waiting, whatever its flags are, which those who share it can change.
inline ssize_t read_now(int fd, void *bytes, std::size_t length) noexcept
{
    constexpr long kNoWait = 8; // RWF_NOWAIT, for which musl has no name
    const iovec part{bytes, length};
    const auto got = call<ssize_t>(SYS_preadv2, fd, &part, 1, -1L, -1L, kNoWait);
    return got >= 0 || errno != EOPNOTSUPP ? got : read(fd, bytes, length); // Linux before 5.8
}

inline ssize_t write(int fd, const void *bytes, std::size_t length) noexcept
{
    return call<ssize_t>(SYS_write, fd, bytes, length);
}

// Whoever sleeps on the word, in any process that has its memory.
inline void futex_wake_all(std::uint32_t *word) noexcept
{
    call(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---- what waits. `milliseconds`: negative for no end.

inline int poll(pollfd *fds, nfds_t count, int milliseconds) noexcept
{
    timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
    return call(SYS_ppoll, fds, count, milliseconds < 0 ? nullptr : &limit, nullptr, 0);
}

inline int epoll_create1(int flags) noexcept
{
    return call(SYS_epoll_create1, flags);
}

inline int epoll_ctl(int set, int operation, int fd, epoll_event *event) noexcept
{
    return call(SYS_epoll_ctl, set, operation, fd, event);
}

inline int epoll_wait(int set, epoll_event *events, int most, int milliseconds) noexcept
{
    return call(SYS_epoll_pwait, set, events, most, milliseconds, nullptr, 8);
}

inline int eventfd(unsigned initial, int flags) noexcept
{
    return call(SYS_eventfd2, initial, flags);
}

inline int timerfd_create(int clock, int flags) noexcept
{
    return call(SYS_timerfd_create, clock, flags);
}

inline int timerfd_settime(int timer, int flags, const itimerspec *when, itimerspec *before) noexcept
{
    return call(SYS_timerfd_settime, timer, flags, when, before);
}

inline int nanosleep(const timespec *time, timespec *left) noexcept
{
    return call(SYS_nanosleep, time, left);
}

// ---- sockets

inline int socket(int domain, int type, int protocol) noexcept
{
    return call(SYS_socket, domain, type, protocol);
}

inline int bind(int fd, const sockaddr *address, socklen_t length) noexcept
{
    return call(SYS_bind, fd, address, length);
}

inline int listen(int fd, int backlog) noexcept
{
    return call(SYS_listen, fd, backlog);
}

inline int accept4(int fd, sockaddr *address, socklen_t *length, int flags) noexcept
{
    return call(SYS_accept4, fd, address, length, flags);
}

inline int connect(int fd, const sockaddr *address, socklen_t length) noexcept
{
    return call(SYS_connect, fd, address, length);
}

inline int getsockname(int fd, sockaddr *address, socklen_t *length) noexcept
{
    return call(SYS_getsockname, fd, address, length);
}

inline int getpeername(int fd, sockaddr *address, socklen_t *length) noexcept
{
    return call(SYS_getpeername, fd, address, length);
}

inline int getsockopt(int fd, int level, int name, void *value, socklen_t *length) noexcept
{
    return call(SYS_getsockopt, fd, level, name, value, length);
}

inline int setsockopt(int fd, int level, int name, const void *value, socklen_t length) noexcept
{
    return call(SYS_setsockopt, fd, level, name, value, length);
}

inline int shutdown(int fd, int how) noexcept
{
    return call(SYS_shutdown, fd, how);
}

inline ssize_t send(int fd, const void *bytes, std::size_t length, int flags) noexcept
{
    return call<ssize_t>(SYS_sendto, fd, bytes, length, flags, nullptr, 0);
}

inline int socketpair(int domain, int type, int protocol, int (&pair)[2]) noexcept
{
    return call<int>(SYS_socketpair, domain, type, protocol, pair);
}

inline ssize_t sendmsg(int fd, const msghdr *message, int flags) noexcept
{
    return call<ssize_t>(SYS_sendmsg, fd, message, flags);
}

inline ssize_t recvfrom(int fd, void *bytes, std::size_t length, int flags, void *from = nullptr,
                        socklen_t *from_length = nullptr) noexcept
{
    return call<ssize_t>(SYS_recvfrom, fd, bytes, length, flags, from, from_length);
}

inline ssize_t recvmsg(int fd, msghdr *message, int flags) noexcept
{
    return call<ssize_t>(SYS_recvmsg, fd, message, flags);
}

// ---- files

inline int openat(int directory, const char *path, int flags) noexcept // not for O_CREAT and O_TMPFILE
{
    return call(SYS_openat, directory, path, flags, 0);
}

inline int open(const char *path, int flags) noexcept
{
    return kernel::openat(AT_FDCWD, path, flags);
}

inline int memfd_create(const char *name, unsigned flags) noexcept
{
    return call(SYS_memfd_create, name, flags);
}

inline int ftruncate(int fd, off_t length) noexcept
{
    return call(SYS_ftruncate, fd, length);
}

inline int flock(int fd, int operation) noexcept
{
    return call(SYS_flock, fd, operation);
}

inline int fstatat(int directory, const char *path, struct stat *status, int flags) noexcept
{
    return call(SYS_newfstatat, directory, path, status, flags);
}

inline int fstat(int fd, struct stat *status) noexcept
{
    return kernel::fstatat(fd, "", status, AT_EMPTY_PATH);
}

inline int stat(const char *path, struct stat *status) noexcept
{
    return kernel::fstatat(AT_FDCWD, path, status, 0);
}

inline int mkdir(const char *path, mode_t mode) noexcept
{
    return call(SYS_mkdirat, AT_FDCWD, path, mode);
}

inline int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) noexcept
{
    return call(SYS_linkat, from_directory, from, to_directory, to, flags);
}

inline int unlinkat(int directory, const char *path, int flags) noexcept
{
    return call(SYS_unlinkat, directory, path, flags);
}

inline int fstatfs(int fd, struct statfs *where) noexcept
{
    return call<int>(SYS_fstatfs, fd, where);
}

inline ssize_t readlink(const char *path, char *target, std::size_t size) noexcept
{
    return call<ssize_t>(SYS_readlinkat, AT_FDCWD, path, target, size);
}

} // namespace vma::core::kernel
