// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/extra/receive.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::extra {

namespace {

using sock::give;

ssize_t receive_datagram(sock::Socket &s, int fd, msghdr &message, int flags, bool force, Arrival &arrival)
{
    std::atomic<bool> &lends = sock::udp::state_of(s).lends;
    if (!lends.load(std::memory_order_relaxed))
        lends.store(true, std::memory_order_relaxed);
    const ssize_t n = sock::udp::receive_lent(s, fd, &message, flags, force, arrival.loans[0], &arrival.about);
    arrival.count = n >= 0 && arrival.loans[0].lender != nullptr ? 1 : 0;
    return n;
}

// What can be read of the ring now.
ssize_t borrow(sock::Stream &s, Arrival &arrival)
{
    if (s.guest && s.endpoint != nullptr) { // who could change what is lent: it comes by the kernel, and is copied
        sock::pin_to_kernel(s, "zero-copy receive of what another user sends");
        return 0;
    }
    const sock::LockGuard guard(s.rx_lock);
    std::size_t bytes = 0;
    sock::settle(s);
    while (arrival.count < arrival.most) {
        const sock::Loan loan = sock::lend(s, arrival.most_bytes);
        if (loan.lender == nullptr)
            break;
        bytes += loan.length();
        arrival.loans[arrival.count++] = loan;
    }
    return static_cast<ssize_t>(bytes);
}

// By whoever asks for the callback, too: nothing here may ask for it again.
ssize_t copy(sock::Socket &s, int fd, msghdr &message, int flags, bool force)
{
    if (!force)
        return sock::receive_unscreened(s, fd, &message, flags);
    char byte;
    iovec part = {&byte, 1};
    msghdr look = {};
    look.msg_iov = &part;
    look.msg_iovlen = 1;
    const ssize_t n = sock::receive_unscreened(s, fd, &look, flags | MSG_PEEK);
    return n > 0 ? give(-EIO) : n;
}

ssize_t receive_stream(sock::Stream &s, int fd, msghdr &message, int flags, bool force, Arrival &arrival)
{
    const bool blocking = sock::may_wait_for_input(s, flags);
    sock::Wait wait;
    std::optional<sock::Call> call;
    for (;;) {
        if (!sock::offloaded(s))
            return copy(s, sock::live_fd(s, fd), message, flags, force);
        ssize_t n = borrow(s, arrival);
        if (n == 0 && sock::engine_poll(sock::ring_of(s)) != 0)
            n = borrow(s, arrival);
        if (n > 0) {
            sock::engine_leave(sock::ring_of(s));
            name_peer(s, message);
            return n;
        }
        n = copy(s, sock::live_fd(s, fd), message, flags | MSG_DONTWAIT, force);
        if (n >= 0 || errno != EAGAIN || !blocking)
            return n;
        if (!call) {
            wait = sock::begin_receive(s);
            call.emplace(s, sock::CallKind::kWait);
        }
        if (const int result = sock::wait_for(s, fd, POLLIN, wait))
            return give(result);
    }
}

} // namespace

void name_peer(const sock::Socket &s, msghdr &message)
{
    sockaddr_in6 whole = s.addresses.peer;
    sockaddr_in brief = {};
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&whole.sin6_addr);
    brief.sin_family = AF_INET;
    brief.sin_port = whole.sin6_port;
    memcpy(&brief.sin_addr, &whole.sin6_addr.s6_addr[12], sizeof brief.sin_addr);
    const auto size = static_cast<socklen_t>(v4 ? sizeof brief : sizeof whole);
    if (message.msg_name != nullptr)
        memcpy(message.msg_name, v4 ? static_cast<void *>(&brief) : &whole, std::min(message.msg_namelen, size));
    message.msg_namelen = message.msg_name != nullptr ? size : 0;
}

ssize_t receive(sock::Socket &s, int fd, msghdr &message, int flags, bool force, Arrival &arrival)
{
    return sock::protocol(s).messages ? receive_datagram(s, fd, message, flags, force, arrival)
                                      : receive_stream(sock::as_stream(s), fd, message, flags, force, arrival);
}

ssize_t glance(sock::Socket &s, int fd, msghdr &message, Arrival &arrival)
{
    if (!sock::offloaded(s))
        return -EAGAIN;
    if (sock::protocol(s).messages) {
        const ssize_t n = sock::udp::glance(s, fd, &message, arrival.copied, arrival.loans[0], arrival.about);
        arrival.count = n >= 0 && arrival.loans[0].lender != nullptr ? 1 : 0;
        return n;
    }
    sock::Stream &stream = sock::as_stream(s);
    if (!sock::transport(stream).spans)
        return -EAGAIN;
    ssize_t n = borrow(stream, arrival);
    if (n == 0 && sock::engine_poll(sock::ring_of(s)) != 0)
        n = borrow(stream, arrival);
    return n != 0 ? n : -EAGAIN;
}

} // namespace vma::extra
