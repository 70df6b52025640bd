// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/sharing/peek_offset.hpp"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <algorithm>

#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

int set_peek_offset(Socket &s, int fd, const void *value, socklen_t len)
{
    if (offloaded(s))
        share_leftovers(s, false); // the kernel's option is the socket's, whoever holds it
    const LockGuard guard(s.rx_lock);
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    int offset = -1;
    if (u == nullptr || len < sizeof offset || !libc::can_read(value, sizeof offset))
        return libc::real.setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, value, len);
    memcpy(&offset, value, sizeof offset);
    const auto place = static_cast<std::uint64_t>(std::max(offset, 0));
    const bool messages = protocol(s).messages; // each has its own place
    const std::uint64_t here = messages ? place : std::min<std::uint64_t>(place, unread_left(*u));
    const int rest = messages ? offset : offset - static_cast<int>(here);
    const int result = libc::real.setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &rest, sizeof rest);
    if (result == 0)
        set_peek_place(*u, here);
    return result;
}

} // namespace

int set_in_kernel(Socket &s, int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_PEEK_OFF) [[unlikely]]
        return set_peek_offset(s, fd, value, len);
    return libc::real.setsockopt(fd, level, name, value, len);
}

void correct_peek_offset(const Socket &s, void *value, socklen_t len)
{
    int offset = -1;
    const LockGuard guard(s.unread_lock);
    const SharedLeftovers *const u = s.unread.load(std::memory_order_relaxed);
    if (u == nullptr || len != sizeof offset || unread_left(*u) == 0)
        return;
    memcpy(&offset, value, sizeof offset);
    if (offset < 0)
        return;
    const int kernel = protocol(s).messages ? 0 : offset;
    offset =
        kernel + static_cast<int>(std::min<std::uint64_t>(peek_place(*u), static_cast<unsigned>(INT_MAX - kernel)));
    memcpy(value, &offset, sizeof offset);
}

int kernel_peek_offset(int fd)
{
    const int saved = errno;
    int offset = -1;
    socklen_t size = sizeof offset;
    if (libc::real.getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size) != 0)
        offset = -1; // TCP before Linux 6.9
    errno = saved;
    return offset;
}

void set_kernel_peek_offset(int fd, int offset)
{
    const int saved = errno;
    libc::real.setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
    errno = saved;
}

void peek_goes_on(const SharedLeftovers &u, std::uint64_t count)
{
    set_peek_place(u, peek_place(u) + count);
}

void peek_goes_back(const SharedLeftovers &u, std::uint64_t count)
{
    const std::uint64_t place = peek_place(u);
    set_peek_place(u, place - std::min(place, count));
}

} // namespace vma::sock
