// SPDX-License-Identifier: BSD-2-Clause
// The open calls of a thread, innermost last. One that lies deeper in the stack than a call that begins now was left by
// a jump; those of a thread that ends were left by its cancellation.
#include "compat/src/table/calls.hpp"

#include <errno.h>

#include <cstdint>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/thread_key.hpp"
#include "compat/src/table/socket_sets.hpp"

namespace vma::sock {

namespace {

struct OpenCall {
    Socket *socket;
    CallKind kind;
    std::uintptr_t stack;
};

constexpr unsigned kMostNested = 4; // calls in handlers of handlers; more are only counted in the socket

// Of each thread, its own; handlers that interrupt it see it too.
struct OpenCalls {
    unsigned count;
    bool registered; // to be ended with the thread
    OpenCall calls[kMostNested];
};

[[gnu::tls_model("initial-exec")]] thread_local constinit OpenCalls t_calls = {};

std::atomic<std::uint32_t> &counter(Socket &s, CallKind kind)
{
    switch (kind) {
    case CallKind::kBlockedReceive:
        return s.blocked_receivers;
    case CallKind::kBlockedPoll:
        return s.blocked_polls;
    case CallKind::kBlockedSend:
        return s.blocked_senders;
    case CallKind::kWait:
        break;
    }
    return s.waiters;
}

std::uint32_t count_calls(const Socket &s)
{
    return s.blocked_receivers.load(std::memory_order_seq_cst) + s.blocked_polls.load(std::memory_order_seq_cst) +
           s.blocked_senders.load(std::memory_order_seq_cst) + s.waiters.load(std::memory_order_seq_cst);
}

void leave(Socket &s, CallKind kind)
{
    counter(s, kind).fetch_sub(1, std::memory_order_seq_cst);
    if ((kind == CallKind::kBlockedReceive || kind == CallKind::kBlockedPoll) &&
        s.ready_due.load(std::memory_order_seq_cst)) {
        LockGuard guard(s.rx_lock);
        try_ready(s);
    }
    release_if_unused(s);
}

void leave_innermost()
{
    const OpenCall call = t_calls.calls[--t_calls.count];
    leave(*call.socket, call.kind);
}

void end_thread(void *)
{
    while (t_calls.count != 0)
        leave_innermost();
    t_calls.registered = false;
}

void end_with_thread()
{
    g_sockets.calls.set(&t_calls, end_thread);
    t_calls.registered = true;
}

} // namespace

Call::Call(Socket &s, CallKind kind) : s_(s), kind_(kind)
{
    if (!t_calls.registered) [[unlikely]]
        end_with_thread();
    const libc::Stretch stretch; // who jumps out finds it counted and listed
    counter(s, kind).fetch_add(1, std::memory_order_seq_cst);
    const auto here = reinterpret_cast<std::uintptr_t>(this);
    while (t_calls.count != 0 && t_calls.calls[t_calls.count - 1].stack <= here && !libc::on_alternate_stack())
        leave_innermost(); // a jump left it
    listed_ = t_calls.count < kMostNested;
    if (listed_)
        t_calls.calls[t_calls.count++] = {&s, kind, here};
}

bool Call::is_within_another() const
{
    for (unsigned i = 0; i < t_calls.count; ++i)
        if (t_calls.calls[i].socket == &s_ && t_calls.calls[i].stack != reinterpret_cast<std::uintptr_t>(this))
            return true;
    return false;
}

Call::~Call()
{
    const int saved = errno;
    const libc::Stretch stretch;
    bool open = !listed_;
    for (unsigned i = t_calls.count; i-- > 0 && !open;) {
        if (t_calls.calls[i].stack != reinterpret_cast<std::uintptr_t>(this))
            continue;
        while (t_calls.count > i + 1)
            leave_innermost(); // a handler began them, and jumped to where this call goes on
        t_calls.count = i;
        open = true;
    }
    if (open) // it may have been taken for one that was left
        leave(s_, kind_);
    errno = saved;
}

[[gnu::cold]] int other_fd(const Socket &s, int fd)
{
    const int other = s.any_fd.load(std::memory_order_acquire);
    return lookup(other) == &s ? other : fd; // one that was kept for calls is not for those that come too late
}

Carrier carrier_of(const Socket &s)
{
    switch (s.mode.load(std::memory_order_acquire)) {
    case Mode::kKernel:
        return Carrier::kKernel;
    case Mode::kKernelOnly:
        return protocol(s).kernel_only_carrier(s);
    case Mode::kFree:
    case Mode::kOffloaded:
        break;
    }
    return Carrier::kOurs;
}

[[gnu::noinline]] bool wait_in_kernel(Socket &s, int (*wait)(const void *call), const void *call, int &result)
{
    const Call open(s, CallKind::kBlockedPoll);
    if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded)
        return false;
    result = wait(call);
    return true;
}

namespace {

// A thread that closes a socket is not in a call on it, but for a handler that closes it under the call it interrupted.
void leave_own_calls(const Socket &s)
{
    for (unsigned i = t_calls.count; i-- > 0;) {
        const OpenCall call = t_calls.calls[i];
        if (call.socket != &s)
            continue;
        for (unsigned next = i + 1; next < t_calls.count; ++next)
            t_calls.calls[next - 1] = t_calls.calls[next];
        --t_calls.count;
        leave(*call.socket, call.kind);
    }
}

} // namespace

void release_if_unused(Socket &s)
{
    while (s.kept_fd.load(std::memory_order_seq_cst) >= 0 && count_calls(s) == 0) {
        const int fd = s.kept_fd.exchange(-1, std::memory_order_seq_cst);
        if (fd < 0)
            return; // another thread does it
        if (count_calls(s) == 0) {
            release(s, fd);
            libc::close_private(fd);
            return;
        }
        s.kept_fd.store(fd, std::memory_order_seq_cst); // a call that has begun in between may have it, and ends later
    }
}

bool keep_descriptor(Socket &s, int fd)
{
    const int kept = libc::make_private(libc::real.dup(fd));
    if (kept < 0)
        return false;
    {
        LockGuard tx(s.tx_lock);
        LockGuard rx(s.rx_lock);
        s.any_fd.store(kept, std::memory_order_relaxed);
        s.kept_fd.store(kept, std::memory_order_seq_cst);
    }
    return true;
}

bool keep_for_calls(Socket &s, int fd)
{
    leave_own_calls(s);
    if (count_calls(s) == 0) [[likely]]
        return false;
    if (!keep_descriptor(s, fd))
        return false;
    release_if_unused(s);
    return true;
}

void recount_calls()
{
    for (unsigned i = 0; i < t_calls.count; ++i)
        counter(*t_calls.calls[i].socket, t_calls.calls[i].kind).fetch_add(1, std::memory_order_relaxed);
}

} // namespace vma::sock
