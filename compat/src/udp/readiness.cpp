// SPDX-License-Identifier: BSD-2-Clause
// What poll() would say of a UDP socket that takes datagrams by both ways.
#include <poll.h>

#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::uint32_t kIn = POLLIN | POLLRDNORM;
constexpr std::uint32_t kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
constexpr std::uint32_t kAlways = POLLHUP | POLLERR | POLLNVAL;

std::uint32_t known(const Socket &s, const State &u)
{
    std::uint32_t events = u.queue.empty() && !has_shared(s) ? 0 : kIn;
    if (!u.ask_kernel_for_room.load(std::memory_order_relaxed) && !is_held(s)) [[likely]]
        events |= kOut; // a datagram always finds room, or is lost
    if (s.pending_error.load(std::memory_order_relaxed) != 0) [[unlikely]]
        events |= POLLERR;
    if (s.receive_shut.load(std::memory_order_relaxed)) [[unlikely]]
        events |= kIn | POLLRDHUP;
    return events;
}

} // namespace

std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest)
{
    const State &u = state_of(s);
    std::uint32_t events = known(s, u);
    if (s.kernel_news.load(std::memory_order_relaxed))
        events |= kIn;
    if (KernelError::may_be_told(u.kernel_error.known())) [[unlikely]]
        events |= POLLERR; // perhaps: ready_events() asks
    if ((events & POLLERR) != 0 && s.pending_error.load(std::memory_order_relaxed) != 0) [[unlikely]]
        events |= kIn | kOut; // no call has to wait
    return events & (interest | kAlways);
}

std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest)
{
    State &u = state_of(s);
    std::uint32_t events = known(s, u);
    const KernelError::Known error = u.kernel_error.known();
    const bool news = s.kernel_news.load(std::memory_order_acquire);
    const bool failed = KernelError::may_be_told(error);
    std::uint32_t ask = news ? interest & POLLPRI : 0; // comes with an error (SO_SELECT_ERR_QUEUE)
    if ((events & kIn) == 0 && news)
        ask |= interest & kIn;
    if ((events & kOut) == 0 && !is_held(s))
        ask |= interest & kOut;
    const bool told = (events & interest & kIn) != 0; // what else the kernel has is told when that has been read
    if (ask != 0 || failed || (news && !told)) {
        pollfd p = {fd, static_cast<short>(ask), 0};
        libc::uncancelled::poll_now(&p, 1);
        const auto kernel = static_cast<std::uint32_t>(static_cast<unsigned short>(p.revents));
        events |= kernel;
        if ((kernel & kOut) != 0)
            u.ask_kernel_for_room.store(false, std::memory_order_relaxed);
        if (news && (ask & kIn) != 0 && (kernel & (kIn | kAlways)) == 0)
            s.kernel_news.store(false, std::memory_order_relaxed);
        if ((kernel & POLLERR) == 0)
            u.kernel_error.is_over(error);
        else if (!failed)
            u.kernel_error.note();
    }
    return events & (interest | kAlways);
}

void note_kernel_events(Socket &s, std::uint32_t events)
{
    if ((events & POLLERR) != 0)
        state_of(s).kernel_error.note();
}

bool look_for_error(Socket &s, int fd)
{
    const libc::KeepErrno keep;
    pollfd p = {live_fd(s, fd), 0, 0};
    if (libc::uncancelled::poll_now(&p, 1) <= 0 || (p.revents & POLLERR) == 0)
        return false;
    sock::note_kernel_events(s, POLLERR);
    notify(s, kKernelTells);
    return true;
}

int take_kernel_error(Socket &s, int fd)
{
    State &u = state_of(s);
    const KernelError::Known known = u.kernel_error.known();
    const int error = libc::read_option(live_fd(s, fd), SOL_SOCKET, SO_ERROR, 0);
    u.kernel_error.is_taken(known);
    return error;
}

} // namespace vma::sock::udp
