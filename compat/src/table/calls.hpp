// SPDX-License-Identifier: BSD-2-Clause
// Calls of the program's that may take long, counted in their socket: those inside the kernel on a kernel-only socket
// (it isn't offloaded under them), and those that wait on an offloaded one. A socket that is closed meanwhile goes on
// for them, as in the kernel.
#pragma once

#include <errno.h>
#include <sys/types.h>

#include "compat/src/libc/signals.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

enum class CallKind : std::uint8_t {
    kBlockedReceive, // START can't come: READY waits for it
    kBlockedPoll,    // the same; it counts no bytes
    kBlockedSend,    // the peer isn't told of an endpoint's start: what it sends is not counted yet
    kWait,
};

// A call may be left without the destructor, by siglongjmp or cancellation: each thread knows which it has open.
class Call
{
public:
    Call(Socket &s,
         CallKind kind); // of calls in one frame the outer one first: functions that make one are not inlined
    ~Call();             // keeps errno
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

private:
    Socket &s_;
    const CallKind kind_;
    bool listed_ = false;
};

int other_fd(const Socket &s, int fd); // of the socket, where `fd` is not its any more; `fd` if there is none

// The descriptor to use: the program's; another one of the socket's where that was closed meanwhile, be it a file's by
// now; our own of a socket that was closed while calls were open.
inline int live_fd(const Socket &s, int fd)
{
    const int kept = s.kept_fd.load(std::memory_order_acquire);
    if (kept >= 0) [[unlikely]]
        return kept;
    return lookup(fd) == &s ? fd : other_fd(s, fd);
}

// The kernel's call, `call(descriptor)`, inside a Call. If the program's descriptor was closed before the kernel saw
// that, the one that was kept takes its place: a call that the kernel has begun outlives its descriptor. But for one
// that a signal has interrupted: the kernel begins it anew, and says EBADF.
template <typename Kernel> ssize_t by_live_fd(const Socket &s, int fd, const Kernel &call)
{
    const std::uint32_t signals = libc::signal_counts().all;
    const int first = live_fd(s, fd);
    const ssize_t n = call(first);
    if (n >= 0 || errno != EBADF) [[likely]]
        return n;
    const int kept = live_fd(s, first);
    return kept == first || libc::signal_counts().all != signals ? n : call(kept);
}

// The last descriptor is about to be closed. True: calls are open, and the last one of them releases the socket.
bool keep_for_calls(Socket &s, int fd);
bool keep_descriptor(Socket &s, int fd); // of our own, instead of one that the program closes. False: none could be had
// Releases it if it was kept and no call is open any more; in a forked child those of the parent's threads are not.
void release_if_unused(Socket &s);

void recount_calls(); // in a forked child, where the counters begin anew and this thread is the only one

} // namespace vma::sock
