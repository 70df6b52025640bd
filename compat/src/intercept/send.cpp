// SPDX-License-Identifier: BSD-2-Clause
// Everything that writes to a descriptor.
#include "compat/src/intercept/export.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "compat/src/base/arguments.hpp"
#include "compat/src/base/probes.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/intercept/vector.hpp"

namespace vma::intercept {

namespace {

// sendto(MSG_FASTOPEN) is a connect(); its data leaves by the kernel.
template <typename Send>
[[gnu::cold, gnu::noinline]] ssize_t send_connecting(sock::Socket &s, int fd, const void *to, socklen_t length,
                                                     Send send)
{
    const ssize_t result = send();
    const KeepErrno keep;
    const bool begun = result >= 0 || errno == EINPROGRESS || errno == EINTR;
    if (begun)
        probe::connection(fd, result >= 0 ? probe::Made::kConnected : probe::Made::kConnecting);
    sock::connecting(s, fd, begun ? static_cast<const sockaddr *>(to) : nullptr, length);
    return result;
}

// Descriptors that leave in a message of a UNIX socket: whoever gets them has only the kernel.
void passing(const msghdr *message)
{
    if (!libc::faults_are_caught() || message == nullptr) // no socket of ours that could be one of them
        return;
    if (libc::load_or(reinterpret_cast<const long &>(message->msg_controllen), 0L) == 0) [[likely]]
        return;
    if (!is_there_to_send(message) || message->msg_control == nullptr)
        return;
    const KeepErrno keep;
    if (!libc::in_vfork_child())
        sock::return_passed(message);
}

// Before the first socket of ours nothing of a message is looked at that the kernel has not read. But there may be
// epoll sets, of which others would not hear what is registered later.
[[gnu::cold, gnu::noinline]] void passed_early(const msghdr &message)
{
    const KeepErrno keep;
    if (message.msg_control != nullptr && !libc::in_vfork_child())
        sock::return_passed(&message);
}

ssize_t send_message(sock::Socket &s, int fd, const msghdr *message, int flags)
{
    if ((flags & MSG_FASTOPEN) != 0 && message != nullptr && !sock::is_datagram(s))
        return send_connecting(s, fd, message->msg_name, message->msg_namelen,
                               [=] { return libc::by_kernel(real.sendmsg(fd, message, flags)); });
    return keep_errno([=, &s] { return sock::send_msg(s, fd, message, flags); });
}

int send_tracked(sock::Socket &s, int fd, mmsghdr *messages, unsigned count, int flags)
{
    const unsigned there = count_there(messages, count, is_there_to_send);
    if (there == 0 && (messages == nullptr || count == 0 || !is_there_to_send(&messages->msg_hdr)))
        return libc::by_kernel(real.sendmmsg(fd, messages, count, flags));
    if (there != 0 && ((flags & MSG_FASTOPEN) == 0 || sock::is_datagram(s))) [[likely]]
        return keep_errno([=, &s] { return sock::send_messages(s, fd, messages, there, flags); });
    const ssize_t n = send_message(s, fd, &messages->msg_hdr, flags); // the others by the program's next call
    if (n < 0)
        return -1;
    if (there == 0) { // it can be read, and so went; how much of it can't be said
        errno = EFAULT;
        return -1;
    }
    messages->msg_len = static_cast<unsigned>(n);
    return 1;
}

// How far it came can't be told, whatever came of it.
ssize_t send_file_untold(sock::Socket &s, int fd, int file, off_t offset, std::size_t count)
{
    sock::send_file(s, fd, file, &offset, count);
    errno = EFAULT;
    return -1;
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT ssize_t write(int fd, const void *buffer, size_t size)
{
    if (sock::Socket *const s = tracked(fd); s != nullptr && size <= sock::kUserSpaceEnd) [[unlikely]]
        return sock::send(*s, fd, buffer, size, 0);
    return libc::by_kernel(real.write(fd, buffer, size));
}

VMA_ALIAS(write) ssize_t __write(int, const void *, size_t);

VMA_EXPORT ssize_t writev(int fd, const iovec *parts, int count)
{
    sock::Socket *const s = tracked(fd);
    if (s == nullptr || !carries_bytes(parts, count)) [[likely]]
        return libc::by_kernel(real.writev(fd, parts, count));
    const msghdr message = message_of(parts, count);
    return keep_errno([&] { return sock::send_msg(*s, fd, &message, 0); });
}

VMA_EXPORT ssize_t pwritev2(int fd, const iovec *parts, int count, off_t offset, int flags)
{
    sock::Socket *const s = offset == -1 ? tracked(fd) : nullptr;
    if (s == nullptr || !carries_bytes(parts, count)) [[likely]]
        return libc::by_kernel(real.pwritev2(fd, parts, count, offset, flags));
    if ((flags & ~(RWF_NOWAIT | kOfFiles)) != 0) [[unlikely]]
        return keep_errno([=] {
            sock::pin_to_kernel(*s, "pwritev2()");
            return libc::by_kernel(real.pwritev2(fd, parts, count, offset, flags));
        });
    const msghdr message = message_of(parts, count);
    const int how = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
    return keep_errno([&] { return sock::send_msg(*s, fd, &message, how); });
}

VMA_ALIAS(pwritev2) ssize_t pwritev64v2(int, const iovec *, int, off_t, int);

VMA_EXPORT ssize_t send(int fd, const void *buffer, size_t size, int flags)
{
    if ((flags & extra::kDummy) != 0) [[unlikely]]
        return extra::send_nothing(tracked(fd), size);
    if (sock::Socket *const s = tracked(fd)) [[unlikely]]
        return sock::send(*s, fd, buffer, size, flags);
    return libc::by_kernel(real.send(fd, buffer, size, flags));
}

VMA_ALIAS(send) ssize_t __send(int, const void *, size_t, int);

VMA_EXPORT ssize_t sendto(int fd, const void *buffer, size_t size, int flags, const sockaddr *address, socklen_t length)
{
    sock::Socket *const s = tracked(fd);
    if ((flags & extra::kDummy) != 0) [[unlikely]]
        return libc::can_read(address, address != nullptr ? length : 0) ? extra::send_nothing(s, size, address, length)
                                                                        : extra::send_nothing(nullptr, size);
    if (s == nullptr ||
        (length <= sizeof(sockaddr_storage) && !libc::can_read(address, address != nullptr ? length : 0))) [[likely]]
        return libc::by_kernel(real.sendto(fd, buffer, size, flags, address, length));
    if ((flags & MSG_FASTOPEN) != 0 && !sock::is_datagram(*s))
        return send_connecting(*s, fd, address, length,
                               [=] { return libc::by_kernel(real.sendto(fd, buffer, size, flags, address, length)); });
    return sock::send_to(*s, fd, buffer, size, flags, address, length);
}

VMA_EXPORT ssize_t sendmsg(int fd, const msghdr *message, int flags)
{
    sock::Socket *const s = tracked(fd);
    if ((flags & extra::kDummy) != 0) [[unlikely]]
        return is_there_to_send(message) ? extra::send_nothing(s, *message) : extra::send_nothing(s, 0);
    if (s != nullptr && is_there_to_send(message)) [[unlikely]]
        return send_message(*s, fd, message, flags);
    const bool early = !libc::faults_are_caught();
    passing(message);
    const ssize_t n = libc::by_kernel(real.sendmsg(fd, message, flags));
    if (early && n >= 0 && message->msg_controllen != 0)
        passed_early(*message);
    return n;
}

VMA_EXPORT int sendmmsg(int fd, mmsghdr *messages, unsigned count, int flags)
{
    sock::Socket *const s = tracked(fd);
    if ((flags & extra::kDummy) != 0) [[unlikely]]
        return extra::send_nothing_of_each(s, messages, count_there(messages, count, is_there_to_send));
    if (s != nullptr) [[unlikely]]
        return send_tracked(*s, fd, messages, count, flags);
    // A null pointer has no member whose address could be taken, not even for a look. The kernel refuses it.
    const bool early = !libc::faults_are_caught();
    for (unsigned i = 0; messages != nullptr && i < count && i < kMaxVector && !early; ++i)
        passing(&messages[i].msg_hdr);
    const int n = libc::by_kernel(real.sendmmsg(fd, messages, count, flags));
    for (int i = 0; early && i < n; ++i)
        if (messages[i].msg_hdr.msg_controllen != 0)
            passed_early(messages[i].msg_hdr);
    return n;
}

namespace {

[[gnu::cold, gnu::noinline]] bool is_pipe(int fd)
{
    struct stat st = {};
    return ::fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

// Into a pipe it is a splice(). Into anything else the kernel refuses it, as a socket has no pages to lend.
[[gnu::cold, gnu::noinline]] ssize_t send_socket(sock::Socket &from, int fd, int file, off_t *offset, size_t count)
{
    if (offset != nullptr || !is_pipe(fd))
        return libc::by_kernel(real.sendfile(fd, file, offset, count));
    const bool waits = (real.fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
    return sock::splice_from(from, file, fd, nullptr, count, waits ? 0 : SPLICE_F_NONBLOCK);
}

} // namespace

VMA_EXPORT ssize_t sendfile(int fd, int file, off_t *offset, size_t count) noexcept
{
    sock::Socket *const s = tracked(fd);
    if (sock::Socket *const from = tracked(file)) [[unlikely]]
        return keep_errno([=] { return send_socket(*from, fd, file, offset, count); });
    if (s == nullptr || (offset != nullptr && !libc::can_read(offset, sizeof *offset))) [[likely]]
        return libc::by_kernel(real.sendfile(fd, file, offset, count));
    if (offset != nullptr && !libc::can_update(offset, sizeof *offset))
        return send_file_untold(*s, fd, file, *offset, count);
    return keep_errno([=] { return sock::send_file(*s, fd, file, offset, count); });
}

VMA_ALIAS(sendfile) ssize_t sendfile64(int, int, off64_t *, size_t) noexcept;

VMA_EXPORT ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size, unsigned flags)
{
    sock::Socket *const from = in_offset == nullptr ? tracked(in) : nullptr; // an offset of a socket is an error
    sock::Socket *const to = out_offset == nullptr ? tracked(out) : nullptr;
    if ((from == nullptr) == (to == nullptr)) [[likely]]
        return libc::by_kernel(real.splice(in, in_offset, out, out_offset, size, flags));
    return keep_errno([=] {
        return from != nullptr ? sock::splice_from(*from, in, out, out_offset, size, flags)
                               : sock::splice_to(*to, out, in, in_offset, size, flags);
    });
}
