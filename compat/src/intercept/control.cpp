// SPDX-License-Identifier: BSD-2-Clause
// connect, shutdown, options, and the calls that make a socket something that only the kernel can be.
#include "compat/src/intercept/export.hpp"

#include "compat/src/base/probes.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/intercept/call_log.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/offload/first_byte.hpp"

#include <linux/sockios.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "compat/src/transport/exception.hpp"

namespace vma::intercept {

namespace {

bool disconnects(const sockaddr *address, socklen_t length)
{
    return address != nullptr && length >= sizeof address->sa_family && address->sa_family == AF_UNSPEC;
}

// Of an option. What is not there, the kernel refuses, or doesn't look at.
bool is_value_there(const void *value, socklen_t length)
{
    constexpr socklen_t kMostLookedAt = 4096;
    return value == nullptr || libc::can_read(value, std::min(length, kMostLookedAt));
}

bool has_room(const void *value, const socklen_t *length)
{
    constexpr socklen_t kMostOfOurs =
        sizeof(std::uint64_t); // what is longer, we only change when the kernel has written it
    return length == nullptr || (libc::can_update(length, sizeof *length) &&
                                 (value == nullptr || libc::can_update(value, std::min(*length, kMostOfOurs))));
}

int connect_tracked(sock::Socket &s, int fd, const sockaddr *address, socklen_t length)
{
    if (sock::is_datagram(s))
        return sock::connect_datagram(s, fd, address, length);
    if (disconnects(address, length))
        sock::pin_to_kernel(s, "connect() to no address");
    sock::begin_connecting();
    const int result = libc::by_kernel(real.connect(fd, address, length));
    const KeepErrno keep;
    const libc::NotCancelled whole;
    if (result == 0 && disconnects(address, length))
        sock::disconnected(s);
    const bool begun = result == 0 || errno == EINPROGRESS || errno == EINTR;
    if (begun)
        probe::connection(fd, result == 0 ? probe::Made::kConnected : probe::Made::kConnecting);
    sock::connecting(s, fd, begun ? address : nullptr, length);
    return result;
}

int duplicate_above(int fd, int command, void *lowest)
{
    let_loads_end();
    const int copy = real.fcntl(fd, command, lowest);
    if (copy >= 0)
        was_duplicated(fd, copy);
    return copy;
}

// False: the call fails.
bool admit(sock::Socket &s, const char *name, unsigned long request, bool signals)
{
    char call[48];
    std::snprintf(call, sizeof call, "%s(0x%lx)", name, request);
    return signals ? sock::admit_call(s, call, "signal-driven input") : sock::admit_call(s, call, nullptr);
}

int fcntl_tracked(sock::Socket &s, int fd, int command, void *argument)
{
    const auto flags = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
    const bool signals = command == F_SETOWN || command == F_SETOWN_EX || command == F_SETSIG ||
                         (command == F_SETFL && (flags & O_ASYNC) != 0);
    if ((signals || !sock::is_known_command(command)) && !admit(s, "fcntl", static_cast<unsigned>(command), signals))
        return -1;
    const int result = real.fcntl(fd, command, argument);
    if (command == F_SETFL && result >= 0)
        sock::set_nonblocking(s, (flags & O_NONBLOCK) != 0);
    return result;
}

[[gnu::noinline]] int fcntl_ours(int fd, int command, void *argument)
{
    sock::Socket *const s = tracked(fd);
    VMA_LOG(kDebug, "ENTER: fcntl(fd=%d, cmd=%d)", fd, command);
    return left("fcntl", keep_errno([=] {
                    return s != nullptr ? fcntl_tracked(*s, fd, command, argument) : real.fcntl(fd, command, argument);
                }));
}

bool is_number(const int *number)
{
    return number != nullptr && libc::can_update(number, sizeof *number);
}

int ioctl_tracked(sock::Socket &s, int fd, unsigned long request, void *argument)
{
    int *const number = static_cast<int *>(argument);
    switch (request) {
    case FIONREAD: // SIOCINQ
        if (is_number(number))
            return sock::bytes_readable(s, fd, number);
        break;
    case SIOCATMARK:
        if (is_number(number))
            return sock::at_mark(s, fd, number);
        break;
    case SIOCOUTQ:
    case SIOCOUTQNSD:
        if (is_number(number))
            return sock::bytes_unsent(s, fd, request, number);
        break;
    case FIOASYNC:
    case FIOSETOWN:
    case SIOCSPGRP:
        if (!admit(s, "ioctl", request, true))
            return -1;
        break;
    default:
        if (!sock::is_known_control(request) && !admit(s, "ioctl", request, false))
            return -1;
        break;
    }
    const int result = real.ioctl(fd, request, argument);
    if (request == FIONBIO && result == 0)
        sock::set_nonblocking(s, *number != 0);
    return result;
}

[[gnu::noinline]] int ioctl_ours(int fd, unsigned long request, void *argument)
{
    sock::Socket *const s = tracked(fd);
    VMA_LOG(kDebug, "ENTER: ioctl(fd=%d, request=%#lx)", fd, request);
    return left("ioctl", keep_errno([=] {
                    return s != nullptr ? ioctl_tracked(*s, fd, request, argument) : real.ioctl(fd, request, argument);
                }));
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int connect(int fd, const sockaddr *address, socklen_t length)
{
    if (sock::Socket *const s = tracked(fd); s != nullptr && is_value_there(address, length)) [[unlikely]] {
        VMA_LOG(kDebug, "ENTER: connect(fd=%d, addrlen=%u)", fd, length);
        return left("connect", keep_errno([=] { return connect_tracked(*s, fd, address, length); }));
    }
    return libc::by_kernel(real.connect(fd, address, length));
}

VMA_ALIAS(connect) int __connect(int, const sockaddr *, socklen_t);

VMA_EXPORT int listen(int fd, int backlog) noexcept
{
    if (!ours(fd)) [[likely]]
        return real.listen(fd, backlog);
    VMA_LOG(kDebug, "ENTER: listen(fd=%d, backlog=%d)", fd, backlog);
    const int result = left("listen", real.listen(fd, backlog));
    if (sock::Socket *const s = tracked(fd); s != nullptr && result == 0) {
        const KeepErrno keep;
        sock::listening(*s, fd);
    }
    return result;
}

// Nothing is done for these two but to tell of them, as of all calls on sockets.
VMA_EXPORT int bind(int fd, const sockaddr *address, socklen_t length) noexcept
{
    if (!ours(fd)) [[likely]]
        return real.bind(fd, address, length);
    VMA_LOG(kDebug, "ENTER: bind(fd=%d, addrlen=%u)", fd, length);
    return left("bind", real.bind(fd, address, length));
}

VMA_EXPORT int getpeername(int fd, sockaddr *address, socklen_t *length) noexcept
{
    if (!ours(fd)) [[likely]]
        return real.getpeername(fd, address, length);
    VMA_LOG(kDebug, "ENTER: getpeername(fd=%d)", fd);
    return left("getpeername", real.getpeername(fd, address, length));
}

VMA_EXPORT int getsockname(int fd, sockaddr *address, socklen_t *length) noexcept
{
    constexpr std::size_t kDummyBytes = 264; // libvma's
    if (config::params().dummy_send_getsockname) [[unlikely]] {
        const KeepErrno keep;
        extra::send_nothing(tracked(fd), kDummyBytes);
    }
    if (!ours(fd)) [[likely]]
        return real.getsockname(fd, address, length);
    VMA_LOG(kDebug, "ENTER: getsockname(fd=%d)", fd);
    return left("getsockname", real.getsockname(fd, address, length));
}

VMA_EXPORT int shutdown(int fd, int how) noexcept
{
    if (sock::Socket *const s = tracked(fd)) [[unlikely]] {
        VMA_LOG(kDebug, "ENTER: shutdown(fd=%d, how=%d)", fd, how);
        return left("shutdown", keep_errno([=] { return sock::shut_down(*s, fd, how); }));
    }
    return libc::by_kernel(real.shutdown(fd, how));
}

VMA_EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *length) noexcept
{
    if (int result = 0; fd == -1 && has_room(value, length) && extra::answer(fd, level, name, value, length, result))
        [[unlikely]]
        return result;
    if (sock::Socket *const s = tracked(fd); s != nullptr && has_room(value, length)) [[unlikely]] {
        VMA_LOG(kDebug, "ENTER: getsockopt(fd=%d, level=%d, optname=%d)", fd, level, name);
        return left("getsockopt", keep_errno([=] { return sock::get_option(*s, fd, level, name, value, length); }));
    }
    return real.getsockopt(fd, level, name, value, length);
}

VMA_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t length) noexcept
{
    if (sock::Socket *const s = tracked(fd); s != nullptr && is_value_there(value, length)) [[unlikely]] {
        VMA_LOG(kDebug, "ENTER: setsockopt(fd=%d, level=%d, optname=%d, optlen=%u)", fd, level, name, length);
        return left("setsockopt", keep_errno([=] { return sock::set_option(*s, fd, level, name, value, length); }));
    }
    return real.setsockopt(fd, level, name, value, length);
}

// These two are not variadic, so that what is not ours costs a look-up and a jump: the argument is where libc's own
// expect it.
extern "C" [[gnu::visibility("default")]] int vma_fcntl(int fd, int command, void *argument) asm("fcntl");
extern "C" [[gnu::visibility("default")]] int vma_ioctl(int fd, unsigned long request, void *argument) asm("ioctl");

int vma_fcntl(int fd, int command, void *argument)
{
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) [[unlikely]]
        return duplicate_above(fd, command, argument);
    if (!ours(fd)) [[likely]]
        return real.fcntl(fd, command, argument);
    return fcntl_ours(fd, command, argument);
}

extern "C" [[gnu::visibility("default"), gnu::alias("fcntl")]] int vma_fcntl64(int, int, void *) asm("fcntl64");
extern "C" [[gnu::visibility("default"), gnu::alias("fcntl")]] int vma_fcntl_2(int, int, void *) asm("__fcntl");

int vma_ioctl(int fd, unsigned long request, void *argument)
{
    if (!ours(fd)) [[likely]]
        return real.ioctl(fd, request, argument);
    return ioctl_ours(fd, request, argument);
}

// libc's own asks past our ioctl().
VMA_EXPORT int sockatmark(int fd) noexcept
{
    int mark = 0;
    return ioctl(fd, SIOCATMARK, &mark) == -1 ? -1 : mark;
}
