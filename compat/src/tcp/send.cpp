// SPDX-License-Identifier: BSD-2-Clause
// Sending calls on a tracked socket: the kernel's own call while the socket is kernel-only, else put what fits under
// tx_lock, and wait outside of it. sendfile and splice are made of these.
#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compat/src/base/arguments.hpp"
#include "compat/src/base/spare_room.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kSpillAfterUs = 2000; // a full ring that nobody reads: go on in the kernel's larger buffers

// `send(descriptor)` is the kernel's call. False: it became offloaded before we were in.
template <typename Send>
[[gnu::noinline]] bool send_kernel_only(Stream &s, int fd, int flags, ssize_t &n, Wait wait, const Send &send)
{
    note_use(s, fd, false);
    std::optional<Call> call;
    if (!begin_call(call, s, CallKind::kBlockedSend, fd, wait, send, n)) [[unlikely]]
        return true;
    if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded)
        return false;
    const int error = take_error(s);
    const short awaited = may_wait_for_room(s, flags) ? POLLOUT : 0;
    n = error != 0 ? give(-error) : by_os_sent(s, by_live_fd(s, fd, awaited, wait, send));
    if (n > 0)
        count_sent(s, static_cast<std::uint64_t>(n));
    call.reset();
    if (n > 0 && s.mode.load(std::memory_order_relaxed) == Mode::kKernelOnly)
        count_operation(s, fd, false);
    return true;
}

bool send_kernel_only(Stream &s, int fd, const msghdr *msg, int flags, ssize_t &n, const Wait &wait)
{
    return send_kernel_only(s, fd, flags, n, wait, [=](int live) { return libc::real.sendmsg(live, msg, flags); });
}

// VMA_RX_POLL_ON_TX_TCP, after a send by an endpoint.
inline void poll_after_send(const Stream &s)
{
    if (config::params().rx_poll_on_tx_tcp) [[unlikely]] {
        engine_poll(ring_of(s));
        engine_leave(ring_of(s));
    }
}

// The peer has not made room for a while: what follows goes by the kernel, whose buffers are larger.
int wait_for_room(Stream &s, int fd, Wait &wait)
{
    if (is_held(s) || !transport(s).spans || s.tx.told_full.load(std::memory_order_relaxed))
        return wait_for(s, fd, POLLOUT, wait);
    Wait brief = wait;
    brief.deadline_ns = std::min(wait.deadline_ns, now_ns() + kSpillAfterUs * 1000);
    const int result = wait_for(s, fd, POLLOUT, brief);
    if (result != -EAGAIN || brief.deadline_ns == wait.deadline_ns)
        return result;
    s.tx_lock.lock();
    if (offloaded(s))
        end_transmit(s, false);
    unlock_tx(s);
    return wait_for(s, fd, POLLOUT, wait);
}

// Moves nothing, but fails where the kernel does.
ssize_t send_nothing(Stream &s, int fd, const msghdr *msg, int flags)
{
    s.tx_lock.lock();
    const bool sent = transport(s).send_nothing(s);
    unlock_tx(s);
    if (sent)
        return 0;
    if (s.transport_over.load(std::memory_order_acquire))
        fall_back(s, true);
    return libc::real.sendmsg(fd, msg, flags);
}

int fail(const Stream &s, ssize_t result)
{
    stats::send_failed(record_of(s), static_cast<int>(-result));
    return give(result);
}

// What the sending direction knew of the peer when it found no room.
struct Room {
    std::uint64_t mark;
    Path path;
};

Room room_of(const Stream &s)
{
    return {transport(s).room_mark(s), s.tx.path.load(std::memory_order_acquire)};
}

// Another thread has taken a CREDIT or a RETURN out of the queue after this one had found no room, and before this one
// looked there: the peer may have sent it long before the call.
bool has_changed(const Stream &s, const Room &before)
{
    const Room now = room_of(s);
    return now.mark != before.mark || now.path != before.path;
}

ssize_t send_offloaded(Stream &s, int fd, const msghdr *msg, int flags)
{
    const std::size_t wanted = total_length(*msg);
    if (!transport(s).spans && (flags & MSG_ZEROCOPY) != 0)
        pin_to_kernel(s, "a send that only the kernel does", Heir::kLibrary);
    if (wanted == 0)
        return send_nothing(s, fd, msg, flags);
    const bool blocking = may_wait_for_room(s, flags);
    std::size_t done = 0;
    bool looked = false;
    Wait wait;
    std::optional<Call> call;
    const auto elsewhere = [=, &s, &done](int other) {
        engine_leave(ring_of(s));
        return done != 0 ? 0 : libc::real.sendmsg(other, msg, flags);
    };
    for (;;) {
        ssize_t n = -EAGAIN;
        if (!offloaded(s) && done == 0 && send_kernel_only(s, fd, msg, flags, n, call ? wait : begin_send(s)))
            return n;
        note_offloaded_send(s, live_fd(s, fd));
        s.tx_lock.lock();
        if ((flags & MSG_ZEROCOPY) != 0)
            end_transmit(s, false);
        const Room room = room_of(s);
        n = transmit(s, live_fd(s, fd), msg, done, flags);
        unlock_tx(s);
        if (s.transport_over.load(std::memory_order_acquire)) [[unlikely]]
            fall_back(s, true); // the kernel says how it ended
        if (n > 0) {
            done += static_cast<std::size_t>(n);
            poll_after_send(s);
        }
        if (done >= wanted && n >= 0)
            return static_cast<ssize_t>(done);
        if (n < 0 && done != 0)
            keep_error(s, static_cast<int>(-n));
        if (n < 0 && n != -EAGAIN)
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, n);
        if (n > 0)
            continue;
        if (!offloaded(s) && done == 0)
            continue;
        if (!blocking) {
            if (done == 0 && engine_look(ring_of(s)) != 0)
                continue; // a CREDIT may have been waiting
            if (done == 0 && !std::exchange(looked, true) && has_changed(s, room))
                continue;
            if (done == 0)
                libc::test_cancel(); // send() is a cancellation point, also where it doesn't wait
            s.tx.told_full.store(true, std::memory_order_relaxed);
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, -EAGAIN);
        }
        if (!call && !begin_call(call, s, CallKind::kWait, fd, wait = begin_send(s), elsewhere, n)) [[unlikely]]
            return done != 0 ? static_cast<ssize_t>(done) : n;
        n = wait_for_room(s, fd, wait);
        if (n != 0)
            return done != 0 ? static_cast<ssize_t>(done) : fail(s, n);
    }
}

} // namespace

namespace tcp {

ssize_t send_msg(Socket &socket, int fd, const msghdr *msg, int flags)
{
    Stream &s = as_stream(socket);
    // Its place is among the kernel's bytes, which the receiver does not count as the sender does: it stays there for
    // good.
    if ((flags & MSG_OOB) != 0) [[unlikely]]
        pin_to_kernel(s, "urgent data", Heir::kLibrary);
    if (s.mode.load(std::memory_order_acquire) == Mode::kKernel) [[unlikely]]
        return by_os_sent(s, libc::real.sendmsg(fd, msg, flags));
    ssize_t n = refused_message(*msg);
    if (n == 0 && msg->msg_controllen != 0) [[unlikely]]
        n = refused_control(*msg);
    if (n == 0 && lies_nowhere(*msg)) [[unlikely]]
        n = -EFAULT;
    if (n != 0) [[unlikely]] // a kernel-only one's errors are the kernel's to order
        return offloaded(s) ? fail(s, n) : libc::real.sendmsg(fd, msg, flags);
    if (asks_kernel(*msg)) [[unlikely]] {
        pin_to_kernel(s, "a send that only the kernel does", Heir::kLibrary);
        if (s.mode.load(std::memory_order_acquire) == Mode::kKernel)
            return by_os_sent(s, libc::real.sendmsg(fd, msg, flags));
    }
    if (offloaded(s) || !send_kernel_only(s, fd, msg, flags, n, begin_send(s)))
        return send_offloaded(s, fd, msg, flags);
    return n;
}

} // namespace tcp

namespace {

// Behind `sent` bytes: an error is for the next call, and so is SIGPIPE.
[[gnu::noinline]] ssize_t send_rest(Stream &s, int fd, const char *bytes, std::size_t len, int flags, std::size_t sent)
{
    iovec v = {const_cast<char *>(bytes), std::min(len, kMostBytes - sent)};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    Wait wait = begin_send(s);
    std::optional<Call> call; // the rest goes nowhere else
    ssize_t more = 0;
    if (!may_wait_for_room(s, flags) || !begin_call(
                                            call, s, CallKind::kWait, fd, wait, [](int) { return ssize_t{0}; }, more))
        return static_cast<ssize_t>(sent);
    more = tcp::send_msg(s, fd, &msg, flags | MSG_NOSIGNAL);
    if (more < 0)
        keep_error(s, errno);
    return static_cast<ssize_t>(sent) + std::max<ssize_t>(more, 0);
}

// By the transport, now: what it has room for. 0: not so simple. tx_lock held.
inline std::size_t send_small(Stream &s, const void *bytes, std::size_t len)
{
    if (s.endpoint == nullptr)
        return 0;
    return by_shared_ring(s) ? ring_send_small(s, bytes, len) : transport(s).send_small(s, bytes, len);
}

} // namespace

namespace tcp {

namespace {

[[gnu::noinline]] ssize_t send_slowly(Stream &s, int fd, const void *buf, std::size_t len, int flags, Mode mode)
{
    if (ssize_t n = 0; mode == Mode::kKernelOnly && (flags & MSG_OOB) == 0 &&
                       send_kernel_only(s, fd, flags, n, begin_send(s),
                                        [=](int live) { return libc::real.send(live, buf, len, flags); }))
        return n;
    iovec v = {const_cast<void *>(buf), std::min(len, kMostBytes)};
    msghdr msg = {};
    msg.msg_iov = &v;
    msg.msg_iovlen = 1;
    return tcp::send_msg(s, fd, &msg, flags);
}

} // namespace

ssize_t send(Socket &socket, int fd, const void *buf, std::size_t len, int flags)
{
    Stream &s = as_stream(socket);
    const Mode mode = s.mode.load(std::memory_order_acquire);
    if (mode == Mode::kOffloaded && (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)) == 0 && len != 0 &&
        !is_nowhere(buf) && s.tx_lock.try_lock()) {
        const std::size_t sent = send_small(s, buf, len);
        unlock_tx(s);
        if (sent != 0)
            poll_after_send(s);
        if (sent == len) [[likely]]
            return static_cast<ssize_t>(len);
        if (sent != 0)
            return libc::keep_errno(
                [=, &s] { return send_rest(s, fd, static_cast<const char *>(buf) + sent, len - sent, flags, sent); });
    }
    if (mode == Mode::kKernel)
        return by_os_sent(s, libc::real.send(fd, buf, len, flags));
    return libc::keep_errno([=, &s] { return send_slowly(s, fd, buf, len, flags, mode); });
}

} // namespace tcp

namespace {

// The kernel goes on with a piece until that fails: SIGPIPE comes although something was sent.
ssize_t send_piece(Stream &s, int fd, const char *bytes, std::size_t len)
{
    ssize_t sent = tcp::send(s, fd, bytes, len, 0);
    for (ssize_t n = sent; n > 0 && static_cast<std::size_t>(sent) < len; sent += std::max<ssize_t>(n, 0))
        n = tcp::send(s, live_fd(s, fd), bytes + sent, len - static_cast<std::size_t>(sent), MSG_DONTWAIT);
    return sent;
}

// Moves up to `count` bytes of a file through a buffer; the offset moves by what was sent, as sendfile's does.
ssize_t send_file_pieces(Stream &s, int fd, int in_fd, off64_t *offset, std::size_t count)
{
    libc::test_cancel();                 // not between a piece's read and its send
    const Call call(s, CallKind::kWait); // as one call, which outlives its descriptor
    SpareRoom room;
    const libc::WhenLeft<SpareRoom, &SpareRoom::give_back> left(room);
    std::size_t done = 0;
    while (done < count) {
        room.take(); // others may have given one back meanwhile
        char *const buffer = room.bytes();
        const std::size_t piece = std::min(count - done, room.size());
        const ssize_t got =
            offset != nullptr ? ::pread64(in_fd, buffer, piece, *offset) : libc::real.read(in_fd, buffer, piece);
        if (got <= 0)
            return done != 0 || got == 0 ? static_cast<ssize_t>(done) : -1;
        const ssize_t sent = send_piece(s, live_fd(s, fd), buffer, static_cast<std::size_t>(got));
        const ssize_t moved = std::max<ssize_t>(sent, 0);
        if (offset != nullptr)
            *offset += moved;
        else if (moved < got)
            ::lseek64(in_fd, moved - got, SEEK_CUR);
        done += static_cast<std::size_t>(moved);
        if (moved < got)
            return done != 0 ? static_cast<ssize_t>(done) : -1;
    }
    return static_cast<ssize_t>(done);
}

} // namespace

namespace tcp {

ssize_t send_file(Stream &s, int fd, int in_fd, off64_t *offset, std::size_t count)
{
    ssize_t n = 0;
    if (!offloaded(s) && send_kernel_only(s, fd, 0, n, begin_send(s),
                                          [=](int live) { return libc::real.sendfile(live, in_fd, offset, count); }))
        return n;
    struct stat st = {};
    if (offset == nullptr && ::fstat(in_fd, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode)))
        return libc::real.sendfile(fd, in_fd, nullptr, count); // it refuses, where a read would wait
    return send_file_pieces(s, fd, in_fd, offset, count);
}

ssize_t send_to(Stream &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len)
{
    if (const int error = refused_name(to, to_len)) [[unlikely]]
        return fail(s, error);
    return tcp::send(s, fd, buf, len, flags); // TCP takes no notice of the address
}

int bytes_unsent(Stream &s, int fd, unsigned long request, int *count)
{
    const int result = libc::real.ioctl(fd, request, count);
    if (QueuedBytes bytes; result == 0 && transport(s).count(s, bytes)) {
        *count = static_cast<int>(request == SIOCOUTQ ? bytes.unacknowledged : bytes.unsent);
        return result;
    }
    if (result == 0 && offloaded(s)) { // what is in the peer's ring has arrived: TCP would have had it acknowledged
        LockGuard guard(s.tx_lock);
        const std::uint64_t from = s.tx.resend_from.load(std::memory_order_relaxed);
        if (from != kNone)
            *count += static_cast<int>(s.tx.position - from);
    }
    return result;
}

} // namespace tcp

} // namespace vma::sock
