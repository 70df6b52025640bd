// SPDX-License-Identifier: BSD-2-Clause
// Calls of the program's that may take long, counted in their socket: those inside the kernel on a kernel-only socket
// (it isn't offloaded under them), and those that wait on an offloaded one. A socket that is closed meanwhile goes on
// for them, as in the kernel.
#pragma once

#include <errno.h>
#include <sys/types.h>

#include <optional>

#include "compat/src/base/fence.hpp"
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
    bool is_within_another() const; // call of this thread's on the same socket

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

// A Call has been counted. True: its number was taken from the socket before that, by a close() or dup2() of another
// thread's, so the socket was not kept for it, and may be another connection's by now. Who does so and then signals the
// thread, as Java does, may have signalled before the call began to count signals: on this socket it could wait for
// ever.
inline bool has_lost_number(const Socket &s, int fd)
{
    fence_after_exchange(); // who takes the number away looks for calls behind that
    return lookup(fd) != &s && s.kept_fd.load(std::memory_order_acquire) != fd && !still_leads_to(s, fd);
}

// Begins a call that may wait, behind begin_wait(). False: the number is lost, and `n` is what the kernel's own call,
// `kernel(descriptor)`, has found behind it. A number that is another socket of ours by now is taken for the moment at
// which it was none. What is a part of a call that is open goes on as that does, on the same socket.
template <typename Kernel>
bool begin_call(std::optional<Call> &call, Socket &s, CallKind kind, int fd, Wait &wait, const Kernel &kernel,
                ssize_t &n)
{
    call.emplace(s, kind);
    wait.begun = wait.begun || !has_lost_number(s, fd) || call->is_within_another();
    if (wait.begun) [[likely]]
        return true;
    call.reset();
    n = kernel(lookup(fd) == nullptr ? fd : -1);
    return false;
}

// The kernel's call, `call(descriptor)`, inside a Call that began with `wait`; it waits for `events`, or for nothing if
// these are 0. `fd` is the program's. If that was closed before the kernel saw it, another one of the socket takes its
// place: a call that the kernel has begun outlives its descriptor. But for one that a signal has interrupted: the
// kernel begins it anew, and says EBADF.
template <typename Kernel>
ssize_t by_live_fd(const Socket &s, int fd, short events, const Wait &wait, const Kernel &call)
{
    const std::uint32_t signals = libc::signal_counts().all;
    int live = live_fd(s, fd);
    if (live == fd && live != s.kept_fd.load(std::memory_order_acquire)) [[likely]] {
        const ssize_t n = call(fd);
        if (n >= 0 || errno != EBADF) [[likely]]
            return n;
        live = live_fd(s, fd);
        if (live == fd || libc::signal_counts().all != signals)
            return n;
    }
    const int error = events != 0 ? await_kept(live, events, wait) : 0;
    return error != 0 ? give(error) : call(live);
}

// The last descriptor is about to be closed. True: calls are open, and the last one of them releases the socket.
bool keep_for_calls(Socket &s, int fd);
bool keep_descriptor(Socket &s, int fd); // of our own, instead of one that the program closes. False: none could be had
// Releases it if it was kept and no call is open any more; in a forked child those of the parent's threads are not.
void release_if_unused(Socket &s);

void recount_calls(); // in a forked child, where the counters begin anew and this thread is the only one

} // namespace vma::sock
