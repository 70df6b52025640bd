// SPDX-License-Identifier: BSD-2-Clause
// What is unread of a stream when its endpoint has gone: see leftovers.hpp.
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/rendezvous/offer.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/sharing/peek_offset.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/timeouts.hpp"
#include "vma/passed.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kMostBefore = 256 << 20; // what the buffers of two sockets can hold, by far

std::uint64_t left_in_copy(const Receiver &rx)
{
    return rx.written.load(std::memory_order_relaxed) - rx.consumed.load(std::memory_order_relaxed);
}

// Bytes that the peer sent by the kernel before the span.
std::uint64_t bytes_before(const Receiver &rx)
{
    const std::uint64_t start = rx.start_at.load(std::memory_order_relaxed);
    const std::uint64_t taken = rx.kernel_bytes.load(std::memory_order_relaxed);
    const bool none = rx.path.load(std::memory_order_relaxed) != Path::kKernel || start == kNone || start < taken;
    return none ? 0 : start - taken;
}

// The peer's process has ended without an answer to our RETURN: the kernel brings what it had sent again, then the end.
bool is_unanswered(const Stream &s)
{
    return s.rx.returning.load(std::memory_order_relaxed) && s.endpoint_down.load(std::memory_order_acquire) &&
           transport(s).ordered;
}

bool wait_readable(int fd, std::int64_t until_ns)
{
    constexpr std::int64_t kNsPerMs = 1'000'000;
    pollfd p = {fd, POLLIN, 0};
    const std::int64_t left = until_ns - now_ns();
    return left > 0 && libc::uncancelled::poll(&p, 1, static_cast<int>(left / kNsPerMs) + 1) >= 0;
}

// They have left the peer; the kernel brings the last of them when the first have made room. Fewer: that is the
// stream's end, by `error` if there is one.
std::uint64_t take_from_kernel(Stream &s, int fd, std::uint8_t *to, std::uint64_t count, int &error)
{
    std::int64_t until =
        return_deadline(); // without anything: a rate limit or a small buffer of the sender's may be in between
    std::uint64_t done = 0;
    while (done < count) {
        iovec part = {to + done, count - done};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        const ssize_t n = received_by_kernel(s, libc::uncancelled::recvmsg(fd, &message, MSG_DONTWAIT));
        if (n > 0) {
            done += static_cast<std::uint64_t>(n);
            until = return_deadline();
            by_os_received(s, n, 0);
        } else if (n == 0) {
            break;
        } else if (n != -EAGAIN && n != -EINTR) {
            error = static_cast<int>(-n);
            break;
        } else if (!wait_readable(fd, until)) {
            break;
        }
    }
    s.rx.kernel_bytes.fetch_add(done, std::memory_order_relaxed);
    return done;
}

void copy_ring(const Receiver &rx, std::uint8_t *to, std::uint64_t count)
{
    const std::uint64_t offset = rx.consumed.load(std::memory_order_relaxed) & (rx.ring - 1);
    const std::uint64_t first = std::min(count, rx.ring - offset);
    memcpy(to, rx.leftovers + offset, first);
    memcpy(to + first, rx.leftovers, count - first);
}

void forget_copy(Receiver &rx)
{
    rx.base = nullptr;
    free(rx.leftovers);
    rx.leftovers = nullptr;
}

// From here on the kernel's bytes come next, behind those that are shared.
void go_on_by_kernel(Receiver &rx)
{
    rx.path.store(Path::kKernel, std::memory_order_release);
    rx.start_at.store(kNone, std::memory_order_release);
    rx.end_at.store(kNone, std::memory_order_release);
    rx.returning.store(false, std::memory_order_release);
    rx.final = true;
    rx.consumed.store(rx.written.load(std::memory_order_relaxed), std::memory_order_release);
}

// The copy, and before it what the kernel has before the span, to memory that all share. Where there is none it stays a
// copy.
void move_to_shared(Stream &s)
{
    Receiver &rx = s.rx;
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    const std::uint64_t before = bytes_before(rx);
    const std::uint64_t left = left_in_copy(rx);
    const bool to_end = is_unanswered(s);
    const std::uint64_t room = to_end ? kMostBefore : before;
    SharedLeftovers *const u = before <= kMostBefore ? make_unread(fd, room + left) : nullptr;
    if (u == nullptr)
        return;
    int error = take_error(s); // that one of our sends was told
    std::uint64_t filled = take_from_kernel(s, fd, unread_room(*u), room, error);
    if (filled >= before) {
        const std::uint64_t again = std::min(filled - before, left); // stands in the ring as well
        rx.consumed.fetch_add(again, std::memory_order_relaxed);
        copy_ring(rx, unread_room(*u) + filled, left - again);
        filled += left - again;
    } else {
        abort_stream(s, "bytes that come before the endpoint's have not come");
        libc::real.shutdown(fd, SHUT_RDWR); // poll() tells who waits for bytes
        error = error != 0 ? error : ECONNRESET;
    }
    publish_unread(*u, filled, error);
    forget_copy(rx);
    go_on_by_kernel(rx);
    if (filled != 0 || error != 0)
        set_shared(s, u);
    else // all of the copy was read: nobody would come to remove it
        leave_unread(u);
}

} // namespace

void set_shared(Socket &s, SharedLeftovers *u)
{
    note_socket(s.index);
    const LockGuard guard(s.unread_lock);
    s.unread.store(u, std::memory_order_release);
}

bool keep_leftovers(Stream &s)
{
    Receiver &rx = s.rx;
    const std::uint64_t written = rx.written.load(std::memory_order_relaxed);
    const bool by_kernel = rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
                           rx.start_at.load(std::memory_order_relaxed) == kNone;
    const bool comes_again = rx.returning.load(std::memory_order_relaxed) && !is_unanswered(s);
    rx.kernel_owes.store(rx.kernel_bytes.load(std::memory_order_relaxed) + bytes_before(rx) +
                             (comes_again ? left_in_copy(rx) : 0),
                         std::memory_order_relaxed);
    if (by_kernel || written == rx.consumed.load(std::memory_order_relaxed) || comes_again)
        return false;
    auto *const copy = static_cast<std::uint8_t *>(malloc(rx.ring));
    if (copy == nullptr) {
        abort_stream(s, "there is no memory for what is unread");
        return false;
    }
    memcpy(copy, rx.base, rx.ring);
    rx.base = copy;
    rx.leftovers = copy;
    if (rx.end_at.load(std::memory_order_relaxed) == kNone)
        rx.end_at.store(written, std::memory_order_release);
    return true;
}

void drop_leftovers(Stream &s)
{
    forget_copy(s.rx);
    drop_shared(s);
}

void drop_shared(Socket &s)
{
    SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    if (u == nullptr)
        return;
    set_shared(s, nullptr);
    leave_unread(u);
}

void tcp::share_unread(Stream &s)
{
    if (s.rx.leftovers != nullptr)
        move_to_shared(s);
}

void share_leftovers(Socket &s, bool handed)
{
    const LockGuard rx(s.rx_lock);
    protocol(s).share_unread(s);
    SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    if (u != nullptr && handed)
        unread_handed(*u);
}

std::size_t shared_left(const Socket &s)
{
    const LockGuard guard(s.unread_lock); // nobody drops it meanwhile
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    return u != nullptr ? unread_left(*u) : 0;
}

ssize_t consume_shared(Socket &s, int fd, msghdr *msg, std::size_t skip, int flags)
{
    const SharedLeftovers &u = *s.unread.load(std::memory_order_relaxed);
    const bool peeks = (flags & MSG_PEEK) != 0;
    const std::size_t n =
        peeks && kernel_peek_offset(fd) >= 0 ? peek_on_unread(u, *msg, skip, flags) : read_unread(u, *msg, skip, flags);
    if (n == 0)
        return skip == 0 ? -take_unread_error(u)
                         : 0; // behind the last byte; a call that has got something leaves it to the next one
    if (!peeks) {
        peek_goes_back(u, n);
        const std::size_t there = (flags & MSG_TRUNC) != 0 ? 0 : n;
        stats::received(record_of(s), n, [=](const stats::Slot &record) {
            stats::capture_received(record, msg->msg_iov, skip, n, there);
        });
    }
    describe_bytes(*msg, flags);
    return static_cast<ssize_t>(n);
}

bool holds_leftovers(const Socket &s)
{
    const Stream *const stream = stream_of(s);
    if (stream != nullptr && stream->rx.leftovers != nullptr && left_in_copy(stream->rx) != 0)
        return true;
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    return u != nullptr && (unread_left(*u) != 0 || ends_in_error(*u));
}

bool owes_error(const Socket &s)
{
    if (s.pending_error.load(std::memory_order_relaxed) != 0)
        return true;
    if (s.unread.load(std::memory_order_relaxed) == nullptr) [[likely]]
        return false;
    const LockGuard guard(s.unread_lock);
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    return u != nullptr && ends_in_error(*u);
}

int take_owed_error(Socket &s)
{
    const int error = take_error(s);
    const LockGuard guard(s.unread_lock);
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    return error == 0 && u != nullptr ? take_unread_error(*u) : error;
}

bool may_reset(const Socket &s)
{
    const LockGuard guard(s.unread_lock);
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    return u == nullptr || is_last_with(*u);
}

void end_leftovers(Socket &s)
{
    if (s.unread.load(std::memory_order_relaxed) == nullptr)
        return;
    const LockGuard guard(s.unread_lock);
    if (SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed))
        forsake_unread(*u);
}

// ---- descriptors from other processes

namespace {

int number(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    return libc::real.getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

} // namespace

Socket *tcp::begin_foreign(int fd, int, SharedLeftovers *u)
{
    Socket *const made = track_foreign(fd, (libc::real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    if (made == nullptr)
        return nullptr;
    Stream &s = as_stream(*made);
    read_addresses(fd, s.addresses);
    read_timeouts(s, fd);
    read_inq(s, fd);
    s.evaluated = true;
    s.pinned = true;
    s.kernel_reason = "another process holds it too";
    go_on_by_kernel(s.rx);
    set_shared(s, u);
    s.mode.store(Mode::kOffloaded, std::memory_order_seq_cst);
    tell_way(s);
    return made;
}

bool adopt(int fd, bool handed)
{
    const int protocol = number(fd, SO_PROTOCOL);
    if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
        return false;
    SharedLeftovers *const u = find_unread(fd, handed);
    if (u == nullptr)
        return false;
    const std::size_t left = unread_left(*u);
    const Protocol &of = protocol == IPPROTO_TCP ? kStreamProtocol : udp::kProtocol;
    const Socket *const s = of.begin_foreign(fd, number(fd, SO_DOMAIN), u);
    if (s == nullptr) {
        leave_unread(u);
        return false;
    }
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: %zu bytes that another process has not read come before the kernel's",
            connection_name(*s, name), left);
    return true;
}

[[VMA_AT_STARTUP]] void adopt_inherited(void (*adopted)(int fd))
{
    if (!any_unread())
        return;
    DIR *const own = ::opendir("/proc/self/fd");
    if (own == nullptr)
        return;
    while (const dirent *const entry = ::readdir(own)) {
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && adopt(fd, true))
            adopted(fd);
    }
    ::closedir(own);
}

void adopt_passed(const msghdr &msg, bool peeked, void (*adopted)(int fd))
{
    if (sandboxed() || !any_unread())
        return;
    each_passed(msg, [=](int fd) {
        if (adopt(fd, !peeked))
            adopted(fd);
    });
}

} // namespace vma::sock
