// SPDX-License-Identifier: BSD-2-Clause
// Stretches of this library's code that hold one of its locks: a signal handler of the program's that came in one of
// them could call send() and wait for ever for the lock that its own thread holds. The trampoline (handlers.cpp) puts
// such signals off until the stretch ends. What may be called in one must not be a cancellation point: see uncancelled
// below.
#pragma once

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/this_thread.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::libc {

void deliver_deferred(); // unblocks them: their handlers run in here

inline void enter_critical()
{
    ++t_libc.critical.depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline void leave_critical()
{
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (--t_libc.critical.depth == 0) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (t_libc.critical.deferred != 0) [[unlikely]]
            deliver_deferred();
    }
}

// A stretch that holds no lock: what it changes, a handler finds changed as a whole, or not at all, also one that jumps
// out of the call.
class Stretch
{
public:
    Stretch() { enter_critical(); }
    ~Stretch() { leave_critical(); }
    Stretch(const Stretch &) = delete;
    Stretch &operator=(const Stretch &) = delete;
};

// In a forked child, which makes its locks anew instead of unlocking them: back to how deep it was before they were
// taken.
inline void restore_critical(std::uint32_t depth)
{
    t_libc.critical.depth = depth + 1;
    leave_critical();
}

// A cancellation point of a call that doesn't wait; in a stretch there is none.
inline void test_cancel()
{
    if (t_libc.critical.depth == 0)
        ::pthread_testcancel();
}

// Around a function of the program's that is called in a stretch without a lock: handlers come, and it may jump.
class OutsideStretches
{
public:
    OutsideStretches()
    {
        if (depth_ != 0)
            restore_critical(0);
    }
    ~OutsideStretches() { t_libc.critical.depth += depth_; }
    OutsideStretches(const OutsideStretches &) = delete;
    OutsideStretches &operator=(const OutsideStretches &) = delete;

private:
    const std::uint32_t depth_ = t_libc.critical.depth;
};

// System calls that don't end the thread when it has been cancelled, unlike libc's functions of these names. Results
// and errno are the same.
namespace uncancelled {

inline ssize_t recvmsg(int fd, msghdr *msg, int flags)
{
    return real.syscall(SYS_recvmsg, fd, msg, flags);
}

inline ssize_t sendmsg(int fd, const msghdr *msg, int flags)
{
    return real.syscall(SYS_sendmsg, fd, msg, flags);
}

inline ssize_t send(int fd, const void *bytes, std::size_t len, int flags)
{
    return real.syscall(SYS_sendto, fd, bytes, len, flags, nullptr, 0);
}

inline ssize_t read(int fd, void *bytes, std::size_t len)
{
    return real.syscall(SYS_read, fd, bytes, len);
}

inline ssize_t write(int fd, const void *bytes, std::size_t len)
{
    return real.syscall(SYS_write, fd, bytes, len);
}

inline int close(int fd) // libc's own, which ThreadSanitizer has to see
{
    const NotCancelled whole;
    return real.close(fd);
}

inline int epoll_now(int set, epoll_event *events, int most) // a look, no wait
{
    return static_cast<int>(real.syscall(SYS_epoll_pwait, set, events, most, 0, nullptr, std::size_t{8}));
}

inline int poll(pollfd *fds, nfds_t count, int milliseconds)
{
    const timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    return static_cast<int>(real.syscall(SYS_ppoll, fds, count, &limit, nullptr, std::size_t{0}));
}

inline int poll_now(pollfd *fds, nfds_t count) // a look, no wait
{
    return uncancelled::poll(fds, count, 0);
}

// There is nothing yet, or a handler has ended the look.
inline bool finds_nothing(pollfd &p)
{
    const int n = poll_now(&p, 1);
    return n == 0 || (n < 0 && errno == EINTR);
}

} // namespace uncancelled

} // namespace vma::libc
