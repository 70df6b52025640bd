// SPDX-License-Identifier: BSD-2-Clause
// The kernel's part of a receiving call on a UDP socket that takes datagrams by both ways.
#include <errno.h>
#include <linux/sock_diag.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/udp/receiving.hpp"

namespace vma::sock::udp {

namespace {

void note_nothing(Socket &s, State &u, int fd)
{
    if (u.tells_losses && u.kernel_brings.load(std::memory_order_relaxed)) [[unlikely]]
        learn_kernel_losses(u, fd);
    u.kernel_brings.store(false, std::memory_order_relaxed);
    u.kernel_first.store(false, std::memory_order_relaxed);
    s.kernel_news.store(false, std::memory_order_relaxed);
    u.kernel_look.store(mux::ticks(), std::memory_order_relaxed);
}

} // namespace

void learn_kernel_losses(State &u, int fd)
{
    std::uint32_t info[SK_MEMINFO_VARS] = {};
    socklen_t size = sizeof info;
    if (libc::real.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) == 0)
        u.losses.learn(info[SK_MEMINFO_DROPS]);
}

bool only_by_kernel(const Socket &s, int flags)
{
    if ((flags & MSG_ERRQUEUE) != 0)
        state_of(s).kernel_error.note(); // what stands next in that queue is the socket's error then
    return (flags & kKernelOnly) != 0 || s.mode.load(std::memory_order_acquire) == Mode::kKernel;
}

bool kernel_has_one(Receive &call)
{
    const int fd = live_fd(call.s, call.fd);
    const ssize_t n = libc::real.syscall(SYS_recvfrom, fd, nullptr, 0, MSG_PEEK | MSG_DONTWAIT, nullptr, nullptr);
    if (n < 0 && errno == EAGAIN)
        note_nothing(call.s, state_of(call.s), fd);
    else if (n < 0)
        call.result = -errno;
    return n >= 0;
}

bool take_from_kernel(Receive &call)
{
    State &u = state_of(call.s);
    if (call.force) {
        if (kernel_has_one(call))
            call.result = -EIO;
        return call.result < 0;
    }
    const int fd = live_fd(call.s, call.fd);
    const std::size_t controls = call.msg.msg_controllen;
    const ssize_t n = libc::uncancelled::recvmsg(fd, &call.msg, call.flags | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        note_nothing(call.s, u, fd);
        return false;
    }
    call.result = n < 0 ? -errno : n;
    by_os_received(call.s, n, call.flags);
    if (n >= 0) {
        u.kernel_brings.store(true, std::memory_order_relaxed);
        if (u.tells_losses) {
            learn_overflows(call.s, &call.msg);
            add_overflows(call.s, &call.msg, controls);
        }
    }
    return true;
}

namespace {

// The socket became offloaded while the call was under way.
[[gnu::cold]] void tell_losses_beside_others(Socket &s, msghdr *msg, std::size_t controls)
{
    if (!state_of(s).tells_losses)
        return;
    const LockGuard guard(s.rx_lock);
    learn_overflows(s, msg);
    add_overflows(s, msg, controls);
}

} // namespace

ssize_t receive_by_kernel(Socket &s, int fd, msghdr *msg, int flags)
{
    const std::size_t controls = msg->msg_controllen;
    const ssize_t length = by_os_received(s, libc::real.recvmsg(fd, msg, flags), flags);
    if (length < 0 || (flags & MSG_ERRQUEUE) != 0)
        return length;
    if (offloaded(s)) [[unlikely]]
        tell_losses_beside_others(s, msg, controls);
    else if (has_told_losses(s, fd)) [[unlikely]]
        add_overflows(s, msg, controls);
    return length;
}

} // namespace vma::sock::udp
