// SPDX-License-Identifier: BSD-2-Clause
// System calls that don't end the thread when it has been cancelled (pthreads(7)), unlike libc's functions of these names: for who
// holds a lock, which nobody would release. Results and errno are the same.
#pragma once

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>

namespace vma::core::uncancelled {

inline ssize_t send(int fd, const void *bytes, std::size_t length, int flags) noexcept
{
    return ::syscall(SYS_sendto, fd, bytes, length, flags, nullptr, 0);
}

inline ssize_t receive(int fd, void *bytes, std::size_t length, int flags, void *from = nullptr,
                       void *from_length = nullptr) noexcept
{
    return ::syscall(SYS_recvfrom, fd, bytes, length, flags, from, from_length);
}

inline ssize_t read(int fd, void *bytes, std::size_t length) noexcept
{
    return ::syscall(SYS_read, fd, bytes, length);
}

inline ssize_t write(int fd, const void *bytes, std::size_t length) noexcept
{
    return ::syscall(SYS_write, fd, bytes, length);
}

inline int look(int epoll, epoll_event *events, int most) noexcept // epoll_wait without a wait
{
    return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, most, 0, nullptr, std::size_t{8}));
}

inline void sleep(const timespec &time) noexcept
{
    static_cast<void>(::syscall(SYS_nanosleep, &time, nullptr));
}

} // namespace vma::core::uncancelled
