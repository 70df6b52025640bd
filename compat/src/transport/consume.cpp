// SPDX-License-Identifier: BSD-2-Clause
// The receiving direction of an offloaded socket: from which path the next bytes come, the copy out of our ring, and
// credits. Nothing here blocks; rx_lock is held (doc/stream-protocol.md).
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <iterator>

#include <rdma/fi_ext_vma.h>
#include <rdma/fi_rma.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/kernel_counts.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

namespace {

std::uint64_t available(const Stream &s)
{
    return s.rx.written.load(std::memory_order_acquire) - s.rx.consumed.load(std::memory_order_relaxed);
}

// Copies up to `len` ring bytes from the read position on.
void copy_out(const Stream &s, std::uint64_t position, void *out, std::size_t len)
{
    const std::uint64_t offset = position & (s.rx.ring - 1);
    const std::size_t first = std::min(len, std::size_t{s.rx.ring - offset});
    memcpy(out, s.rx.base + offset, first);
    memcpy(static_cast<std::uint8_t *>(out) + first, s.rx.base, len - first);
}

void advance(Stream &s, std::uint64_t len)
{
    Receiver &rx = s.rx;
    const std::uint64_t consumed = rx.consumed.load(std::memory_order_relaxed) + len;
    rx.consumed.store(consumed, std::memory_order_release);
    if (creditable(s) - rx.credited.load(std::memory_order_relaxed) >= rx.ring / 4)
        send_credit(s);
}

// As the kernel has it for bytes that came together: all that they would go to is there, or none of them is taken.
bool is_there(const msghdr *msg, std::size_t skip, std::size_t left)
{
    for (std::size_t i = 0; i < msg->msg_iovlen && left != 0; ++i) {
        const iovec &v = msg->msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        const std::size_t n = std::min(v.iov_len - skip, left);
        if (!libc::can_overwrite(static_cast<std::uint8_t *>(v.iov_base) + skip, n))
            return false;
        skip = 0;
        left -= n;
    }
    return true;
}

// What was thrown away is not shown.
[[gnu::cold]] void show_consumed(const stats::Slot &record, const msghdr &msg, std::size_t skip, std::size_t length,
                                 int flags)
{
    stats::capture_received(record, msg.msg_iov, skip, length, (flags & MSG_TRUNC) != 0 ? 0 : length);
}

} // namespace

ssize_t consume_endpoint(Stream &s, const msghdr *msg, std::size_t skip, int flags)
{
    std::uint64_t position = s.rx.consumed.load(std::memory_order_relaxed);
    std::uint64_t left = available(s);
    std::size_t done = 0;
    const std::size_t skipped = skip;
    if ((flags & MSG_TRUNC) == 0 && !is_there(msg, skip, left)) [[unlikely]]
        return -EFAULT;
    for (std::size_t i = 0; i < msg->msg_iovlen && left != 0; ++i) {
        const iovec &v = msg->msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        const std::size_t n = std::min(v.iov_len - skip, std::size_t{left});
        if ((flags & MSG_TRUNC) == 0)
            copy_out(s, position, static_cast<std::uint8_t *>(v.iov_base) + skip, n);
        skip = 0;
        position += n;
        left -= n;
        done += n;
        if ((flags & MSG_PEEK) == 0)
            advance(s, n);
    }
    if (done != 0 && (flags & MSG_PEEK) == 0)
        stats::received(record_of(s), done,
                        [=](const stats::Slot &record) { show_consumed(record, *msg, skipped, done, flags); });
    return static_cast<ssize_t>(done);
}

std::size_t clip(const msghdr *msg, std::size_t skip, std::uint64_t limit, iovec *out, std::size_t max)
{
    std::size_t count = 0;
    for (std::size_t i = 0; i < msg->msg_iovlen && count < max && limit != 0; ++i) {
        const iovec &v = msg->msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        const std::size_t n = std::min(v.iov_len - skip, std::size_t{limit});
        out[count++] = {static_cast<std::uint8_t *>(v.iov_base) + skip, n};
        skip = 0;
        limit -= n;
    }
    return count;
}

namespace {

// What is said where nothing is to be read now: `n`, or the error that the program has not been told, as the kernel has
// it behind all bytes. A call that has got some leaves it to the next one.
ssize_t behind_bytes(Stream &s, std::size_t skip, ssize_t n)
{
    const int error = skip == 0 ? take_error(s) : 0;
    return error != 0 ? -error : n;
}

// For a call that has got bytes already: 1, or what it ends with here. The kernel would tell an error to it that is for
// the next call, of whatever process.
ssize_t more_in_kernel(const Stream &s, int fd)
{
    int queued = 0;
    if (libc::real.ioctl(fd, FIONREAD, &queued) != 0 || queued != 0)
        return 1;
    if (!kernel_ended(s, fd))
        return -EAGAIN;
    pollfd p = {fd, POLLRDHUP, 0}; // POLLERR alone is the error queue's
    return libc::uncancelled::poll_now(&p, 1) > 0 && (p.revents & (POLLHUP | POLLRDHUP)) != 0 ? 0 : 1;
}

ssize_t receive_kernel(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags, std::uint64_t limit)
{
    if (const ssize_t n = skip != 0 ? more_in_kernel(s, fd) : 1; n <= 0)
        return n;
    iovec parts[64];
    msghdr part = *msg;
    if (skip != 0 || limit != kNone) {
        part.msg_iov = parts;
        part.msg_iovlen = clip(msg, skip, limit, parts, std::size(parts));
    }
    const ssize_t n =
        received_by_kernel(s, libc::uncancelled::recvmsg(fd, &part, (flags & ~MSG_WAITALL) | MSG_DONTWAIT));
    if (n > 0)
        by_os_received(s, n, flags);
    if (const ssize_t untold = n > 0 ? n : behind_bytes(s, skip, n); untold < 0)
        return untold;
    msg->msg_namelen = part.msg_namelen;
    msg->msg_flags = part.msg_flags;
    msg->msg_controllen = part.msg_controllen;
    if ((flags & MSG_PEEK) == 0) {
        s.rx.kernel_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
        settle(s); // these may be the last before a span that is over already, and nobody else would look
    }
    return n;
}

} // namespace

// The kernel's side has ended: FIN, RST or an error. poll() leaves a pending error for the program's own call. After
// shutdown(SHUT_RD) it always says POLLRDHUP.
bool kernel_ended(const Stream &s, int fd)
{
    pollfd p = {fd, POLLRDHUP, 0};
    if (libc::uncancelled::poll_now(&p, 1) <= 0)
        return false;
    return (p.revents & (POLLHUP | POLLERR)) != 0 ||
           ((p.revents & POLLRDHUP) != 0 &&
            (!s.receive_shut.load(std::memory_order_relaxed) || peer_has_ended(tcp_state(fd))));
}

namespace {

// What the kernel has may lie behind a span of the endpoint that we have not heard of. The sender publishes START
// before the bytes that follow the span, so: see how much there is, hear all that was published before, and take what
// comes first.
ssize_t consume_kernel(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    Receiver &rx = s.rx;
    s.kernel_news.store(false, std::memory_order_relaxed); // here it is looked at
    if (rx.final || !offloaded(s))
        return receive_kernel(s, fd, msg, skip, flags, kNone);
    int queued = 0;
    if (libc::real.ioctl(fd, FIONREAD, &queued) != 0)
        return -errno;
    const bool ended = queued == 0 && kernel_ended(s, fd);
    engine_drain(ring_of(s));
    settle(s);
    if (rx.path.load(std::memory_order_relaxed) == Path::kEndpoint)
        return -EAGAIN; // the caller looks again
    if (queued == 0 && !ended)
        return behind_bytes(s, skip, -EAGAIN);
    if (ended && rx.start_at.load(std::memory_order_acquire) == kNone && transport(s).may_bring_more(s))
        return -EAGAIN;
    if (queued == 0)
        find_start(s);
    if (rx.path.load(std::memory_order_relaxed) == Path::kEndpoint)
        return -EAGAIN;
    const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
    std::uint64_t limit = queued != 0 ? static_cast<std::uint64_t>(queued) : kNone;
    if (start != kNone)
        limit = std::min(limit, start - rx.kernel_bytes.load(std::memory_order_relaxed));
    return receive_kernel(s, fd, msg, skip, flags, limit);
}

// RETURN was not answered and the peer is gone: what it had sent again by the kernel before it died comes first, then
// the rest of the ring. How much that is its FIN tells, which may still be behind bytes that we have no room for, or
// that are on their way: the kernel has news then.
void settle_unanswered(Stream &s, int fd)
{
    Receiver &rx = s.rx;
    int queued = 0;
    const bool ended = kernel_ended(s, fd);
    libc::real.ioctl(fd, FIONREAD, &queued);
    if (!ended && queued == 0)
        return;
    const std::uint64_t resent = std::min(static_cast<std::uint64_t>(queued), available(s));
    rx.consumed.fetch_add(resent, std::memory_order_release);
    rx.path.store(Path::kKernel, std::memory_order_release);
    rx.start_at.store(rx.kernel_bytes.load(std::memory_order_relaxed) + resent, std::memory_order_release);
    rx.returning.store(!ended && available(s) != 0, std::memory_order_release);
    settle(s);
}

} // namespace

bool shared_ring_peer_is_gone(Stream &s, int fd)
{
    return s.endpoint_down.load(std::memory_order_acquire) || kernel_ended(s, fd);
}

namespace {

bool peer_gone(Stream &s, int fd)
{
    s.kernel_news.store(false, std::memory_order_relaxed);
    return transport(s).peer_is_gone(s, fd);
}

// A span is under way, and the kernel has bytes: its sender said END before it used the kernel again, so they are
// another's.
void look_for_others(Stream &s, int fd)
{
    int queued = 0;
    if (!transport(s).ordered || s.rx.returning.load(std::memory_order_acquire) ||
        libc::real.ioctl(fd, FIONREAD, &queued) != 0 || queued == 0)
        return;
    engine_drain(ring_of(s));
    if (s.rx.path.load(std::memory_order_relaxed) == Path::kEndpoint &&
        s.rx.end_at.load(std::memory_order_acquire) == kNone && available(s) == 0 && !s.endpoint_down.load())
        violation(s, "bytes come by the kernel in the middle of a span");
}

// There is nothing to read, no END has come, and the kernel or the event queue has news. Is the peer gone?
void look_at_kernel(Stream &s, int fd)
{
    Receiver &rx = s.rx;
    const bool gone = peer_gone(s, fd);
    engine_drain(ring_of(s)); // all that was published before the kernel got its news is now counted
    settle(s);
    if (!gone)
        look_for_others(s, fd);
    if (!gone || rx.path.load(std::memory_order_relaxed) != Path::kEndpoint)
        return;
    if (rx.returning.load(std::memory_order_acquire) && !transport(s).ordered) {
        rx.returning.store(false, std::memory_order_release); // what is in the ring is right, and then comes the reset
        return;
    }
    if (rx.returning.load(std::memory_order_acquire)) {
        settle_unanswered(s, fd);
        return;
    }
    if (available(s) != 0 || rx.end_at.load(std::memory_order_acquire) != kNone)
        return;
    rx.path.store(Path::kKernel, std::memory_order_release);
    rx.final = true;
}

} // namespace

bool ring_has_input(const Stream &s)
{
    const Receiver &rx = s.rx;
    if (rx.returning.load(std::memory_order_relaxed))
        return false;
    if (rx.path.load(std::memory_order_acquire) == Path::kKernel &&
        rx.start_at.load(std::memory_order_acquire) != rx.kernel_bytes.load(std::memory_order_relaxed))
        return s.unread.load(std::memory_order_relaxed) != nullptr && shared_left(s) != 0;
    return available(s) != 0;
}

ssize_t ring_receive_small(Stream &s, void *out, std::size_t len)
{
    const Receiver &rx = s.rx;
    const std::uint64_t left = available(s);
    if (left == 0 || rx.path.load(std::memory_order_relaxed) != Path::kEndpoint ||
        rx.end_at.load(std::memory_order_acquire) != kNone || rx.returning.load(std::memory_order_acquire))
        return 0;
    const std::size_t n = std::min(len, std::size_t{left});
    if (!libc::can_overwrite(out, n)) [[unlikely]]
        return 0; // the longer way tells
    copy_out(s, rx.consumed.load(std::memory_order_relaxed), out, n);
    advance(s, n);
    stats::received(record_of(s), n, [=](const stats::Slot &record) { stats::capture_received(record, out, n); });
    return static_cast<ssize_t>(n);
}

// Only counts when the tag went out: the next consumption, or the helper's tick, tries again.
void send_credit(Stream &s)
{
    const std::uint64_t consumed = creditable(s);
    s.rx.credit_due.store(!send_tag(s, Tag::kCredit, consumed), std::memory_order_relaxed);
    std::uint64_t credited = s.rx.credited.load(std::memory_order_relaxed); // who polls may tell of more meanwhile
    while (credited < consumed && !s.rx.credited.compare_exchange_weak(credited, consumed, std::memory_order_relaxed)) {
    }
}

void find_start(Stream &s)
{
    Receiver &rx = s.rx;
    settle(s); // all that comes before it may be read already: then nobody has to look any more
    const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
    std::uint64_t read = 0;
    if (start == kNone || rx.final || rx.path.load(std::memory_order_relaxed) == Path::kEndpoint ||
        !kernel_read(s, read) || read == rx.kernel_bytes.load(std::memory_order_relaxed))
        return;
    if (read > start) {
        violation(s, "a span starts before bytes that came by the kernel");
        return;
    }
    rx.kernel_bytes.store(read, std::memory_order_relaxed); // another process has read some
    settle(s);
    notify(s, POLLIN);
}

void settle(Stream &s)
{
    Receiver &rx = s.rx;
    if (rx.path.load(std::memory_order_relaxed) == Path::kKernel) {
        const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
        if (start == kNone && rx.returning.load(std::memory_order_acquire) &&
            rx.end_at.exchange(kNone, std::memory_order_acq_rel) != kNone) { // answered before it ever started
            rx.final |= rx.leaving;
            rx.returning.store(false, std::memory_order_release);
        }
        if (rx.final || start != rx.kernel_bytes.load(std::memory_order_relaxed))
            return;
        rx.path.store(Path::kEndpoint, std::memory_order_release);
    }
    if (rx.end_at.load(std::memory_order_acquire) != rx.consumed.load(std::memory_order_relaxed))
        return;
    rx.path.store(Path::kKernel, std::memory_order_release);
    rx.start_at.store(kNone, std::memory_order_relaxed);
    rx.end_at.store(kNone, std::memory_order_release);
    rx.span_over = true;
    rx.final |= rx.leaving;
    rx.returning.store(false, std::memory_order_release);
    send_credit(s);
    if (!rx.final) {
        s.ready_due.store(true, std::memory_order_seq_cst); // the peer may START again
        try_ready(s);
    }
}

namespace {

ssize_t consume_once(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    Receiver &rx = s.rx;
    const auto by_endpoint = [&rx] { return rx.path.load(std::memory_order_relaxed) == Path::kEndpoint; };
    const auto readable = [&s, &rx] { return available(s) != 0 && !rx.returning.load(std::memory_order_acquire); };
    if (s.unread.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
        if ((flags & MSG_TRUNC) == 0 && !is_there(msg, skip, shared_left(s)))
            return -EFAULT;
        if (const ssize_t n = consume_shared(s, fd, msg, skip, flags); n != 0)
            return n > 0 && (flags & MSG_PEEK) != 0 ? peek_behind_shared(s, fd, msg, skip, flags, n) : n;
    }
    settle(s);
    if (!by_endpoint()) {
        const ssize_t n = consume_kernel(s, fd, msg, skip, flags);
        if (!by_endpoint() || n != -EAGAIN)
            return n;
    }
    if (!readable() &&
        (s.kernel_news.load(std::memory_order_acquire) || s.endpoint_down.load(std::memory_order_acquire)))
        look_at_kernel(s, fd);
    if (!by_endpoint())
        return consume_kernel(s, fd, msg, skip, flags);
    if (!readable())
        return rx.returning.load(std::memory_order_acquire) ? -EAGAIN : behind_bytes(s, skip, -EAGAIN);
    const ssize_t n = consume_endpoint(s, msg, skip, flags);
    if (n < 0) [[unlikely]]
        return n;
    settle(s);
    describe_bytes(*msg, flags);
    return n;
}

ssize_t consume_now(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    const ssize_t n = consume_once(s, fd, msg, skip, flags);
    return n > 0 && (flags & MSG_PEEK) != 0 ? peek_on(s, fd, msg, skip, flags, n) : n;
}

} // namespace

ssize_t ring_receive(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    ssize_t n = consume_now(s, fd, msg, skip, flags);
    if (n != -EAGAIN || !s.receive_shut.load(std::memory_order_relaxed))
        return n;
    engine_drain(ring_of(s)); // what came after shutdown(SHUT_RD) can still be read
    n = consume_now(s, fd, msg, skip, flags);
    if (n != -EAGAIN)
        return n;
    describe_bytes(*msg, flags);
    return 0;
}

} // namespace vma::sock
