// SPDX-License-Identifier: BSD-2-Clause
// Receiving datagrams that lie where other processes may read them too (share.cpp), before those that the kernel has:
// whoever comes first has them. With SO_PEEK_OFF a peek goes from one to the next, and on to the kernel's, as
// udp_recvmsg() of the kernel does.
#include <errno.h>
#include <limits.h>

#include <algorithm>
#include <utility>

#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/sharing/peek_offset.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/udp/receiving.hpp"

namespace vma::sock::udp {

namespace {

bool has_place_for(const Receive &call, std::size_t length)
{
    return are_somewhere(call.msg.msg_iov, call.msg.msg_iovlen) &&
           can_overwrite(call.msg.msg_iov, call.msg.msg_iovlen, length);
}

int to_offset(std::uint64_t place)
{
    return static_cast<int>(std::min<std::uint64_t>(place, INT_MAX));
}

// How far the kernel's datagrams reach. Empty ones among them count as peeked at from then on.
std::uint64_t peekable_of_kernel(int fd)
{
    constexpr int kFlags = MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT;
    std::uint64_t bytes = 0;
    set_kernel_peek_offset(fd, 0);
    for (ssize_t n = 0; n >= 0; n = libc::real.syscall(SYS_recvfrom, fd, nullptr, 0, kFlags, nullptr, nullptr))
        bytes += static_cast<std::uint64_t>(n);
    return bytes;
}

// From `skip` on. Where the kernel says MSG_TRUNC of one that was cut on either side, so do we.
bool peek_into(Receive &call, const SharedLeftovers &u, const SharedDatagram &one, std::size_t skip)
{
    const std::size_t length = one.head.length - skip;
    if (!has_place_for(call, length)) {
        call.result = -EFAULT;
        return true;
    }
    const std::size_t room = total_length(call.msg);
    const bool whole = (call.flags & MSG_TRUNC) != 0;
    const iovec bytes = {const_cast<std::uint8_t *>(one.bytes) + skip, length};
    scatter(call.msg, &bytes, 1);
    one.note_peek();
    finish(call, one.head.about, length);
    if (skip != 0 && room <= length)
        call.msg.msg_flags |= MSG_TRUNC;
    if (whole && call.result >= 0)
        call.result = one.head.length;
    peek_goes_on(u, whole ? one.head.length : std::min(room, length));
    return true;
}

// At a place in its own datagrams.
bool peek_into_kernel(Receive &call, const SharedLeftovers &u, int fd, std::uint64_t place)
{
    set_kernel_peek_offset(fd, to_offset(place));
    if (take_from_kernel(call)) {
        peek_goes_on(u, static_cast<std::uint64_t>(std::max<ssize_t>(call.result, 0)));
        return true;
    }
    call.s.kernel_news.store(true, std::memory_order_relaxed); // there may be some in front of the place
    return false;
}

// True in any case: the kernel's next one may be the next, or the call has to wait for one (kBehindAll).
bool peek_at_place(Receive &call, const SharedLeftovers &u)
{
    const int fd = live_fd(call.s, call.fd);
    std::uint64_t place = peek_place(u);
    std::uint64_t reach = 0; // of the kernel's
    bool kernel_passed = false;
    SharedDatagram one;
    for (bool found = one.look(u); found; found = one.next()) {
        if (one.head.about.after_kernel && !std::exchange(kernel_passed, true)) {
            if (peek_into_kernel(call, u, fd, place))
                return true;
            reach = place != 0 ? std::min(place, peekable_of_kernel(fd)) : 0;
            place -= reach;
        }
        if (place < one.head.length || (place == 0 && !one.is_peeked))
            return peek_into(call, u, one, static_cast<std::size_t>(place));
        place -= one.head.length;
    }
    if (kernel_passed)
        set_kernel_peek_offset(fd, to_offset(place + reach)); // where the call would wait
    if (kernel_passed || !peek_into_kernel(call, u, fd, place))
        call.result = kBehindAll;
    return true;
}

bool is_peek_at_place(const Receive &call, const SharedLeftovers &u)
{
    return (call.flags & MSG_PEEK) != 0 && unread_left(u) != 0 && kernel_peek_offset(live_fd(call.s, call.fd)) >= 0;
}

// A datagram was read. With the last one the place is the kernel's.
void go_back(const Receive &call, const SharedLeftovers &u)
{
    const int fd = live_fd(call.s, call.fd);
    peek_goes_back(u, static_cast<std::uint64_t>(std::max<ssize_t>(call.result, 0)));
    if (unread_left(u) == 0 && kernel_peek_offset(fd) >= 0)
        set_kernel_peek_offset(fd, to_offset(peek_place(u)));
}

} // namespace

bool take_shared(Receive &call)
{
    const SharedLeftovers &u = *call.s.unread.load(std::memory_order_relaxed);
    const bool peeks = (call.flags & MSG_PEEK) != 0;
    if (is_peek_at_place(call, u))
        return peek_at_place(call, u);
    for (SharedDatagram first; first.look(u); first = {}) {
        if (first.head.about.after_kernel && take_from_kernel(call)) {
            if (!peeks)
                go_back(call, u);
            return true;
        }
        if (!has_place_for(call, first.head.length)) {
            call.result = -EFAULT;
            return peeks || first.take(u);
        }
        const iovec bytes = {const_cast<std::uint8_t *>(first.bytes), first.head.length};
        scatter(call.msg, &bytes, 1);
        if (peeks)
            first.note_peek();
        else if (!first.take(u))
            continue;
        finish(call, first.head.about, first.head.length);
        if (!peeks)
            go_back(call, u);
        return true;
    }
    return false;
}

// By the kernel itself, which has the place by now; nobody sends by the endpoint any more.
ssize_t wait_behind_all(const Receive &call)
{
    ssize_t n = 0;
    const std::size_t controls = call.msg.msg_controllen;
    {
        const Call open(call.s, CallKind::kBlockedReceive);
        n = libc::real.recvmsg(live_fd(call.s, call.fd), &call.msg, call.flags);
    }
    const LockGuard guard(call.s.rx_lock);
    const SharedLeftovers *const u = call.s.unread.load(std::memory_order_relaxed);
    if (n >= 0 && state_of(call.s).tells_losses) {
        learn_overflows(call.s, &call.msg);
        add_overflows(call.s, &call.msg, controls);
    }
    if (n > 0 && u != nullptr)
        peek_goes_on(*u, static_cast<std::uint64_t>(n));
    return n;
}

} // namespace vma::sock::udp
