// SPDX-License-Identifier: BSD-2-Clause
// Sending calls on a UDP socket: to a receiver on this host by its process's endpoint, to everybody else by the kernel.
#include <errno.h>
#include <limits.h>
#include <poll.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <new>
#include <utility>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/arguments.hpp"
#include "compat/src/base/clock.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/transport/pacing.hpp"
#include "compat/src/udp/backlog.hpp"
#include "compat/src/udp/shared.hpp"
#include "compat/src/udp/shown.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr ssize_t kAsItIs = -1002; // by the kernel, with what comes with the message; it is to a group
constexpr int kSimple = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM;
constexpr std::uint64_t kPlace = FI_INJECT | FI_REMOTE_CQ_DATA | FI_VMA_TELL_DROP;
constexpr std::uint64_t kRoomTicks = 6000; // 2 us
constexpr unsigned kPauses = 32;
constexpr unsigned kMostLooks = 16;       // others may keep the kernel busy for ever
constexpr std::size_t kMostBytes = 65507; // of IPv4; the few more of IPv6 go by the kernel

// Once for each connect(), and errno stays: the datagram has gone.
[[gnu::cold]] SentPlace ask_peer_place(State &u, int fd)
{
    const libc::KeepErrno keep;
    sockaddr_in6 peer = {};
    const SentPlace place = read_address(fd, Side::kPeer, peer) ? sent_place(&peer, sizeof peer) : kUnnamed;
    u.peer_place.store(place, std::memory_order_relaxed);
    return place;
}

// Of a destination, nullptr or of no length that of a connected socket.
SentPlace sent_place_of(State &u, int fd, const void *to, std::size_t length)
{
    if (to != nullptr && length != 0)
        return sent_place(to, length);
    const SentPlace known = u.peer_place.load(std::memory_order_relaxed);
    return known != kNoPlace ? known : ask_peer_place(u, fd);
}

// Not before it was sent: what another thread sends by an endpoint in between must not count as the one that went after
// it.
void note_sent(State &u, int fd, const void *to, std::size_t length, ssize_t n)
{
    u.kernel_sends.fetch_add(1, std::memory_order_relaxed);
    if (n >= 0)
        note_kernel_sent(sent_place_of(u, fd, to, length));
}

// That it was refused may be known already, as by this host: a poll that comes now is to tell, and doesn't ask the
// kernel for its sake.
void look_at_answer(Socket &s, int fd)
{
    const State &u = state_of(s);
    if (u.hears_errors.load(std::memory_order_relaxed) && (offloaded(s) || u.listed) && !sandboxed())
        look_for_error(s, fd);
}

ssize_t by_kernel(Socket &s, int fd, ssize_t n)
{
    by_os_sent(s, n);
    if (n >= 0) [[likely]] {
        s.operations.store(s.operations.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        look_at_answer(s, fd);
    } else if (errno == EAGAIN) {
        state_of(s).ask_kernel_for_room.store(true, std::memory_order_relaxed);
    }
    return n;
}

// What can't be read is the kernel's to refuse.
bool is_somewhere(const Message &m)
{
    const bool bytes =
        m.parts == nullptr || m.length > kMostBytes || (are_somewhere(m.parts, m.count) && can_read(m.parts, m.count));
    return bytes &&
           (m.to == nullptr ||
            (!is_nowhere(m.to) && libc::can_read(m.to, std::min<std::size_t>(m.to_length, sizeof(sockaddr_in6)))));
}

bool may_be_accelerated(const Socket &s, const State &u, const Message &m)
{
    return s.operations.load(std::memory_order_relaxed) >= config::params().lift_after &&
           s.mode.load(std::memory_order_relaxed) != Mode::kKernel &&
           !u.sends_by_kernel.load(std::memory_order_relaxed) && m.length <= kMostBytes && m.parts != nullptr &&
           (m.flags & ~kSimple) == 0 && !u.corked.load(std::memory_order_relaxed) && is_somewhere(m);
}

// The receiver has no room: as in the kernel, nobody is told unless he asked for it.
ssize_t lose(const Socket &s, Receiver &receiver, const Message &m)
{
    ++receiver.lost;
    const bool waits = may_wait_for_room(s, m.flags);
    return config::params().tx_nonblocked_eagains && !waits ? -EAGAIN : static_cast<ssize_t>(m.length);
}

// A receiver that reads makes room in less time than the kernel takes to send, and then all stays in the caches. One
// that didn't is not waited for again.
[[gnu::noinline]] ssize_t place_behind(Receiver &receiver, const fi_msg &msg)
{
    if (!receiver.stands_still) {
        const std::uint64_t start = mux::ticks();
        while (mux::ticks() - start < kRoomTicks) {
            for (unsigned i = 0; i < kPauses; ++i)
                cpu_relax();
            const ssize_t result = fi_sendmsg(engine_datagrams().ep, &msg, kPlace | FI_VMA_TRY);
            if (result != -FI_EAGAIN)
                return result;
        }
        receiver.stands_still = true;
    }
    return fi_sendmsg(engine_datagrams().ep, &msg, kPlace);
}

// What was sent before by the same socket may still be with the kernel.
bool is_after_kernel(const Socket &s, const Route &route)
{
    const State &u = state_of(s);
    return route.kernel_sends != u.kernel_sends.load(std::memory_order_relaxed);
}

// It went by the kernel before: nothing overtakes what that has taken and not delivered.
[[gnu::noinline]] bool stays_with_kernel(Route &route)
{
    if (route.looks++ < kMostLooks && kernel_has_backlog())
        return true;
    route.looks = 0;
    route.after_kernel = false;
    return false;
}

ssize_t put_own(const Socket &s, const Route &route, const Receiver &receiver, const Message &m)
{
    About about;
    read_header(receiver.data, route.header, route.header_length, about);
    about.after_kernel = is_after_kernel(s, route);
    const bool taken = take_own(receiver.data, about, m.parts, m.count, m.length);
    return taken ? static_cast<ssize_t>(m.length) : kByKernel;
}

// Another socket of this process has sent something there by the kernel: this one's go after it. Whether the kernel has
// it still is looked for once in a tick, as others may send all the time.
[[gnu::noinline]] void follow_others(const State &u, Route &route)
{
    route.kernel_sent = kernel_sent(route.sent_place);
    route.kernel_sends = u.kernel_sends.load(std::memory_order_relaxed) - 1;
    if (route.way == Way::kReceiver && std::exchange(route.followed_tick, current_tick()) != current_tick())
        route.after_kernel = true;
}

[[gnu::noinline]] Route *refresh(Socket &s, int fd, Route *route, const Destination &to, ssize_t &error)
{
    State &u = state_of(s);
    if (route == nullptr) {
        route = u.routes.add(to);
        if (route == nullptr)
            return nullptr;
        route->kernel_sends = u.kernel_sends.load(std::memory_order_relaxed) - 1;
        route->sent_place = sent_place_of(u, fd, to.words, to.is_connected() ? 0 : sizeof to.words);
        adopt_pacing_rate(s, fd);
        u.used_memory.store(true, std::memory_order_relaxed);
    }
    error = resolve(s, fd, *route);
    if (route->way != Way::kKernel && route->way != Way::kUnknown)
        tell_sender(s, fd, route->way == Way::kPort, route->way == Way::kPort ? route->port->name : "local");
    return route;
}

// More parts than an endpoint takes become one. False: no memory.
bool make_one(State &u, Message &m, iovec &one)
{
    if (!u.bounce)
        u.bounce.reset(new (std::nothrow) std::uint8_t[kMostBytes]);
    if (!u.bounce)
        return false;
    gather(u.bounce.get(), m.parts, m.count);
    one = {u.bounce.get(), m.length};
    m.parts = &one;
    m.count = 1;
    return true;
}

// To a group for which the kernel is the only way, on a socket that reaches others by endpoints.
ssize_t loop_as_asked(Socket &s, int fd, const Message &m)
{
    State &u = state_of(s);
    const ssize_t n = send_to_group_by_kernel(u, fd, m, u.loops[place_of(u)]);
    note_sent(u, fd, m.to, m.to_length, n);
    if (n >= 0) {
        by_os_sent(s, n);
        look_at_answer(s, fd);
    }
    return n;
}

ssize_t send_by_route(Socket &s, int fd, Route &route, const Message &m)
{
    State &u = state_of(s);
    if (route.way == Way::kGroup)
        return put_to_group(s, fd, route, m);
    if (route.way == Way::kPort)
        return put_to_port(u, fd, route, m);
    const std::uint32_t kernel_sends = u.kernel_sends.load(std::memory_order_relaxed); // others may add to it
    const ssize_t n = route.way == Way::kReceiver ? put(s, route, route.receiver, m) : kByKernel;
    if (n >= 0 && route.receiver.lost == 0) [[likely]] {
        route.kernel_sends = kernel_sends;
        route.idle = 0;
    }
    return n;
}

// What only the kernel can send.
ssize_t send_unusual(Socket &s, int fd, const Message &m)
{
    State &u = state_of(s);
    Destination to;
    u.corked.store((m.flags & MSG_MORE) != 0, std::memory_order_relaxed);
    if (!is_somewhere(m) || !u.used_memory.load(std::memory_order_relaxed) || !to.assign(m.to, m.to_length))
        return kByKernel;
    const LockGuard guard(s.tx_lock);
    if (Route *const route = u.routes.find(to))
        go_by_kernel(*route);
    if (!u.has_wire_groups || !is_group(fd, to))
        return kByKernel;
    return m.parts != nullptr ? loop_as_asked(s, fd, m) : kAsItIs;
}

// kByKernel: the kernel is to send it. kNotDue: it is too early.
ssize_t send_accelerated(Socket &s, int fd, Message m)
{
    State &u = state_of(s);
    Destination to;
    iovec gathered;
    if (!may_be_accelerated(s, u, m))
        return send_unusual(s, fd, m);
    if (!to.assign(m.to, m.to_length))
        return kByKernel;
    const bool limited = s.pacing.limited.load(std::memory_order_relaxed);
    if (limited && !offload_to_pace(s, fd)) [[unlikely]]
        return kByKernel;
    ssize_t n = 0;
    const LockGuard guard(s.tx_lock);
    if (m.count > kMostParts && !make_one(u, m, gathered)) [[unlikely]]
        return kByKernel;
    Route *route = u.routes.find(to);
    if (route == nullptr || is_stale(*route)) [[unlikely]]
        route = refresh(s, fd, route, to, n);
    if (route == nullptr || n != 0)
        return route == nullptr ? kByKernel : n;
    if (limited && route->way != Way::kKernel && !may_go(s, m.length)) [[unlikely]]
        return kNotDue;
    if (route->kernel_sent != kernel_sent(route->sent_place)) [[unlikely]]
        follow_others(u, *route);
    if (route->way == Way::kReceiver && route->after_kernel && stays_with_kernel(*route)) [[unlikely]]
        return kByKernel;
    n = send_by_route(s, fd, *route, m);
    if (n >= 0) [[likely]]
        stats::sent(record_of(s), m.length, [&](const stats::Slot &record) { show_sent(record, *route, m); });
    if (route->way == Way::kGroup)
        return n;
    if (n == kByKernel)
        go_by_kernel(*route);
    if (n == kByKernel && u.has_wire_groups && is_group(fd, to)) [[unlikely]]
        return loop_as_asked(s, fd, m);
    if (n == kByKernel && route->way == Way::kReceiver)
        route->way = Way::kUnknown; // the process is gone: the kernel says how
    return n;
}

// A call that may wait, waits for its turn.
[[gnu::noinline]] ssize_t send_when_due(Socket &s, int fd, const Message &m)
{
    if (!may_wait_for_room(s, m.flags))
        return -EAGAIN;
    Wait wait = begin_send(s);
    const Call call(s, CallKind::kWait);
    for (;;) {
        if (const int error = wait_for(s, fd, POLLOUT, wait))
            return error;
        if (const int untold = take_pending_error(s, fd))
            return -untold;
        const ssize_t n = send_accelerated(s, live_fd(s, fd), m);
        if (n != kNotDue)
            return n;
    }
}

// The kernel's socket is to loop as the program has said while it sends.
template <typename Kernel> ssize_t send_looping(Socket &s, int fd, Kernel kernel)
{
    State &u = state_of(s);
    const LockGuard guard(s.tx_lock);
    loop_in_kernel(u, fd, u.loops[place_of(u)]);
    return kernel();
}

[[gnu::cold]] int fail(const Socket &s, ssize_t result)
{
    stats::send_failed(record_of(s), static_cast<int>(-result));
    return give(result);
}

template <typename Kernel> ssize_t send_by(Socket &s, int fd, const Message &m, Kernel kernel)
{
    const int untold = take_pending_error(s, fd);
    ssize_t n = untold != 0 ? -untold : send_accelerated(s, fd, m);
    if (n == kNotDue) [[unlikely]]
        n = send_when_due(s, fd, m);
    if (n != kByKernel && n != kAsItIs)
        return n >= 0 ? n : fail(s, n);
    const ssize_t sent = n == kByKernel ? kernel() : send_looping(s, fd, kernel);
    note_sent(state_of(s), fd, m.to, m.to_length, sent);
    return by_kernel(s, fd, sent);
}

} // namespace

ssize_t put(const Socket &s, Route &route, Receiver &receiver, const Message &m)
{
    if (receiver.own)
        return put_own(s, route, receiver, m);
    std::memcpy(route.header + offsetof(HeaderStart, lost), &receiver.lost, sizeof receiver.lost);
    iovec parts[1 + kMostParts];
    parts[0] = {route.header, route.header_length};
    for (std::size_t i = 0; i < m.count; ++i)
        parts[1 + i] = m.parts[i];
    fi_msg msg = {};
    msg.msg_iov = parts;
    msg.iov_count = 1 + m.count;
    msg.addr = receiver.endpoint;
    msg.data = receiver.data | (is_after_kernel(s, route) ? kToAfterKernel : 0);
    ssize_t result = fi_sendmsg(engine_datagrams().ep, &msg, kPlace | FI_VMA_TRY);
    if (result == -FI_EAGAIN) [[unlikely]]
        result = place_behind(receiver, msg);
    else
        receiver.stands_still = false;
    if (result == 0) [[likely]] {
        receiver.lost = 0;
        return static_cast<ssize_t>(m.length);
    }
    return result == -FI_EAGAIN ? lose(s, receiver, m) : kByKernel;
}

bool only_kernel_sends(const Socket &s)
{
    const State &u = state_of(s);
    return (s.operations.load(std::memory_order_relaxed) < config::params().lift_after ||
            u.sends_by_kernel.load(std::memory_order_relaxed) ||
            s.mode.load(std::memory_order_relaxed) == Mode::kKernel) &&
           !u.used_memory.load(std::memory_order_relaxed);
}

int send_messages_kernel_only(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags)
{
    const int n = by_os_sent(s, messages, libc::real.sendmmsg(fd, messages, count, flags));
    for (int i = 0; i < n; ++i)
        note_sent(state_of(s), fd, messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen, 0);
    if (n > 0) {
        s.operations.fetch_add(static_cast<std::uint32_t>(n), std::memory_order_relaxed);
        look_at_answer(s, fd);
    }
    return n;
}

ssize_t send(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len)
{
    const iovec part = {const_cast<void *>(buf), len};
    return libc::keep_errno([&] {
        return send_by(s, fd, {&part, 1, len, to, to_len, flags},
                       [=] { return libc::real.sendto(fd, buf, len, flags, to, to_len); });
    });
}

ssize_t send_msg(Socket &s, int fd, const msghdr *msg, int flags)
{
    const auto kernel = [=] { return libc::real.sendmsg(fd, msg, flags); };
    if (msg->msg_controllen != 0 || refused_message(*msg) != 0) {
        const Message only_kernel = {nullptr,          0,    0, static_cast<const sockaddr *>(msg->msg_name),
                                     msg->msg_namelen, flags};
        return send_by(s, fd, only_kernel, kernel);
    }
    std::size_t length = 0;
    for (std::size_t i = 0; i < msg->msg_iovlen; ++i)
        if (__builtin_add_overflow(length, msg->msg_iov[i].iov_len, &length))
            return kernel(); // EMSGSIZE
    return send_by(
        s, fd,
        {msg->msg_iov, msg->msg_iovlen, length, static_cast<const sockaddr *>(msg->msg_name), msg->msg_namelen, flags},
        kernel);
}

} // namespace vma::sock::udp
