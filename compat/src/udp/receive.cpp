// SPDX-License-Identifier: BSD-2-Clause
// Receiving calls on a UDP socket: the kernel's own call while nothing can come by the endpoint, else a look at what
// has come there, and at the kernel in between.
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compat/src/base/arguments.hpp"
#include "compat/src/base/clock.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/udp/receiving.hpp"
#include "compat/src/udp/shown.hpp"

namespace vma::sock::udp {

namespace {

[[gnu::cold]] void show_taken(const stats::Slot &record, const Receive &call, const About &about, std::size_t length,
                              bool lent)
{
    const iovec loan = {lent ? const_cast<std::uint8_t *>(call.loan->data()) : nullptr, length};
    show_received(record, about, lent ? &loan : call.msg.msg_iov, length,
                  lent ? length : std::min(length, total_length(call.msg)));
}

} // namespace

// The bytes are where they belong: the rest of what recvmsg() returns.
void finish(Receive &call, const About &about, std::size_t length)
{
    ++state_of(call.s).since_turn;
    const bool lent = call.loan != nullptr && call.loan->lender != nullptr;
    const std::size_t fits = lent ? length : std::min(length, total_length(call.msg));
    if (call.about != nullptr)
        *call.about = about;
    call.msg.msg_flags = (call.flags & MSG_CMSG_CLOEXEC) | (fits < length ? MSG_TRUNC : 0);
    if ((call.flags & MSG_PEEK) == 0)
        stats::received(record_of(call.s), length,
                        [&](const stats::Slot &record) { show_taken(record, call, about, length, lent); });
    if (!has_room_for_name(call.msg)) [[unlikely]] { // it is taken all the same
        call.result = -EFAULT;
        return;
    }
    describe(call.s, about, &call.msg);
    call.result = static_cast<ssize_t>((call.flags & MSG_TRUNC) != 0 ? length : fits);
}

namespace {

constexpr std::uint32_t kRarely = 1024; // VMA_RX_UDP_POLL_OS_RATIO=0: once in so many looks all the same
// Who asks again within some 1.5 us is polling: what another process tells him of takes longer than that to be told.
constexpr std::uint64_t kBusyTicks = 5'000;

// rx_lock held
void end_turn(State &u)
{
    u.turn_tick = current_tick();
    u.since_turn = 0;
    u.queue.unmark();
}

// The kernel's turn, after what was to be read before. rx_lock held.
bool take_turn(Receive &call)
{
    if ((call.flags & MSG_PEEK) == 0) // else the next call has to find the same one
        end_turn(state_of(call.s));
    return take_from_kernel(call);
}

// Who takes nothing but loans gets one of a datagram that was queued as a copy, before its socket lent or because it
// could not be lent. False: there is no memory, and it stays.
[[gnu::noinline]] bool lend_queued(Receive &call, Queued &first)
{
    *call.loan = lend_copy(first.bytes(), first.length);
    if (call.loan->lender != nullptr)
        finish(call, first.about, first.length);
    else
        call.result = -EIO;
    return call.loan->lender != nullptr;
}

// What is first in the queue. rx_lock held.
bool take_queued(Receive &call)
{
    Queue &queue = state_of(call.s).queue;
    Queued *const first = queue.front();
    if (first == nullptr)
        return false;
    if (first->about.after_kernel) { // those that went before it are there still
        if (take_from_kernel(call)) {
            end_turn(state_of(call.s));
            return true;
        }
        first->about.after_kernel = false;
    }
    if (!are_somewhere(call.msg.msg_iov, call.msg.msg_iovlen) ||
        !can_overwrite(call.msg.msg_iov, call.msg.msg_iovlen, first->length)) [[unlikely]] {
        call.result = -EFAULT;
    } else if (call.loan != nullptr && first->is_lent()) {
        *call.loan = std::exchange(first->loan(), {});
        finish(call, first->about, first->length);
    } else if (call.loan != nullptr && call.force) {
        if (!lend_queued(call, *first))
            return true;
    } else {
        const iovec bytes = {const_cast<std::uint8_t *>(first->bytes()), first->length};
        scatter(call.msg, &bytes, 1);
        finish(call, first->about, first->length);
    }
    if ((call.flags & MSG_PEEK) == 0)
        queue.pop();
    return true;
}

std::uint32_t kernel_ratio()
{
    const std::uint32_t ratio = config::params().rx_udp_poll_os_ratio;
    return ratio != 0 ? ratio : kRarely;
}

// Senders by the endpoint that never pause must not keep those by the kernel from being heard.
bool is_kernels_turn(const State &u)
{
    return u.turn_tick != current_tick() || u.queue.is_marked() ||
           (u.since_turn >= kernel_ratio() && u.kernel_brings.load(std::memory_order_relaxed));
}

// What came by the endpoint before the kernel's first one was seen is read before it. rx_lock held. False: none of it
// yet.
[[gnu::noinline]] bool take_in_turn(Receive &call)
{
    State &u = state_of(call.s);
    if (!u.queue.is_marked()) {
        if (!kernel_has_one(call)) {
            end_turn(u);
            return call.result < 0;
        }
        engine_drain(ring_of(call.s));
        u.queue.mark();
    }
    return u.queue.is_read_to_mark() && take_turn(call);
}

// One look at the endpoint's side.
bool look(Receive &call)
{
    Socket &s = call.s;
    const LockGuard guard(s.rx_lock);
    call.ring = ring_of(s);
    if (s.unread.load(std::memory_order_relaxed) != nullptr && take_shared(call)) [[unlikely]]
        return true;
    if (is_kernels_turn(state_of(s)) && take_in_turn(call)) [[unlikely]]
        return true;
    if (take_queued(call))
        return true;
    if ((call.flags & MSG_PEEK) != 0 || !are_somewhere(call.msg.msg_iov, call.msg.msg_iovlen)) {
        call.sure = engine_poll(call.ring) == 0;
        return take_queued(call);
    }
    Direct direct = {&s, &call.msg, call.loan, call.copied, call.force};
    call.sure = engine_poll_direct(direct, call.ring) == 0;
    if (!direct.done)
        return take_queued(call);
    if (direct.is_nowhere) [[unlikely]]
        call.result = -EFAULT;
    else
        finish(call, direct.about, direct.length);
    return true;
}

// What another thread was just taking out of the ring, and what stood there behind datagrams of others.
[[gnu::noinline]] bool look_behind(Receive &call)
{
    engine_drain(call.ring);
    const LockGuard guard(call.s.rx_lock);
    return take_queued(call);
}

bool has_mixed_senders(const State &u)
{
    return current_tick() - u.arrival_tick.load(std::memory_order_relaxed) < kMixedTicks;
}

// Without a look at the endpoint's side. The lock gives the counts of what was lost the order of the datagrams.
bool take_alone(Receive &call)
{
    if (!state_of(call.s).tells_losses) [[likely]]
        return take_from_kernel(call);
    const LockGuard guard(call.s.rx_lock);
    return take_from_kernel(call);
}

// One look at the kernel's side. What a sender has sent by the endpoint before it sent something by the kernel comes
// first: when the kernel has something, all of that is there to be taken.
bool look_at_kernel(Receive &call)
{
    if (!has_mixed_senders(state_of(call.s)))
        return take_alone(call);
    if (!kernel_has_one(call))
        return call.result < 0;
    engine_drain(call.ring);
    const LockGuard guard(call.s.rx_lock);
    return take_queued(call) || take_turn(call);
}

// In the spin of a waiting call: both sides, in turn.
bool look_while_waiting(void *waiting, bool polite)
{
    Receive &call = *static_cast<Receive *>(waiting);
    if (look(call))
        return true;
    if (!polite && ++call.turns < kernel_ratio() && !call.s.kernel_news.load(std::memory_order_relaxed))
        return false;
    call.turns = 0;
    if (!look_at_kernel(call))
        return false;
    stats::add(record_of(call.s).now.rx.poll_os_hit);
    return true;
}

// A call that doesn't wait looks at the kernel before it says that there is nothing; but not each time if it is made in
// a loop.
bool looked_just_now(const Socket &s)
{
    const State &u = state_of(s);
    return !u.kernel_brings.load(std::memory_order_relaxed) && !s.kernel_news.load(std::memory_order_relaxed) &&
           mux::ticks() - u.kernel_look.load(std::memory_order_relaxed) < kBusyTicks;
}

ssize_t answer(const Receive &call)
{
    Socket &s = call.s;
    engine_leave(call.ring);
    if (state_of(s).cookie.load(std::memory_order_relaxed) == 0) [[unlikely]]
        finish_fall_back(s);
    if (call.result >= 0)
        return call.result;
    return call.result == kBehindAll ? wait_behind_all(call) : give(call.result);
}

// A wait that only the kernel can end begins with looks, for VMA_RX_POLL_INIT. False: a signal ended it.
[[gnu::noinline]] bool poll_before_sleep(Socket &s, int fd, int flags, const Wait &wait)
{
    if (!may_wait_for_input(s, flags))
        return true;
    const std::int64_t time = config::params().rx_poll_init * mux::kNanosPerLoop;
    const std::int64_t end = time < 0 ? wait.deadline_ns : std::min(wait.deadline_ns, now_ns() + time);
    for (pollfd p = {fd, POLLIN, 0}; libc::uncancelled::finds_nothing(p) && now_ns() < end; p.fd = live_fd(s, fd))
        if (is_interrupted(wait))
            return false;
    return true;
}

// `kernel(descriptor)` is the kernel's call. False: it became offloaded before we were in.
template <typename Kernel>
[[gnu::noinline]] bool receive_kernel_only(Socket &s, int fd, int flags, Wait wait, const Kernel &kernel, ssize_t &n)
{
    if (wants_offload(s)) [[unlikely]]
        offload(s, fd);
    std::optional<Call> spin; // both waits are one call, which outlives its descriptor
    if (config::params().rx_poll_init != 0 && !offloaded(s)) [[unlikely]] {
        if (!begin_call(spin, s, CallKind::kWait, fd, wait, kernel, n))
            return true;
        if (!poll_before_sleep(s, fd, flags, wait)) {
            n = give(-EINTR);
            return true;
        }
    }
    std::optional<Call> call;
    if (!begin_call(call, s, CallKind::kBlockedReceive, fd, wait, kernel, n)) [[unlikely]]
        return true;
    if (s.mode.load(std::memory_order_seq_cst) == Mode::kOffloaded)
        return false;
    const int error = take_error(s);
    const short awaited = may_wait_for_input(s, flags) ? POLLIN : 0;
    n = error != 0 ? give(-error) : by_live_fd(s, fd, awaited, wait, kernel);
    call.reset();
    if (n >= 0)
        s.operations.store(s.operations.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
}

int fail(const Socket &s, ssize_t result)
{
    stats::receive_failed(record_of(s), static_cast<int>(-result));
    return give(result);
}

[[gnu::noinline]] ssize_t wait_and_receive(Receive &call)
{
    Socket &s = call.s;
    Wait wait = begin_receive(s);
    wait.look = look_while_waiting;
    wait.look_argument = &call;
    wait.found = false;
    const auto kernel = [&call](int live) { return receive_by_kernel(call.s, live, &call.msg, call.flags); };
    const auto elsewhere = [&](int other) { return engine_leave(call.ring), kernel(other); };
    std::optional<Call> open;
    ssize_t n = 0;
    if (!begin_call(open, s, CallKind::kWait, call.fd, wait, elsewhere, n)) [[unlikely]]
        return n;
    for (const int number = call.fd;;) {
        const int result = wait_for(s, number, POLLIN, wait);
        if (wait.found)
            return answer(call);
        if (result != 0)
            return fail(s, result);
        call.fd = live_fd(s, number);
        if (const int error = take_pending_error(s, call.fd))
            return fail(s, -error);
        if (!offloaded(s) &&
            receive_kernel_only(s, number, call.flags, wait, kernel, n)) // it went back to the kernel meanwhile
            return n;
        if (look(call) || look_at_kernel(call))
            return answer(call);
    }
}

ssize_t receive_offloaded(Receive &call)
{
    Socket &s = call.s;
    const int flags = call.flags;
    if (const int error = take_pending_error(s, call.fd))
        return give(-error);
    if (look(call)) [[likely]]
        return answer(call);
    const bool waits = may_wait_for_input(s, flags);
    if (waits ? state_of(s).kernel_brings.load(std::memory_order_relaxed) : !looked_just_now(s))
        if (look_at_kernel(call))
            return answer(call);
    if (waits)
        return wait_and_receive(call);
    if (!call.sure && look_behind(call)) [[unlikely]]
        return answer(call);
    engine_leave(call.ring);
    return fail(s, -EAGAIN);
}

ssize_t receive_here(Socket &s, int fd, msghdr &msg, int flags)
{
    Receive call = {s, fd, msg, flags};
    return receive_offloaded(call);
}

} // namespace

ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags)
{
    const auto kernel = [=, &s](int live) { return receive_by_kernel(s, live, msg, flags); };
    if (only_by_kernel(s, flags) || refused_message(*msg) != 0)
        return kernel(fd);
    ssize_t n = 0;
    if (offloaded(s) || !receive_kernel_only(s, fd, flags, begin_receive(s), kernel, n))
        return receive_here(s, fd, *msg, flags);
    return n;
}

ssize_t receive_lent(Socket &s, int fd, msghdr *msg, int flags, bool force, Loan &loan, About *about)
{
    const auto kernel = [=, &s](int live) {
        if (!force)
            return receive_by_kernel(s, live, msg, flags);
        const ssize_t length = libc::real.recv(live, nullptr, 0, flags | MSG_PEEK);
        return length < 0 ? length : ssize_t{give(-EIO)};
    };
    ssize_t n = 0;
    if (only_by_kernel(s, flags))
        return kernel(fd);
    if (!offloaded(s) && receive_kernel_only(s, fd, flags, begin_receive(s), kernel, n))
        return n;
    Receive call = {s, fd, *msg, flags};
    call.loan = &loan;
    call.about = about;
    call.force = force;
    return receive_offloaded(call);
}

ssize_t glance(Socket &s, int fd, msghdr *msg, std::size_t copied, Loan &loan, About &about)
{
    Receive call = {s, fd, *msg, MSG_DONTWAIT};
    call.loan = &loan;
    call.copied = copied;
    call.about = &about;
    return look(call) ? call.result : -EAGAIN;
}

namespace {

// Of recvfrom(): where the name shall go is found to be no place when a datagram has been taken, as in the kernel.
int refused_place(const sockaddr *from, const socklen_t *from_len)
{
    if (from == nullptr)
        return 0;
    if (is_nowhere(from_len) || !libc::can_update(from_len, sizeof *from_len)) [[unlikely]]
        return -EFAULT;
    if (static_cast<int>(*from_len) < 0)
        return -EINVAL;
    return *from_len != 0 && is_nowhere(from) ? -EFAULT : 0;
}

ssize_t receive_tracked(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    const auto kernel = [=, &s](int live) {
        return by_os_received(s, libc::real.recvfrom(live, buf, len, flags, from, from_len), flags);
    };
    ssize_t n = 0;
    if (!offloaded(s) && receive_kernel_only(s, fd, flags, begin_receive(s), kernel, n))
        return n;
    iovec part = {buf, std::min(len, kMostBytes)}; // as the kernel cuts it, which refuses longer parts of a message
    if (leaves_user_space(part.iov_base, part.iov_len)) [[unlikely]]
        return kernel(fd);
    msghdr msg = {};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    const int wrong = refused_place(from, from_len);
    msg.msg_name = wrong == 0 ? from : nullptr;
    msg.msg_namelen = msg.msg_name != nullptr ? *from_len : 0;
    n = receive_here(s, fd, msg, flags);
    if (n < 0 || from == nullptr)
        return n;
    if (wrong != 0) [[unlikely]]
        return fail(s, wrong);
    *from_len = msg.msg_namelen;
    return n;
}

} // namespace

ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len)
{
    if (only_by_kernel(s, flags))
        return by_os_received(s, libc::real.recvfrom(fd, buf, len, flags, from, from_len), flags);
    return libc::keep_errno([=, &s] { return receive_tracked(s, fd, buf, len, flags, from, from_len); });
}

bool receive_messages_kernel_only(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout,
                                  int &n)
{
    const auto kernel = [=, &s](int live) {
        const int got = libc::real.recvmmsg(live, messages, count, flags, timeout);
        for (int i = 0; i < got && offloaded(s); ++i) // it became so meanwhile
            learn_overflows(s, &messages[i].msg_hdr);
        return static_cast<ssize_t>(by_os_received(s, messages, got, flags));
    };
    ssize_t result = 0;
    // Before its losses: it may go back to the kernel meanwhile, with losses that each message has to tell.
    if ((flags & kKernelOnly) == 0 && offloaded(s))
        return false;
    if ((flags & kKernelOnly) == 0 && has_told_losses(s, fd)) [[unlikely]]
        return false; // each message has to be looked at
    if (only_by_kernel(s, flags))
        result = kernel(fd);
    else if (!receive_kernel_only(s, fd, flags, begin_receive(s), kernel, result))
        return false;
    n = static_cast<int>(result);
    return true;
}

bool only_kernel_brings(const Socket &s)
{
    const State &u = state_of(s);
    // Who has gone back to the kernel with losses may want them told since, of which nobody has told the library.
    const bool tells_losses = u.tells_losses || (!offloaded(s) && u.losses.all() != 0);
    return !tells_losses && u.kernel_brings.load(std::memory_order_relaxed) && !has_mixed_senders(u) &&
           u.queue.empty() && !has_shared(s);
}

int bytes_readable(Socket &s, int fd, int *count)
{
    if (offloaded(s)) {
        engine_look(ring_of(s));
        const LockGuard guard(s.rx_lock);
        Queue &queue = state_of(s).queue;
        const SharedLeftovers *const shared = s.unread.load(std::memory_order_relaxed);
        if (SharedDatagram next; shared != nullptr && next.look(*shared)) {
            *count = static_cast<int>(next.head.length);
            return 0;
        }
        if (Queued *const first = queue.front(); first != nullptr && !queue.is_read_to_mark()) {
            *count = static_cast<int>(first->length);
            return 0;
        }
    }
    return libc::real.ioctl(fd, FIONREAD, count);
}

} // namespace vma::sock::udp
