// SPDX-License-Identifier: BSD-2-Clause
// Everything on a tracked socket that is neither sending nor receiving: shutdown, options, pinning to the kernel,
// splice.
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "compat/src/base/probes.hpp"
#include "compat/src/base/spare_room.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/sharing/peek_offset.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/timeouts.hpp"
#include "compat/src/tcp/calls.hpp"
#include "compat/src/tcp/inq.hpp"
#include "compat/src/tcp/known_options.hpp"
#include "compat/src/tcp/mapped_receive.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/transport/pacing.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kReturnWithinNs = 1'000'000'000;
constexpr std::int64_t kExitWithinNs = 10'000'000'000; // a peer may be stopped for a while

} // namespace

std::int64_t return_deadline()
{
    return now_ns() + kReturnWithinNs;
}

std::int64_t exit_deadline()
{
    return now_ns() + kExitWithinNs;
}

void wait_returned(Stream &s, std::int64_t until_ns)
{
    while (is_returning(s) && now_ns() < until_ns) {
        if (s.tx_work.load(std::memory_order_acquire))
            try_tx_work(s);
        if (engine_poll(ring_of(s)) == 0)
            libc::uncancelled::poll(nullptr, 0, 1);
    }
}

void tcp::finish_leaving(Stream &s, std::int64_t until_ns, Heir heir, Closing closing)
{
    wait_returned(s, until_ns);
    give_up_waiting(s);
    while (!close_left(s, closing)) {
        start_leaving(s, heir);
        wait_returned(s, return_deadline());
        give_up_waiting(s);
    }
    end_linger(s);
}

void return_one(Socket &s, Heir heir)
{
    start_leaving(s, heir);
    protocol(s).finish_leaving(s, return_deadline(), heir, Closing::kNow);
}

namespace {

// A datagram socket that senders find, or will: another thread may have pinned it and not have given it back yet.
bool is_named(const Socket &s)
{
    return s.ready_due.load(std::memory_order_acquire) || protocol(s).may_have_peer(s);
}

} // namespace

void pin_to_kernel(Socket &s, const char *reason, Heir heir)
{
    if (s.mode.load(std::memory_order_acquire) == Mode::kKernel)
        return;
    s.kernel_reason = reason;
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), reason, offloaded(s));
    share_for_good(s); // what the kernel moves by itself is not counted
    tell_way(s);
    const Stream *const stream = stream_of(s);
    const bool has_none = stream != nullptr ? stream->endpoint == nullptr : !is_named(s);
    if (s.pinned.exchange(true, std::memory_order_acq_rel) && has_none && offloaded(s))
        return; // but for what is left to read it is there
    stop_offloading(s);
    if (offloaded(s)) {
        char name[kNameMax];
        VMA_LOG(kDetails, "%s: back to the kernel: %s", connection_name(s, name), reason);
        return_one(s, heir);
    }
    Mode kernel_only = Mode::kKernelOnly;
    s.mode.compare_exchange_strong(kernel_only, mode_without_endpoint(s), std::memory_order_acq_rel);
    tell_way(s);
}

void give_to_kernel(Socket &s, const char *reason)
{
    if (!offloaded(s))
        return;
    char name[kNameMax];
    s.kernel_reason = reason;
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), reason, true);
    VMA_LOG(kDetails, "%s: back to the kernel: %s", connection_name(s, name), reason);
    return_one(s, Heir::kLibrary);
    tell_way(s);
}

void pin_all(const char *reason)
{
    const std::uint32_t count = pool_size();
    for (std::uint32_t i = 0; i < count; ++i) {
        Socket &s = *socket_by_index(i);
        const Mode mode = s.mode.load(std::memory_order_acquire);
        if (mode == Mode::kKernelOnly || mode == Mode::kOffloaded)
            pin_to_kernel(s, reason);
    }
}

int shut_down(Socket &s, int fd, int how)
{
    const bool ends_receiving = how == SHUT_RD || how == SHUT_RDWR;
    // Before the kernel says so: another thread would take it for another process's doing (sharing/open_file.cpp).
    const bool before = ends_receiving && s.receive_shut.exchange(true, std::memory_order_seq_cst);
    const int result = protocol(s).shut_down(s, fd, how);
    // A datagram socket without a peer is shut down all the same: inet_shutdown() says ENOTCONN, and does it.
    if (ends_receiving && (result == 0 || (errno == ENOTCONN && protocol(s).messages))) {
        s.kernel_news.store(true, std::memory_order_release);
        notify(s, POLLIN | POLLRDHUP);
    } else if (ends_receiving && !before) {
        s.receive_shut.store(false, std::memory_order_relaxed);
    }
    return result;
}

namespace {

// VMA_ALLOW_PRIVILEGED_SOCK_OPT: what the kernel has refused makes no difference to an accelerated socket.
bool allow_hint(const Socket &s, int level, int name)
{
    if (errno != EPERM || !config::params().allow_privileged_sock_opt || !is_hint(level, name))
        return false;
    char text[kNameMax];
    VMA_LOG(kDebug, "%s: setsockopt(level %d, option %d) needs rights that the process has not: it is taken for done",
            connection_name(s, text), level, name);
    return true;
}

} // namespace

bool admit_option(Socket &s, int level, int name, const char *reason, Heir heir)
{
    char call[64];
    snprintf(call, sizeof call, "setsockopt(level %d, option %d)", level, name);
    return admit_call(s, call, reason, heir);
}

int set_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
        return set_pacing_rate(s, fd, value, len);
    if (is_extra_option(level, name))
        return kExtraApi.set_option(s, fd, name, value, len);
    if (!protocol(s).admits_option(s, level, name))
        return -1;
    const int result = protocol(s).set_option(s, fd, level, name, value, len);
    if (result != 0)
        return allow_hint(s, level, name) ? 0 : result;
    note_timeout(s, level, name, value, len);
    return result;
}

int get_option(Socket &s, int fd, int level, int name, void *value, socklen_t *len)
{
    if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
        return get_pacing_rate(s, fd, value, len);
    if (is_extra_option(level, name))
        return kExtraApi.get_option(s, name, value, len);
    const int result = protocol(s).get_option(s, fd, level, name, value, len);
    if (result == 0 && level == SOL_SOCKET && name == SO_ERROR && *len == sizeof(int))
        if (const int error = take_owed_error(s))
            memcpy(value, &error, sizeof error);
    if (result == 0 && level == SOL_SOCKET && name == SO_PEEK_OFF)
        correct_peek_offset(s, value, *len);
    return result;
}

namespace tcp {

namespace {

// Nothing is sent any more, nor wanted: what the peer sends from now on is the kernel's to refuse, as behind close().
// Bytes that are unread can still be read. Handlers may call this within malloc(): the helper thread closes the
// endpoint, and with it wakes a peer that waits for room.
void part(Stream &s)
{
    s.pinned.store(true, std::memory_order_release);
    if (!offloaded(s)) // the helper thread looks, too, if it is about to be
        return;
    const libc::Stretch stretch;
    const libc::NotCancelled whole;
    s.kernel_reason = "it is shut down";
    start_leaving(s, Heir::kLibrary);
    g_due.add(s.index);
}

} // namespace

int shut_down(Stream &s, int fd, int how)
{
    if (!transport(s).spans)
        pin_to_kernel(s, "shutdown()");
    const bool ends_sending = how == SHUT_WR || how == SHUT_RDWR;
    bool ended_before = false;
    if (ends_sending) {
        // Before it is seen that the socket is not offloaded yet.
        ended_before = s.send_shut.exchange(true, std::memory_order_seq_cst);
        if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded) {
            s.tx_lock.lock();
            end_transmit(s, true);
            finish_resend(s);
            unlock_tx(s);
        }
    }
    const int result = libc::by_kernel(libc::real.shutdown(fd, how));
    if (result != 0 && ends_sending && !ended_before)
        s.send_shut.store(false, std::memory_order_relaxed);
    if (result == 0 && is_shut(s))
        part(s);
    return result;
}

bool admits_option(Stream &s, int level, int name)
{
    const OptionRule rule = rule_of_option(level, name);
    if (rule.known && rule.reason == nullptr)
        return true;
    if (!rule.known && rule.reason != nullptr) {
        char text[kNameMax];
        VMA_LOG(kDebug, "%s: setsockopt(level %d, option %d): not known for accelerated sockets",
                connection_name(s, text), level, name);
    }
    return admit_option(s, level, name, rule.reason, rule.heir);
}

// Whether sockets that are accepted need the kernel for what has been set: not by a switch that is off, nor for leave
// to send in a way that goes by the kernel anyway (gRPC's listeners have it).
static bool is_for_kernel(int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_ZEROCOPY)
        return false;
    const OptionRule rule = rule_of_option(level, name);
    int number = 1;
    if (rule.is_switch && value != nullptr && len >= sizeof number)
        memcpy(&number, value, sizeof number);
    return rule.reason != nullptr && number != 0;
}

int set_option(Stream &s, int fd, int level, int name, const void *value, socklen_t len)
{
    int result = 0;
    if (!transport(s).set_option(s, fd, level, name, value, len, result))
        result = set_in_kernel(s, fd, level, name, value, len);
    if (result == 0 && is_inq(level, name))
        note_inq(s, value);
    if (result == 0 && is_for_kernel(level, name, value, len))
        s.kernel_options = true;
    if (result == 0)
        transport(s).option_was_set(s, fd, level, name, value);
    return result;
}

int get_option(Stream &s, int fd, int level, int name, void *value, socklen_t *len)
{
    if (is_mapped_receive(level, name) && offloaded(s)) [[unlikely]]
        return receive_mapped(s, fd, value, len);
    const int result = libc::real.getsockopt(fd, level, name, value, len);
    if (result == 0)
        transport(s).correct_option(s, level, name, value, *len);
    return result;
}

} // namespace tcp

// The kernel moves pipe pages by itself: the socket is given to it.
ssize_t splice_to(Socket &s, int fd, int pipe_fd, off64_t *in_offset, std::size_t len, unsigned flags)
{
    pin_to_kernel(s, "splice");
    return libc::by_kernel(libc::real.splice(pipe_fd, in_offset, fd, nullptr, len, flags));
}

namespace {

// SO_PEEK_OFF is off meanwhile, and then as it was: splice() looks at the first bytes, whatever the option says, and
// takes them without moving its place back, as a receive does (the kernel's tcp_splice_read(); sk_peek_offset_bwd() is
// for receives alone).
class PeekFromFront
{
public:
    PeekFromFront(Socket &s, int fd) : s_(s), fd_(fd) {}
    PeekFromFront(const PeekFromFront &) = delete;
    PeekFromFront &operator=(const PeekFromFront &) = delete;

    void begin()
    {
        const libc::KeepErrno keep;
        socklen_t size = sizeof place_;
        if (get_option(s_, live_fd(s_, fd_), SOL_SOCKET, SO_PEEK_OFF, &place_, &size) != 0)
            place_ = kOff; // TCP before Linux 6.9
        if (place_ >= 0)
            set(kOff);
    }
    void end()
    {
        const libc::KeepErrno keep;
        if (place_ >= 0)
            set(std::exchange(place_, kOff));
    }

private:
    static constexpr int kOff = -1;

    void set(int place) { set_in_kernel(s_, live_fd(s_, fd_), SOL_SOCKET, SO_PEEK_OFF, &place, sizeof place); }

    Socket &s_;
    const int fd_;
    int place_ = kOff;
    const libc::WhenLeft<PeekFromFront, &PeekFromFront::end> left_{*this};
};

// Out of the way of the next receive.
void take(Socket &s, int fd, void *bytes, ssize_t count)
{
    while (count > 0) {
        const ssize_t n = receive(s, live_fd(s, fd), bytes, static_cast<std::size_t>(count), MSG_DONTWAIT);
        if (n <= 0)
            return;
        count -= n;
    }
}

// While bytes are left that the peer had sent by the endpoint before it ended that itself: they, and what stands before
// them in the kernel, go through a buffer. What the pipe doesn't take stays where it is.
ssize_t splice_by_copy(Socket &s, int fd, int pipe_fd, std::size_t len, unsigned flags)
{
    const Call call(s, CallKind::kWait); // as one call, which outlives its descriptor
    SpareRoom spare;
    const libc::WhenLeft<SpareRoom, &SpareRoom::give_back> left(spare);
    spare.take();
    char *const bytes = spare.bytes();
    const bool waits = (flags & SPLICE_F_NONBLOCK) == 0;
    pollfd room = {pipe_fd, POLLOUT, 0};
    if (!waits && libc::real.poll(&room, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    PeekFromFront front(s, fd);
    front.begin();
    const ssize_t n = receive(s, fd, bytes, std::min(len, spare.size()), MSG_PEEK); // that flag is about the pipe alone
    front.end();
    if (n <= 0)
        return n;
    const ssize_t written = libc::real.write(pipe_fd, bytes, static_cast<std::size_t>(n));
    if (written > 0) {
        const libc::KeepErrno keep;
        if (!protocol(s).messages) // of datagrams the kernel's splice() is a receive
            front.begin();
        take(s, fd, bytes, written);
        front.end();
    }
    return written;
}

// The kernel has nothing more: the end, or the error that a call of the library's was told.
ssize_t behind_all(Stream &s)
{
    const int error = take_error(s);
    const ssize_t n = error != 0 ? -error : received_by_kernel(s, 0);
    return n < 0 ? give(n) : n;
}

} // namespace

ssize_t splice_from(Socket &s, int fd, int pipe_fd, off64_t *out_offset, std::size_t len, unsigned flags)
{
    pin_to_kernel(s, "splice");
    if (offloaded(s) && out_offset == nullptr && len != 0)
        return splice_by_copy(s, fd, pipe_fd, len, flags);
    const ssize_t n = libc::by_kernel(libc::real.splice(fd, nullptr, pipe_fd, out_offset, len, flags));
    return n == 0 && len != 0 && stream_of(s) != nullptr ? behind_all(*stream_of(s)) : n;
}

} // namespace vma::sock
