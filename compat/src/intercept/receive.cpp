// SPDX-License-Identifier: BSD-2-Clause
// Everything that reads from a descriptor.
#include "compat/src/intercept/export.hpp"

#include "compat/src/base/arguments.hpp"
#include "compat/src/intercept/vector.hpp"
#include "compat/src/sharing/leftovers.hpp"

namespace vma::intercept {

namespace {

// Descriptors that came in a message of a UNIX socket: of a stream there may be bytes that its last process has not
// read.
void took_descriptors(const msghdr &message, int flags)
{
    const KeepErrno keep;
    if (!libc::in_vfork_child())
        sock::adopt_passed(message, (flags & MSG_PEEK) != 0, number_tracked);
}

int fault()
{
    errno = EFAULT;
    return -1;
}

// What can be read but not written the kernel finds out when it has taken the bytes: they are lost. Its socket must not
// be asked, as not all bytes are there.
int receive_untold(sock::Socket &s, int fd, msghdr message, int flags)
{
    return sock::receive_msg(s, fd, &message, flags) < 0 ? -1 : fault();
}

[[gnu::noinline]] ssize_t receive_ours(int fd, msghdr *message, int flags)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || !is_there(message)) [[unlikely]]
        return libc::by_kernel(real.recvmsg(fd, message, flags));
    if (!libc::can_update(message, sizeof *message)) [[unlikely]]
        return receive_untold(*s, fd, *message, flags);
    return keep_errno([=] { return sock::receive_msg(*s, fd, message, flags); });
}

[[gnu::noinline]] int receive_tracked(sock::Socket &s, int fd, mmsghdr *messages, unsigned count, int flags,
                                      timespec *timeout)
{
    if (timeout != nullptr && !libc::can_read(timeout, sizeof *timeout))
        return real.recvmmsg(fd, messages, count, flags, timeout); // which looks at it first
    const unsigned there = count_there(messages, count, is_there);
    if (there != 0 && timeout != nullptr && !libc::can_update(timeout, sizeof *timeout)) {
        timespec left = *timeout;
        const int n = sock::receive_messages(s, fd, messages, there, flags, &left);
        return n > 0 ? fault() : n;
    }
    if (there != 0) [[likely]]
        return keep_errno([=, &s] { return sock::receive_messages(s, fd, messages, there, flags, timeout); });
    if (messages == nullptr || count == 0 || !is_there(&messages->msg_hdr))
        return libc::by_kernel(real.recvmmsg(fd, messages, count, flags, timeout));
    return receive_untold(s, fd, messages->msg_hdr, flags);
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT ssize_t read(int fd, void *buffer, size_t size)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || size - 1 >= sock::kUserSpaceEnd)
        [[likely]] // of a socket too, nothing is 0 at once, and too much an error
        return libc::by_kernel(real.read(fd, buffer, size));
    return sock::receive(*s, fd, buffer, size, 0);
}

VMA_ALIAS(read) ssize_t __read(int, void *, size_t);

VMA_EXPORT ssize_t readv(int fd, const iovec *parts, int count)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || !carries_bytes(parts, count)) [[likely]]
        return libc::by_kernel(real.readv(fd, parts, count));
    msghdr message = message_of(parts, count);
    return keep_errno([&] { return sock::receive_msg(*s, fd, &message, 0); });
}

VMA_EXPORT ssize_t preadv2(int fd, const iovec *parts, int count, off_t offset, int flags)
{
    sock::Socket *const s = offset == -1 ? tracked(fd) : nullptr;
    if (s == nullptr || !carries_bytes(parts, count)) [[likely]]
        return libc::by_kernel(real.preadv2(fd, parts, count, offset, flags));
    if ((flags & ~(RWF_NOWAIT | kOfFiles)) != 0) [[unlikely]]
        return keep_errno([=] {
            sock::pin_to_kernel(*s, "preadv2()");
            return libc::by_kernel(real.preadv2(fd, parts, count, offset, flags));
        });
    msghdr message = message_of(parts, count);
    const int how = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
    return keep_errno([&] { return sock::receive_msg(*s, fd, &message, how); });
}

VMA_ALIAS(preadv2) ssize_t preadv64v2(int, const iovec *, int, off_t, int);

VMA_EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    if (sock::Socket *const s = tracked(fd)) [[unlikely]]
        return sock::receive(*s, fd, buffer, size, flags);
    return libc::by_kernel(real.recv(fd, buffer, size, flags));
}

VMA_EXPORT ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, sockaddr *address, socklen_t *length)
{
    if (sock::Socket *const s = tracked(fd)) [[unlikely]]
        return sock::receive_from(*s, fd, buffer, size, flags, address, length);
    return libc::by_kernel(real.recvfrom(fd, buffer, size, flags, address, length));
}

VMA_EXPORT ssize_t recvmsg(int fd, msghdr *message, int flags)
{
    if (ours(fd)) [[unlikely]]
        return receive_ours(fd, message, flags);
    const ssize_t n = libc::by_kernel(real.recvmsg(fd, message, flags));
    if (n >= 0 && message->msg_controllen != 0) [[unlikely]]
        took_descriptors(*message, flags);
    return n;
}

VMA_EXPORT int recvmmsg(int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr) [[likely]] {
        const int n = libc::by_kernel(real.recvmmsg(fd, messages, count, flags, timeout));
        for (int i = 0; i < n; ++i)
            if (messages[i].msg_hdr.msg_controllen != 0) [[unlikely]]
                took_descriptors(messages[i].msg_hdr, flags);
        return n;
    }
    return receive_tracked(*s, fd, messages, count, flags, timeout);
}

// ---- what programs built with _FORTIFY_SOURCE call; libc's own ends the program where the buffer is too small

VMA_EXPORT ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return libc::by_kernel(real.__read_chk(fd, buffer, size, room));
    return ::read(fd, buffer, size);
}

VMA_EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return libc::by_kernel(real.__recv_chk(fd, buffer, size, room, flags));
    return ::recv(fd, buffer, size, flags);
}

VMA_EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t room, int flags, sockaddr *address,
                                  socklen_t *length)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return libc::by_kernel(real.__recvfrom_chk(fd, buffer, size, room, flags, address, length));
    return ::recvfrom(fd, buffer, size, flags, address, length);
}
