// SPDX-License-Identifier: BSD-2-Clause
// What makes descriptors: TCP and UDP sockets and epoll sets are tracked, of anything else the number is known to be
// new.
#include "compat/src/intercept/export.hpp"

#include <netinet/in.h>

#include <atomic>
#include <cstdarg>

#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/config/privileged.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/intercept/call_log.hpp"
#include "compat/src/libc/provider_text.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/table/uring.hpp"
#include "compat/src/transport/exception.hpp"

namespace vma::intercept {

namespace {

bool is_tcp(int domain, int type, int protocol)
{
    return (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
           (protocol == 0 || protocol == IPPROTO_TCP);
}

bool is_udp(int domain, int type, int protocol)
{
    return (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_DGRAM &&
           (protocol == 0 || protocol == IPPROTO_UDP);
}

bool is_tcp(int fd)
{
    int protocol = 0;
    socklen_t size = sizeof protocol;
    return real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

// Another library's constructor may open sockets before ours has run.
bool tracking()
{
    config::load_params_early();
    rules::load();
    return !config::is_refused() && extra::offloads_here() && !sock::ring_in_use() && !libc::in_vfork_child();
}

// Sets are followed whatever this thread's sockets are: another thread's may be put into them.
bool tracking_sets()
{
    config::load_params_early();
    return !libc::in_vfork_child();
}

// What is not tracked says why here; what is, when it ends.
void explain_refusal(int fd)
{
    if (config::is_refused() && config::is_first(config::Once::kPrivileged))
        VMA_LOG(kWarn,
                "this program has more rights than who has started it (AT_SECURE): its sockets stay on the kernel, "
                "as no line of %s has \"privileged\" and its path",
                config::kPrivilegedFile);
    if (!config::params().offloaded_sockets && !libc::in_vfork_child())
        VMA_LOG(kDetails, "fd=%d: not accelerated: VMA_OFFLOADED_SOCKETS is 0", fd);
}

void socket_made(int fd, int domain, int type, const void *caller)
{
    const KeepErrno keep;
    if (libc::is_provider(caller) || sock::sandboxed())
        return;
    const libc::NotCancelled whole;
    if (!tracking())
        return explain_refusal(fd);
    VMA_LOG(kDebug, "ENTER: socket(domain=%d, type=%#x)", domain, static_cast<unsigned>(type));
    if (config::params().exception_handling == sock::kExitUnlessStarted)
        sock::start_or_exit();
    if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_DGRAM)
        sock::track_datagram(fd, domain, (type & SOCK_NONBLOCK) != 0);
    else
        sock::track_new(fd, (type & SOCK_NONBLOCK) != 0);
    number_tracked(fd);
    extra::follow(fd);
    left("socket", fd);
}

// A listener that we don't know was there before us: a program that replaced itself, a service manager that passed it.
void socket_accepted(int listener, int fd, int flags)
{
    const KeepErrno keep;
    const libc::NotCancelled whole;
    number_given(fd);
    if (sock::sandboxed())
        return;
    if (!tracking())
        return is_tcp(fd) ? explain_refusal(fd) : void();
    if (sock::lookup(listener) == nullptr && !is_tcp(fd))
        return;
    sock::track_accepted(listener, fd, (flags & SOCK_NONBLOCK) != 0);
    number_tracked(fd);
    extra::follow(fd);
}

int epoll_made(int fd, const void *caller)
{
    if (fd < 0)
        return fd;
    const KeepErrno keep;
    const libc::NotCancelled whole;
    number_given(fd);
    if (sock::sandboxed() || !tracking_sets() || libc::is_provider(caller))
        return fd;
    mux::epoll_created(fd);
    number_tracked(fd);
    VMA_LOG(kDebug, "ENTER: epoll_create()");
    return left("epoll_create", fd);
}

// Of a listener of ours; it is called often, and only the level is looked at.
void told_accept(int listener)
{
    if (config::log_enabled(config::Level::kDebug) && ours(listener)) [[unlikely]]
        VMA_LOG(kDebug, "ENTER: accept(fd=%d)", listener);
}

int accepted(int listener, int fd)
{
    return config::log_enabled(config::Level::kDebug) && ours(listener) ? left("accept", fd) : fd;
}

int given(int fd)
{
    number_given(fd);
    return fd;
}

int both_given(int result, const int *pair)
{
    if (result == 0) {
        number_given(pair[0]);
        number_given(pair[1]);
    }
    return result;
}

} // namespace

int accept_tracked(int listener, sockaddr *address, socklen_t *length, int flags)
{
    told_accept(listener);
    let_loads_end();
    const int fd = real.accept4(listener, address, length, flags);
    if (fd >= 0)
        socket_accepted(listener, fd, flags);
    return accepted(listener, fd);
}

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int socket(int domain, int type, int protocol) noexcept
{
    let_loads_end();
    const int fd = real.socket(domain, type, protocol);
    number_given(fd);
    if (fd >= 0 && (is_tcp(domain, type, protocol) || is_udp(domain, type, protocol)))
        socket_made(fd, domain, type, __builtin_return_address(0));
    return fd;
}

VMA_EXPORT int accept(int listener, sockaddr *address, socklen_t *length)
{
    told_accept(listener);
    const int fd = real.accept(listener, address, length);
    if (fd >= 0)
        socket_accepted(listener, fd, 0);
    return accepted(listener, fd);
}

VMA_EXPORT int accept4(int listener, sockaddr *address, socklen_t *length, int flags)
{
    return accept_tracked(listener, address, length, flags);
}

VMA_EXPORT int epoll_create(int size) noexcept
{
    let_loads_end();
    return epoll_made(real.epoll_create(size), __builtin_return_address(0));
}

VMA_EXPORT int epoll_create1(int flags) noexcept
{
    let_loads_end();
    return epoll_made(real.epoll_create1(flags), __builtin_return_address(0));
}

// ---- new numbers that are not ours

VMA_EXPORT int socketpair(int domain, int type, int protocol, int pair[2]) noexcept
{
    let_loads_end();
    return both_given(real.socketpair(domain, type, protocol, pair), pair);
}

VMA_EXPORT int pipe(int pair[2]) noexcept
{
    let_loads_end();
    return both_given(real.pipe(pair), pair);
}

VMA_ALIAS(pipe) int __pipe(int[2]) noexcept;

VMA_EXPORT int pipe2(int pair[2], int flags) noexcept
{
    let_loads_end();
    return both_given(real.pipe2(pair, flags), pair);
}

VMA_EXPORT int open(const char *path, int flags, ...)
{
    std::va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t); // garbage, and not used, unless the flags make a file
    va_end(rest);
    let_loads_end();
    return given(real.open(path, flags, mode));
}

VMA_ALIAS(open) int __open(const char *, int, ...);
VMA_ALIAS(open) int open64(const char *, int, ...);
VMA_ALIAS(open) int __open64(const char *, int, ...);

VMA_EXPORT int openat(int directory, const char *path, int flags, ...)
{
    std::va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    let_loads_end();
    return given(real.openat(directory, path, flags, mode));
}

VMA_ALIAS(openat) int openat64(int, const char *, int, ...);

VMA_EXPORT int creat(const char *path, mode_t mode)
{
    let_loads_end();
    return given(real.creat(path, mode));
}

VMA_ALIAS(creat) int creat64(const char *, mode_t);
