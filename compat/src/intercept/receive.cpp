// SPDX-License-Identifier: BSD-2-Clause
// Everything that reads from a descriptor.
#include "compat/src/intercept/export.hpp"

#include <time.h>

#include "compat/src/intercept/vector.hpp"

namespace vma::intercept {

namespace {

// TCP has no sender's address to give: the kernel says so with a length of 0.
ssize_t without_address(ssize_t result, const sockaddr *address, socklen_t *length)
{
    if (result >= 0 && address != nullptr && length != nullptr)
        *length = 0;
    return result;
}

// The timeout of recvmmsg(), which is looked at after each message only and gives back what is left.
class Remaining
{
public:
    explicit Remaining(timespec *left) : left_(left)
    {
        if (left_ != nullptr)
            ::clock_gettime(CLOCK_MONOTONIC, &last_);
    }
    bool used_up()
    {
        if (left_ == nullptr)
            return false;
        timespec now;
        ::clock_gettime(CLOCK_MONOTONIC, &now);
        const long long spent = (now.tv_sec - last_.tv_sec) * 1000000000LL + (now.tv_nsec - last_.tv_nsec);
        const long long before = left_->tv_sec * 1000000000LL + left_->tv_nsec;
        const long long after = before > spent ? before - spent : 0;
        left_->tv_sec = static_cast<time_t>(after / 1000000000);
        left_->tv_nsec = static_cast<long>(after % 1000000000);
        last_ = now;
        return after == 0;
    }

private:
    timespec *const left_;
    timespec last_ = {};
};

int receive_messages(sock::Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout)
{
    if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)) {
        errno = EINVAL;
        return -1;
    }
    Remaining remaining(timeout);
    unsigned done = 0;
    const unsigned wanted = count < kMaxVector ? count : kMaxVector;
    while (done < wanted) {
        const ssize_t length = sock::receive_msg(s, fd, &messages[done].msg_hdr, flags & ~MSG_WAITFORONE);
        if (length < 0)
            return done != 0 ? static_cast<int>(done) : -1;
        messages[done].msg_len = static_cast<unsigned>(length);
        ++done;
        if ((flags & MSG_WAITFORONE) != 0)
            flags |= MSG_DONTWAIT;
        if (remaining.used_up())
            break;
    }
    return static_cast<int>(done);
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT ssize_t read(int fd, void *buffer, size_t size)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || size == 0) [[likely]] // of a socket too, reading nothing is 0 at once
        return real.read(fd, buffer, size);
    return sock::receive(*s, fd, buffer, size, 0);
}

VMA_ALIAS(read) ssize_t __read(int, void *, size_t);

VMA_EXPORT ssize_t readv(int fd, const iovec *parts, int count)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || !carries_bytes(parts, count)) [[likely]]
        return real.readv(fd, parts, count);
    msghdr message = message_of(parts, count);
    return sock::receive_msg(*s, fd, &message, 0);
}

VMA_EXPORT ssize_t preadv2(int fd, const iovec *parts, int count, off_t offset, int flags)
{
    sock::Socket *const s = offset == -1 ? tracked(fd) : nullptr;
    if (s == nullptr || !carries_bytes(parts, count) || (flags & ~RWF_NOWAIT) != 0) [[likely]]
        return real.preadv2(fd, parts, count, offset, flags);
    msghdr message = message_of(parts, count);
    return sock::receive_msg(*s, fd, &message, (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0);
}

VMA_ALIAS(preadv2) ssize_t preadv64v2(int, const iovec *, int, off_t, int);

VMA_EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    if (sock::Socket *const s = tracked(fd)) [[unlikely]]
        return sock::receive(*s, fd, buffer, size, flags);
    return real.recv(fd, buffer, size, flags);
}

VMA_EXPORT ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, sockaddr *address, socklen_t *length)
{
    if (sock::Socket *const s = tracked(fd)) [[unlikely]]
        return without_address(sock::receive(*s, fd, buffer, size, flags), address, length);
    return real.recvfrom(fd, buffer, size, flags, address, length);
}

VMA_EXPORT ssize_t recvmsg(int fd, msghdr *message, int flags)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || message == nullptr) [[likely]]
        return real.recvmsg(fd, message, flags);
    return sock::receive_msg(*s, fd, message, flags);
}

VMA_EXPORT int recvmmsg(int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || messages == nullptr) [[likely]]
        return real.recvmmsg(fd, messages, count, flags, timeout);
    return receive_messages(*s, fd, messages, count, flags, timeout);
}

// ---- what programs built with _FORTIFY_SOURCE call; libc's own ends the program where the buffer is too small

VMA_EXPORT ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return real.__read_chk(fd, buffer, size, room);
    return ::read(fd, buffer, size);
}

VMA_EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return real.__recv_chk(fd, buffer, size, room, flags);
    return ::recv(fd, buffer, size, flags);
}

VMA_EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t room, int flags, sockaddr *address,
                                  socklen_t *length)
{
    if (size > room || tracked(fd) == nullptr) [[likely]]
        return real.__recvfrom_chk(fd, buffer, size, room, flags, address, length);
    return ::recvfrom(fd, buffer, size, flags, address, length);
}
