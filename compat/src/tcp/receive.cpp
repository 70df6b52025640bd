// SPDX-License-Identifier: BSD-2-Clause
// Receiving calls on a tracked socket: the kernel's own call while the socket is kernel-only, else take what is there
// under rx_lock, and wait outside of it.
#include <errno.h>
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
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/timeouts.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

// The kernel sees this call whole: nothing of it is stream bytes (errors), or it is urgent data.
constexpr int kKernelOnly = MSG_ERRQUEUE | MSG_OOB;

// VMA_RX_CQ_DRAIN_RATE_NSEC: bytes are there already, are there more?
[[gnu::noinline]] void drain_at_rate(const Stream &s)
{
    const std::int64_t now = now_ns();
    if (!has_input(s) || now - t_engine.drained_ns < config::params().rx_cq_drain_rate_nsec)
        return;
    t_engine.drained_ns = now;
    engine_poll(ring_of(s));
    engine_leave(ring_of(s));
}

// `n` bytes, or errno, of the kernel's call: each of them goes through here.
ssize_t kernel_received(const Stream &s, ssize_t n, int flags)
{
    if ((flags & kKernelOnly) != 0)
        return by_os_received(s, n, flags);
    n = received_by_kernel(s, n);
    return by_os_received(s, n < 0 ? give(n) : n, flags);
}

// The error that the program has not been told. The kernel's bytes come first, but for who would wait for more of them.
int error_behind_bytes(Stream &s, int fd, int flags)
{
    int queued = 0;
    if (s.pending_error.load(std::memory_order_relaxed) == 0) [[likely]]
        return 0;
    const bool first = (flags & MSG_WAITALL) == 0 && libc::real.ioctl(live_fd(s, fd), FIONREAD, &queued) == 0;
    return first && queued != 0 ? 0 : take_error(s);
}

// What the kernel's call would wait for, in by_live_fd().
short awaited(const Stream &s, int flags)
{
    return (flags & kKernelOnly) == 0 && may_wait_for_input(s, flags) ? POLLIN : 0;
}

// `receive(descriptor)` is the kernel's call. False: it became offloaded before we were in.
template <typename Receive>
[[gnu::noinline]] bool receive_in_kernel(Stream &s, int fd, int flags, ssize_t &n, Wait &wait, const Receive &receive)
{
    std::optional<Call> call;
    if (!begin_call(call, s, CallKind::kBlockedReceive, fd, wait, receive, n)) [[unlikely]]
        return true;
    if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded)
        return false;
    const int error = error_behind_bytes(s, fd, flags);
    n = error != 0 ? give(-error) : kernel_received(s, by_live_fd(s, fd, awaited(s, flags), wait, receive), flags);
    if (n > 0 && (flags & (MSG_PEEK | kKernelOnly)) == 0)
        count_received(s, static_cast<std::uint64_t>(n));
    call.reset();
    if (n > 0 && s.mode.load(std::memory_order_relaxed) == Mode::kKernelOnly)
        count_operation(s, fd, true);
    return true;
}

// The same, once it is known whether the peer attaches first: its START would not come while the kernel has the call.
template <typename Receive>
[[gnu::noinline]] bool receive_behind_attaching(Stream &s, int fd, int flags, ssize_t &n, Wait &wait,
                                                const Receive &receive)
{
    std::optional<Call> call; // for both waits, to outlive its descriptor
    if (!begin_call(call, s, CallKind::kWait, fd, wait, receive, n)) [[unlikely]]
        return true;
    if (const int error = wait_for(s, fd, POLLIN, wait)) {
        n = give(error);
        return true;
    }
    return receive_in_kernel(s, fd, flags, n, wait, receive);
}

template <typename Receive>
bool receive_kernel_only(Stream &s, int fd, int flags, ssize_t &n, Wait wait, const Receive &receive)
{
    note_use(s, fd, true);
    if (may_attach_first(s) && may_wait_for_input(s, flags) && (flags & kKernelOnly) == 0)
        return receive_behind_attaching(s, fd, flags, n, wait, receive);
    return receive_in_kernel(s, fd, flags, n, wait, receive);
}

bool receive_kernel_only(Stream &s, int fd, msghdr *msg, int flags, ssize_t &n, const Wait &wait)
{
    return receive_kernel_only(s, fd, flags, n, wait, [=](int live) { return libc::real.recvmsg(live, msg, flags); });
}

// A read of 0 bytes waits for input like any other, but once, whatever ends that, and then takes none of it.
ssize_t receive_nothing(Stream &s, int fd, msghdr *msg, int flags)
{
    Wait wait = begin_receive(s);
    std::optional<Call> call;
    const auto kernel = [=](int now) { return libc::real.recvmsg(now, msg, flags); };
    if (ssize_t n = 0; !begin_call(call, s, CallKind::kWait, fd, wait, kernel, n)) [[unlikely]]
        return n;
    const bool blocking = may_wait_for_input(s, flags);
    if (blocking && ready_events(s, live_fd(s, fd), POLLIN) == 0)
        (void)wait_for(s, fd, POLLIN, wait);
    while (!blocking && ready_events(s, live_fd(s, fd), POLLIN) == 0)
        if (engine_look(ring_of(s)) == 0)
            return give(-EAGAIN);
    describe_bytes(*msg, flags);
    return 0;
}

int fail(const Stream &s, ssize_t result)
{
    stats::receive_failed(record_of(s), static_cast<int>(-result));
    return give(result);
}

// One call does not read across the urgent byte: whoever has waited for all ends before it.
bool next_is_urgent(const Stream &s, int fd)
{
    int mark = 0;
    return transport(s).spans && !has_input(s) && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
           libc::real.ioctl(fd, SIOCATMARK, &mark) == 0 && mark != 0;
}

// Takes what is there at the end of one span, then at the beginning of the next, which another path carries: of whoever
// gets less than asked for, edge-triggered programs believe that no more was there, and the news of it is used up.
// Negative errno, or bytes. `more`: the call may go on. rx_lock held.
ssize_t consume_span(Stream &s, int fd, msghdr *msg, std::size_t done, int flags, bool &more)
{
    const std::uint64_t consumed = s.rx.consumed.load(std::memory_order_relaxed);
    const bool had_shared = s.unread.load(std::memory_order_relaxed) != nullptr;
    msghdr rest = *msg; // behind bytes that this call has taken already
    rest.msg_name = nullptr;
    rest.msg_namelen = 0;
    rest.msg_control = nullptr;
    rest.msg_controllen = 0;
    s.rx.span_over = false;
    const ssize_t n = consume(s, fd, done != 0 ? &rest : msg, done, flags);
    if (n < 0 && done != 0 && transport(s).spans)
        keep_error(s, static_cast<int>(-n));
    const bool was_ring = had_shared || s.rx.span_over || s.rx.consumed.load(std::memory_order_relaxed) != consumed;
    more = n > 0 && (flags & MSG_PEEK) == 0 && transport(s).spans &&
           (has_input(s) || (was_ring && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel));
    return n;
}

// Another thread has taken it out of the queue after this one had found nothing, and before this one looked there: it
// is no news of the queue's, and may have been sent long before the call.
bool has_come_meanwhile(const Stream &s, bool was_endpoint)
{
    return has_input(s) || s.rx.end_at.load(std::memory_order_acquire) != kNone ||
           (was_endpoint && s.rx.path.load(std::memory_order_acquire) == Path::kKernel);
}

// MSG_PEEK with MSG_WAITALL, and `done` bytes are there: what comes next has to be waited for behind bytes that stay.
// So it comes by the kernel, which can wait so.
[[gnu::noinline]] ssize_t peek_for_all(Stream &s, int fd, msghdr *msg, int flags, std::size_t done)
{
    const Wait wait = begin_receive(s);
    const Call call(s, CallKind::kWait);
    pin_to_kernel(s, "a peek that waits for all");
    const auto peek = [=](int live) { return libc::real.recvmsg(live, msg, flags); };
    if (!offloaded(s))
        return kernel_received(s, by_live_fd(s, fd, POLLIN, wait, peek), flags);
    const ssize_t n = peek_until_all(s, fd, msg, flags, done);
    return n < 0 ? fail(s, n) : n;
}

// SO_PEEK_OFF: the place is behind all that is left of the endpoint's. Only the kernel's bytes can come.
[[gnu::noinline]] ssize_t wait_behind_shared(Stream &s, int fd, msghdr *msg, int flags)
{
    const Call call(s, CallKind::kWait);
    return kernel_received(s, libc::real.recvmsg(live_fd(s, fd), msg, flags), flags);
}

// What is left in memory, or the error that the call before has found behind it. Then the socket is the kernel's.
ssize_t take_left(Stream &s, int fd, msghdr *msg, int flags)
{
    const LockGuard guard(s.rx_lock);
    const ssize_t n = holds_leftovers(s) ? consume(s, fd, msg, 0, flags) : -take_error(s);
    if (!holds_leftovers(s))
        s.mode.store(Mode::kKernel, std::memory_order_release);
    return n;
}

// The kernel has told the error, and has an end of the stream instead from now on: the next call comes here for it.
void leave_error(Stream &s, int error)
{
    const LockGuard guard(s.rx_lock);
    keep_error(s, error);
    if (s.pending_error.load(std::memory_order_relaxed) != 0)
        s.mode.store(Mode::kOffloaded, std::memory_order_release);
}

// Under a filter of system calls, what is left in memory is read without any; then the socket is the kernel's. A call
// for more goes on by the program's own kind of call.
ssize_t receive_in_sandbox(Stream &s, int fd, msghdr *msg, int flags, std::size_t room)
{
    const ssize_t n = take_left(s, fd, msg, flags);
    if (n < 0)
        return fail(s, n);
    const auto done = static_cast<std::size_t>(n);
    if (msg->msg_iovlen != 1)
        return n > 0 ? n : kernel_received(s, libc::real.recvmsg(fd, msg, flags), flags);
    if (n > 0 && ((flags & MSG_WAITALL) == 0 || done == room))
        return n;
    char *const rest = static_cast<char *>(msg->msg_iov->iov_base) + done;
    const ssize_t more = kernel_received(s, libc::real.recv(fd, rest, room - done, flags), flags);
    if (n > 0 && more < 0)
        leave_error(s, errno);
    return n > 0 ? n + std::max<ssize_t>(more, 0) : more;
}

// All that is left of it is the kernel's, and nothing waits that the kernel would not tell. rx_lock held.
[[gnu::always_inline]] inline bool is_used_up(const Stream &s)
{
    return s.endpoint == nullptr && s.rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
           s.rx.start_at.load(std::memory_order_relaxed) == kNone && !holds_leftovers(s) &&
           s.pending_error.load(std::memory_order_relaxed) == 0;
}

// By a call that does not wait and has found nothing: nobody had looked yet, or it has come meanwhile.
[[gnu::always_inline]] inline bool is_to_look_again(Stream &s, bool by_endpoint, bool &looked)
{
    if (engine_look(ring_of(s)) != 0 || (!std::exchange(looked, true) && has_come_meanwhile(s, by_endpoint)))
        return true;
    libc::test_cancel(); // recv() is a cancellation point, also where it doesn't wait
    return false;
}

// Other processes, which have the bytes too, may have changed it.
void follow_how_calls_wait(Stream &s, int fd)
{
    follow_nonblocking(s, fd);
    read_timeouts(s, fd);
}

// From the file that has the number now, which may take long: others wait for what this thread has looked for.
[[gnu::cold]] ssize_t receive_elsewhere(const Stream &s, int other, msghdr *msg, int flags)
{
    engine_leave(ring_of(s));
    return libc::real.recvmsg(other, msg, flags);
}

ssize_t receive_offloaded(Stream &s, int fd, msghdr *msg, int flags)
{
    if (sandboxed() && s.endpoint == nullptr) [[unlikely]]
        return receive_in_sandbox(s, fd, msg, flags, total_length(*msg));
    if (s.counts_access.load(std::memory_order_relaxed)) [[unlikely]]
        note_access(s);
    const std::size_t room = total_length(*msg);
    if (room == 0)
        return receive_nothing(s, fd, msg, flags);
    const std::size_t wanted = (flags & MSG_WAITALL) != 0 ? room : 1;
    if (s.unread.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
        follow_how_calls_wait(s, fd);
    const bool blocking = may_wait_for_input(s, flags);
    std::size_t done = 0;
    bool looked = false;
    Wait wait;
    std::optional<Call> call;
    const auto elsewhere = [=, &s, &done](int other) {
        return done != 0 ? 0 : receive_elsewhere(s, other, msg, flags);
    };
    for (;;) {
        ssize_t n = -EAGAIN;
        if (!offloaded(s) && done == 0 && receive_kernel_only(s, fd, msg, flags, n, call ? wait : begin_receive(s)))
            return n;
        if (done != 0 && next_is_urgent(s, live_fd(s, fd)))
            return static_cast<ssize_t>(done);
        s.rx_lock.lock();
        bool more = false;
        n = consume_span(s, live_fd(s, fd), msg, done, flags, more);
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
        if ((flags & MSG_PEEK) != 0 && s.unread.load(std::memory_order_relaxed) != nullptr && shared_left(s) != 0)
            [[unlikely]]
            return wait_behind_shared(s, fd, msg, flags);
        if (!call && !begin_call(call, s, CallKind::kWait, fd, wait = begin_receive(s), elsewhere, n)) [[unlikely]]
            return done != 0 ? static_cast<ssize_t>(done) : n;
        if ((n = wait_for(s, fd, POLLIN, wait)) != 0)
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, n);
    }
}

// The kernel finds out when it copies: without a byte to copy, it waits, or says how the stream ended.
[[gnu::noinline]] ssize_t receive_nowhere(Stream &s, int fd, int flags)
{
    char byte = 0;
    iovec part = {&byte, 1};
    msghdr look = {};
    look.msg_iov = &part;
    look.msg_iovlen = 1;
    const ssize_t n = receive_offloaded(s, fd, &look, (flags & ~MSG_WAITALL) | MSG_PEEK);
    return n > 0 ? fail(s, -EFAULT) : n;
}

// Another user could change bytes of its ring between this look and the read that takes them. So what is looked at
// comes by the kernel, and from then on all does. A look that finds nothing is the kernel's anyway; what it finds there
// may lie behind bytes of the ring, or before and behind them.
[[gnu::noinline]] ssize_t peek_at_guest(Stream &s, int fd, msghdr *msg, int flags)
{
    engine_poll(ring_of(s));
    engine_leave(ring_of(s));
    pollfd p = {fd, POLLIN | POLLRDHUP, 0};
    if (!has_input(s) && !may_wait_for_input(s, flags) && libc::uncancelled::poll_now(&p, 1) == 0)
        return fail(s, -EAGAIN);
    const Call call(s, CallKind::kWait); // going back to the kernel may take a while
    pin_to_kernel(s, "MSG_PEEK of what another user has sent");
    return receive_unscreened(s, live_fd(s, fd), msg, flags);
}

} // namespace

namespace tcp {

ssize_t receive_msg(Socket &socket, int fd, msghdr *msg, int flags)
{
    Stream &s = as_stream(socket);
    if ((flags & kKernelOnly) != 0 || s.mode.load(std::memory_order_acquire) == Mode::kKernel) [[unlikely]]
        return kernel_received(s, libc::real.recvmsg(fd, msg, flags), flags);
    const int error = refused_message(*msg);
    if (error != 0) [[unlikely]]
        return offloaded(s) ? fail(s, error) : kernel_received(s, libc::real.recvmsg(fd, msg, flags), flags);
    ssize_t n = 0;
    if (!offloaded(s) && receive_kernel_only(s, fd, msg, flags, n, begin_receive(s)))
        return n;
    if ((flags & MSG_PEEK) != 0 && s.endpoint != nullptr) [[unlikely]] {
        if (s.guest)
            return peek_at_guest(s, fd, msg, flags);
        look_for_more(s, total_length(*msg));
    }
    if ((flags & MSG_TRUNC) == 0 && lies_nowhere(*msg)) [[unlikely]]
        return receive_nowhere(s, fd, flags);
    return receive_offloaded(s, fd, msg, flags);
}

} // namespace tcp

namespace {

// rx_lock held.
inline ssize_t receive_small(Stream &s, void *out, std::size_t len)
{
    return by_shared_ring(s) ? ring_receive_small(s, out, len) : transport(s).receive_small(s, out, len);
}

} // namespace

namespace tcp {

namespace {

[[gnu::noinline]] ssize_t receive_slowly(Stream &s, int fd, void *buf, std::size_t len, int flags, Mode mode)
{
    if (ssize_t n = 0; mode == Mode::kKernelOnly && (flags & kKernelOnly) == 0 &&
                       receive_kernel_only(s, fd, flags, n, begin_receive(s),
                                           [=](int live) { return libc::real.recv(live, buf, len, flags); }))
        return n;
    iovec v = {buf, std::min(len, kMostBytes)};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    return tcp::receive_msg(s, fd, &msg, flags);
}

} // namespace

ssize_t receive(Socket &socket, int fd, void *buf, std::size_t len, int flags)
{
    Stream &s = as_stream(socket);
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
        return kernel_received(s, libc::real.recv(fd, buf, len, flags), flags);
    return libc::keep_errno([=, &s] { return receive_slowly(s, fd, buf, len, flags, mode); });
}

ssize_t receive_from(Stream &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    const ssize_t n = tcp::receive(s, fd, buf, len, flags);
    if (n < 0 || from == nullptr)
        return n;
    if (const int wrong = refused_place(from_len)) [[unlikely]]
        return fail(s, wrong);
    *from_len = 0; // TCP has no sender's address to give: the kernel says so with a length of 0
    return n;
}

} // namespace tcp

} // namespace vma::sock
