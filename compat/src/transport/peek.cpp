// SPDX-License-Identifier: BSD-2-Clause
// A peek goes on where a read would: over the bytes that the kernel has before a span, the span's in the ring, and the
// kernel's behind it. None of them is used up, so one look at the kernel's queue has both of its parts
// (doc/stream-protocol.md).
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/sharing/peek_offset.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

namespace {

// Where what has been told lies, in this order: bytes that the kernel has before a span, and the span's.
struct Told {
    std::size_t before;
    std::size_t ring;

    std::size_t bytes() const { return before + ring; }
};

// Bytes of the span come first, and the kernel's next is the urgent one: one call does not tell across it.
bool ends_before_urgent(int fd, const Told &told)
{
    int mark = 0;
    return told.before == 0 && told.ring != 0 && libc::real.ioctl(fd, SIOCATMARK, &mark) == 0 && mark != 0;
}

// Those before are told once more, to the same place, and those behind to behind the span's. All bytes, or -errno. An
// error behind bytes of the span is kept for whoever has read these.
ssize_t peek_around(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, const Told &told)
{
    const auto ring = static_cast<ssize_t>(told.ring);
    if (ends_before_urgent(fd, told))
        return ring;
    iovec parts[64];
    msghdr around = {};
    around.msg_iov = parts;
    around.msg_iovlen = clip(msg, skip, told.before, parts, std::size(parts));
    around.msg_iovlen +=
        clip(msg, skip + told.bytes(), kNone, parts + around.msg_iovlen, std::size(parts) - around.msg_iovlen);
    const bool waits = (flags & MSG_DONTWAIT) == 0; // only then is it where a thread may be cancelled
    const auto look = [&](int live) {
        return waits ? libc::real.recvmsg(live, &around, flags) : libc::uncancelled::recvmsg(live, &around, flags);
    };
    const Wait wait = begin_receive(s);
    const ssize_t n = received_by_kernel(s, by_live_fd(s, fd, waits ? POLLIN : 0, wait, look));
    if (n > 0)
        by_os_received(s, n, flags);
    if (n < 0 && told.before == 0 && ring != 0) {
        keep_error(s, static_cast<int>(-n));
        return ring;
    }
    return n < static_cast<ssize_t>(told.before) ? n : n + ring;
}

// All that comes next is the kernel's.
ssize_t peek_behind(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, const Told &told)
{
    const auto done = static_cast<ssize_t>(told.bytes());
    int queued = 0;
    if (total_length(*msg) <= skip + told.bytes() || libc::real.ioctl(fd, FIONREAD, &queued) != 0 ||
        static_cast<std::size_t>(queued) <= told.before)
        return done;
    const ssize_t n = peek_around(s, fd, msg, skip, (flags & ~MSG_WAITALL) | MSG_DONTWAIT, told);
    if (n < 0)
        keep_error(s, static_cast<int>(-n));
    return std::max(done, n);
}

// All that is left in memory is told, to where it belongs. False: the rest does not come by the kernel alone. rx_lock
// held.
bool tell_left(Stream &s, int fd, msghdr *msg, int flags, Told &told)
{
    const Receiver &rx = s.rx;
    if (s.endpoint != nullptr || owes_error(s))
        return false;
    if (s.unread.load(std::memory_order_relaxed) != nullptr && shared_left(s) != 0) {
        if (kernel_peek_offset(fd) < 0) // else its place is behind what was told
            told.ring = static_cast<std::size_t>(std::max<ssize_t>(consume_shared(s, fd, msg, 0, flags), 0));
        return true;
    }
    const bool by_kernel = rx.path.load(std::memory_order_relaxed) == Path::kKernel;
    const std::uint64_t start = rx.start_at.load(std::memory_order_relaxed);
    if (rx.leftovers == nullptr || rx.returning.load(std::memory_order_relaxed) ||
        (by_kernel && (rx.final || start == kNone)))
        return false;
    const std::uint64_t before = by_kernel ? start - rx.kernel_bytes.load(std::memory_order_relaxed) : 0;
    const ssize_t n = consume_endpoint(s, msg, before, flags);
    told = {before, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
    return n >= 0;
}

} // namespace

ssize_t peek_behind_shared(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, ssize_t done)
{
    if (sandboxed() || !s.rx.final || owes_error(s))
        return done;
    return peek_behind(s, fd, msg, skip, flags, {0, static_cast<std::size_t>(done)});
}

// No second span can follow: READY goes behind the last byte that was read of the first.
ssize_t peek_on(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags, ssize_t done)
{
    const Receiver &rx = s.rx;
    const auto first = static_cast<std::size_t>(done);
    Told told = {0, first};
    if (sandboxed() || rx.returning.load(std::memory_order_acquire))
        return done;
    if (rx.path.load(std::memory_order_relaxed) == Path::kKernel) {
        const std::uint64_t start = rx.start_at.load(std::memory_order_acquire);
        if (rx.final || start == kNone || start != rx.kernel_bytes.load(std::memory_order_relaxed) + first)
            return done;
        const ssize_t n = consume_endpoint(s, msg, skip + first, flags);
        if (n < 0)
            return done; // of what follows nothing can be told
        told = {first, static_cast<std::size_t>(n)};
    }
    if (rx.end_at.load(std::memory_order_acquire) != rx.consumed.load(std::memory_order_relaxed) + told.ring)
        return static_cast<ssize_t>(told.bytes());
    return peek_behind(s, fd, msg, skip, flags, told);
}

void look_for_more(const Stream &s, std::size_t room)
{
    const std::uint64_t written = s.rx.written.load(std::memory_order_acquire);
    if (written - s.rx.consumed.load(std::memory_order_relaxed) < room)
        engine_look(ring_of(s));
}

ssize_t peek_until_all(Stream &s, int fd, msghdr *msg, int flags, std::size_t done)
{
    Told told = {0, done};
    {
        const LockGuard guard(s.rx_lock);
        if (!tell_left(s, live_fd(s, fd), msg, flags, told))
            return static_cast<ssize_t>(done);
    }
    if (told.before == 0 && told.ring >= total_length(*msg))
        return static_cast<ssize_t>(told.ring);
    return peek_around(s, fd, msg, 0, flags, told);
}

} // namespace vma::sock
