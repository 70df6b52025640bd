// SPDX-License-Identifier: BSD-2-Clause
// Receiving calls on a tracked socket: the kernel's own call while the socket is kernel-only, else take what is there
// under rx_lock, and wait outside of it.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <optional>
#include <utility>

#include "compat/src/base/arguments.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/this_thread.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

// The kernel sees this call whole: nothing of it is stream bytes (errors), or it is urgent data.
constexpr int kKernelOnly = MSG_ERRQUEUE | MSG_OOB;

// VMA_RX_CQ_DRAIN_RATE_NSEC: bytes are there already, are there more?
[[gnu::noinline]] void drain_at_rate(const Socket &s)
{
    const std::int64_t now = now_ns();
    if (!has_input(s) || now - t_engine.drained_ns < config::params().rx_cq_drain_rate_nsec)
        return;
    t_engine.drained_ns = now;
    engine_poll(ring_of(s));
    engine_leave(ring_of(s));
}

// `receive` is the kernel's call. False: it became offloaded before we were in.
template <typename Receive>
[[gnu::noinline]] bool receive_kernel_only(Socket &s, int fd, int flags, ssize_t &n, const Receive &receive)
{
    {
        const Call call(s, CallKind::kBlockedReceive);
        if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded)
            return false;
        const int error = take_error(s);
        n = error != 0 ? give(-error) : by_os_received(s, receive());
        if (n < 0)
            errno = receive_error(s);
        if (n > 0 && (flags & (MSG_PEEK | kKernelOnly)) == 0)
            count_received(s, static_cast<std::uint64_t>(n));
    }
    if (n > 0 && s.mode.load(std::memory_order_relaxed) == Mode::kKernelOnly)
        count_operation(s, fd, true);
    return true;
}

bool receive_kernel_only(Socket &s, int fd, msghdr *msg, int flags, ssize_t &n)
{
    return receive_kernel_only(s, fd, flags, n, [=] { return libc::real.recvmsg(fd, msg, flags); });
}

// A read of 0 bytes waits for input like any other, and then takes none of it.
ssize_t receive_nothing(Socket &s, int fd, msghdr *msg, int flags)
{
    Wait wait = begin_wait(s, s.receive_timeout_us.load(std::memory_order_relaxed));
    const Call call(s, CallKind::kWait);
    while (ready_events(s, live_fd(s, fd), POLLIN) == 0) {
        const bool blocking = may_block(s, flags);
        const int result = blocking ? wait_for(s, fd, POLLIN, wait) : engine_look(ring_of(s)) != 0 ? 0 : -EAGAIN;
        if (result != 0)
            return give(result);
    }
    msg->msg_controllen = 0;
    msg->msg_flags = 0;
    return 0;
}

int fail(const Socket &s, ssize_t result)
{
    stats::receive_failed(record_of(s), static_cast<int>(-result));
    return give(result);
}

// One call does not read across the urgent byte: whoever has waited for all ends before it.
bool next_is_urgent(const Socket &s, int fd)
{
    int mark = 0;
    return transport(s).spans && !has_input(s) && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
           libc::real.ioctl(fd, SIOCATMARK, &mark) == 0 && mark != 0;
}

// Takes what is there at the end of one span, then at the beginning of the next, which another path carries: of whoever
// gets less than asked for, edge-triggered programs believe that no more was there, and the news of it is used up.
// Negative errno, or bytes. `more`: the call may go on. rx_lock held.
ssize_t consume_span(Socket &s, int fd, msghdr *msg, std::size_t done, int flags, bool &more)
{
    const std::uint64_t consumed = s.rx.consumed.load(std::memory_order_relaxed);
    const bool had_shared = s.rx.unread.load(std::memory_order_relaxed) != nullptr;
    msghdr rest = *msg; // behind bytes that this call has taken already
    rest.msg_name = nullptr;
    rest.msg_namelen = 0;
    rest.msg_control = nullptr;
    rest.msg_controllen = 0;
    const ssize_t n = consume(s, fd, done != 0 ? &rest : msg, done, flags);
    if (n < 0 && done != 0 && transport(s).spans)
        keep_error(s, static_cast<int>(-n));
    const bool was_ring = had_shared || s.rx.consumed.load(std::memory_order_relaxed) != consumed;
    more = n > 0 && (flags & MSG_PEEK) == 0 && transport(s).spans &&
           (has_input(s) || (was_ring && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel));
    return n;
}

// Another process that has the socket may change how it waits.
void follow_nonblocking(Socket &s, int fd)
{
    const int flags = libc::real.fcntl(fd, F_GETFL);
    if (flags >= 0)
        s.nonblocking.store((flags & O_NONBLOCK) != 0, std::memory_order_relaxed);
}

// Another thread has taken it out of the queue after this one had found nothing, and before this one looked there: it
// is no news of the queue's, and may have been sent long before the call.
bool has_come_meanwhile(const Socket &s, bool was_endpoint)
{
    return has_input(s) || s.rx.end_at.load(std::memory_order_acquire) != kNone ||
           (was_endpoint && s.rx.path.load(std::memory_order_acquire) == Path::kKernel);
}

// MSG_PEEK with MSG_WAITALL, and `done` bytes are there: what comes next would have to be waited for behind bytes that
// stay. Where the kernel gets them all it does so; else these are what there is.
[[gnu::noinline]] ssize_t peek_for_all(Socket &s, int fd, msghdr *msg, int flags, std::size_t done)
{
    pin_to_kernel(s, "a peek that waits for all");
    if (offloaded(s))
        return static_cast<ssize_t>(done);
    return libc::real.recvmsg(fd, msg, flags);
}

// SO_PEEK_OFF: the place is behind all that is left of the endpoint's. Only the kernel's bytes can come.
[[gnu::noinline]] ssize_t wait_behind_shared(Socket &s, int fd, msghdr *msg, int flags)
{
    const Call call(s, CallKind::kWait);
    return libc::real.recvmsg(live_fd(s, fd), msg, flags);
}

// Under a filter of system calls, what is left in memory is read without any; then the socket is the kernel's. A call
// for more goes on by the program's own kind of call.
ssize_t receive_in_sandbox(Socket &s, int fd, msghdr *msg, int flags, std::size_t room)
{
    ssize_t n = 0;
    {
        const LockGuard guard(s.rx_lock);
        if (holds_leftovers(s))
            n = consume(s, fd, msg, 0, flags);
        if (!holds_leftovers(s))
            s.mode.store(Mode::kKernel, std::memory_order_release);
    }
    if (n < 0)
        return fail(s, n);
    const auto done = static_cast<std::size_t>(n);
    if (msg->msg_iovlen != 1)
        return n > 0 ? n : libc::real.recvmsg(fd, msg, flags);
    if (n > 0 && ((flags & MSG_WAITALL) == 0 || done == room))
        return n;
    const ssize_t more = libc::real.recv(fd, static_cast<char *>(msg->msg_iov->iov_base) + done, room - done, flags);
    return n > 0 ? n + std::max<ssize_t>(more, 0) : more;
}

// All that is left of it is the kernel's, and nothing waits that the kernel would not tell. rx_lock held.
[[gnu::always_inline]] inline bool is_used_up(const Socket &s)
{
    return s.endpoint == nullptr && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
           s.rx.start_at.load(std::memory_order_relaxed) == kNone && !holds_leftovers(s) &&
           s.pending_error.load(std::memory_order_relaxed) == 0;
}

// By a call that does not wait and has found nothing: nobody had looked yet, or it has come meanwhile.
[[gnu::always_inline]] inline bool is_to_look_again(Socket &s, bool by_endpoint, bool &looked)
{
    return engine_look(ring_of(s)) != 0 || (!std::exchange(looked, true) && has_come_meanwhile(s, by_endpoint));
}

[[gnu::always_inline]] inline void start_waiting(Socket &s, Wait &wait, std::optional<Call> &call)
{
    wait = begin_wait(s, s.receive_timeout_us.load(std::memory_order_relaxed));
    call.emplace(s, CallKind::kWait);
}

ssize_t receive_offloaded(Socket &s, int fd, msghdr *msg, int flags)
{
    if (sandboxed() && s.endpoint == nullptr) [[unlikely]]
        return receive_in_sandbox(s, fd, msg, flags, total_length(*msg));
    if (s.counts_access.load(std::memory_order_relaxed)) [[unlikely]]
        note_access(s);
    const std::size_t room = total_length(*msg);
    if (room == 0)
        return receive_nothing(s, fd, msg, flags);
    const std::size_t wanted = (flags & MSG_WAITALL) != 0 ? room : 1;
    if (s.rx.unread.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
        follow_nonblocking(s, fd);
    const bool blocking = may_block(s, flags);
    const socklen_t name_room = msg->msg_namelen;
    std::size_t done = 0;
    bool looked = false;
    Wait wait;
    std::optional<Call> call;
    for (;;) {
        ssize_t n = -EAGAIN;
        if (!offloaded(s) && done == 0 && receive_kernel_only(s, fd, msg, flags, n))
            return n;
        if (done != 0 && next_is_urgent(s, fd))
            return static_cast<ssize_t>(done);
        s.rx_lock.lock();
        fd = live_fd(s, fd);
        bool more = false;
        n = consume_span(s, fd, msg, done, flags, more);
        const bool used_up = is_used_up(s);
        const bool by_endpoint = s.rx.path.load(std::memory_order_relaxed) == Path::kEndpoint;
        s.rx_lock.unlock();
        if (n > 0)
            done += static_cast<std::size_t>(n);
        if (more && done < room)
            continue; // an error that comes next is for the next call, which has to find the socket as it is
        if (s.transport_over.load(std::memory_order_acquire) && offloaded(s))
            fall_back(s, true); // the kernel says how it ended
        else if (used_up && offloaded(s))
            drop_rest(s);
        if (done >= wanted || n == 0 || (n < 0 && n != -EAGAIN))
            return done != 0 || n >= 0 ? static_cast<ssize_t>(done) : fail(s, n);
        if (n > 0 && (flags & MSG_PEEK) != 0)
            return blocking ? peek_for_all(s, fd, msg, flags, done) : static_cast<ssize_t>(done);
        if (n > 0 || (!offloaded(s) && done == 0))
            continue;
        if (!blocking) {
            if (done == 0 && is_to_look_again(s, by_endpoint, looked))
                continue;
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, -EAGAIN);
        }
        if ((flags & MSG_PEEK) != 0 && s.rx.unread.load(std::memory_order_relaxed) != nullptr && shared_left(s) != 0)
            [[unlikely]]
            return wait_behind_shared(s, fd, msg, flags);
        if (!call)
            start_waiting(s, wait, call);
        if ((n = wait_for(s, fd, POLLIN, wait)) != 0)
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, n);
        msg->msg_namelen = name_room;
    }
}

// The kernel finds out when it copies: without a byte to copy, it waits, or says how the stream ended.
[[gnu::noinline]] ssize_t receive_nowhere(Socket &s, int fd, int flags)
{
    char byte = 0;
    iovec part = {&byte, 1};
    msghdr look = {};
    look.msg_iov = &part;
    look.msg_iovlen = 1;
    const ssize_t n = receive_offloaded(s, fd, &look, (flags & ~MSG_WAITALL) | MSG_PEEK);
    return n > 0 ? fail(s, -EFAULT) : n;
}

} // namespace

ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags)
{
    if (is_screened(s)) [[unlikely]]
        return kExtraApi.receive_screened(s, fd, *msg, flags);
    return receive_unscreened(s, fd, msg, flags);
}

ssize_t receive_unscreened(Socket &s, int fd, msghdr *msg, int flags)
{
    return protocol(s).receive_msg(s, fd, msg, flags);
}

namespace tcp {

ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags)
{
    if ((flags & kKernelOnly) != 0 || s.mode.load(std::memory_order_acquire) == Mode::kKernel) [[unlikely]]
        return by_os_received(s, libc::real.recvmsg(fd, msg, flags));
    const int error = refused_message(*msg);
    if (error != 0) [[unlikely]]
        return offloaded(s) ? fail(s, error) : libc::real.recvmsg(fd, msg, flags);
    ssize_t n = 0;
    if (!offloaded(s) && receive_kernel_only(s, fd, msg, flags, n))
        return n;
    if ((flags & MSG_TRUNC) == 0 && lies_nowhere(*msg)) [[unlikely]]
        return receive_nowhere(s, fd, flags);
    return receive_offloaded(s, fd, msg, flags);
}

} // namespace tcp

namespace {

[[gnu::noinline]] ssize_t receive_screened(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from,
                                           socklen_t *from_len)
{
    iovec v = {buf, len};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    msg.msg_name = from_len != nullptr ? from : nullptr;
    msg.msg_namelen = msg.msg_name != nullptr ? *from_len : 0;
    const ssize_t n = kExtraApi.receive_screened(s, fd, msg, flags);
    if (n >= 0 && msg.msg_name != nullptr && from_len != nullptr)
        *from_len = msg.msg_namelen;
    return n;
}

// rx_lock held.
inline ssize_t receive_small(Socket &s, void *out, std::size_t len)
{
    return by_shared_ring(s) ? ring_receive_small(s, out, len) : transport(s).receive_small(s, out, len);
}

} // namespace

ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags)
{
    if (is_screened(s)) [[unlikely]]
        return receive_screened(s, fd, buf, len, flags, nullptr, nullptr);
    return protocol(s).receive(s, fd, buf, len, flags);
}

ssize_t receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    if (is_screened(s)) [[unlikely]]
        return receive_screened(s, fd, buf, len, flags, from, from_len);
    return protocol(s).receive_from(s, fd, buf, len, flags, from, from_len);
}

namespace tcp {

ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags)
{
    const Mode mode = s.mode.load(std::memory_order_acquire);
    if (config::params().rx_cq_drain_rate_nsec != 0 && mode == Mode::kOffloaded) [[unlikely]]
        drain_at_rate(s);
    if (mode == Mode::kOffloaded && (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) == 0 && has_input(s) && !is_nowhere(buf) &&
        s.rx_lock.try_lock()) {
        const ssize_t n = receive_small(s, buf, len);
        s.rx_lock.unlock();
        if (n != 0) [[likely]] {
            if (s.counts_access.load(std::memory_order_relaxed)) [[unlikely]]
                note_access(s);
            return n;
        }
    }
    if (mode == Mode::kKernel)
        return by_os_received(s, libc::real.recv(fd, buf, len, flags));
    if (ssize_t n = 0; mode == Mode::kKernelOnly && (flags & kKernelOnly) == 0 &&
                       receive_kernel_only(s, fd, flags, n, [=] { return libc::real.recv(fd, buf, len, flags); }))
        return n;
    iovec v = {buf, std::min(len, kMostBytes)};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    return tcp::receive_msg(s, fd, &msg, flags);
}

ssize_t receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    const ssize_t n = tcp::receive(s, fd, buf, len, flags);
    if (n < 0 || from == nullptr)
        return n;
    if (is_nowhere(from_len) || !libc::can_update(from_len, sizeof *from_len))
        [[unlikely]] // seen when the bytes are taken already
        return fail(s, -EFAULT);
    if (static_cast<int>(*from_len) < 0) [[unlikely]]
        return fail(s, -EINVAL);
    *from_len = 0; // TCP has no sender's address to give: the kernel says so with a length of 0
    return n;
}

} // namespace tcp

namespace {

// What reads would get now: before, in, and behind a span of the endpoint. Settled, rx_lock held. 0 or the kernel's -1.
int count_readable(const Socket &s, int fd, std::uint64_t &total)
{
    const Receiver &rx = s.rx;
    const bool by_endpoint = rx.path.load(std::memory_order_relaxed) == Path::kEndpoint;
    const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
    const bool ends = rx.end_at.load(std::memory_order_acquire) != kNone;
    const bool returning = rx.returning.load(std::memory_order_acquire);
    const std::uint64_t ring = rx.written.load(std::memory_order_acquire) - rx.consumed.load(std::memory_order_relaxed);
    total = ring;
    if (by_endpoint && !ends && !returning && ring != 0)
        return 0;
    int count = 0;
    if (libc::real.ioctl(fd, FIONREAD, &count) != 0)
        return -1;
    const auto kernel = static_cast<std::uint64_t>(count);
    total = kernel;
    if (returning || (!by_endpoint && start == kNone))
        return 0;
    const std::uint64_t before = by_endpoint ? 0 : start - rx.kernel_bytes.load(std::memory_order_relaxed);
    if (kernel >= before)
        total = before + ring + (ends || ring == 0 ? kernel - before : 0);
    return 0;
}

} // namespace

int bytes_readable(Socket &s, int fd, int *count)
{
    if (is_screened(s) && kExtraApi.has_ready(s)) [[unlikely]] {
        *count = static_cast<int>(kExtraApi.bytes_ready(s)); // what comes behind them a callback may drop
        return 0;
    }
    return protocol(s).bytes_readable(s, fd, count);
}

int at_mark(Socket &s, int fd, int *mark)
{
    return protocol(s).at_mark(s, fd, mark);
}

namespace tcp {

int bytes_readable(Socket &s, int fd, int *count)
{
    if (!offloaded(s))
        return libc::real.ioctl(fd, FIONREAD, count);
    engine_look(ring_of(s));
    if (QueuedBytes bytes; transport(s).count(s, bytes)) {
        *count = static_cast<int>(bytes.readable);
        return 0;
    }
    LockGuard guard(s.rx_lock);
    settle(s);
    const std::size_t shared = s.rx.unread.load(std::memory_order_relaxed) != nullptr ? shared_left(s) : 0;
    if (shared != 0) {
        int kernel = 0;
        *count = static_cast<int>(shared) + (libc::real.ioctl(fd, FIONREAD, &kernel) == 0 ? kernel : 0);
        return 0;
    }
    std::uint64_t total = 0;
    const int result = count_readable(s, fd, total);
    if (result == 0)
        *count = static_cast<int>(std::min(total, std::uint64_t{INT_MAX}));
    return result;
}

int at_mark(Socket &s, int fd, int *mark)
{
    if (offloaded(s) && transport(s).spans) {
        engine_look(ring_of(s));
        LockGuard guard(s.rx_lock);
        settle(s);
        if (has_input(s)) { // the kernel's bytes, and the mark among them, come behind
            *mark = 0;
            return 0;
        }
    }
    return libc::real.ioctl(fd, SIOCATMARK, mark);
}

} // namespace tcp

} // namespace vma::sock
