// SPDX-License-Identifier: BSD-2-Clause
// Sockets of ours into which another user's process can send. The last close of a descriptor that comes with a message
// can wait for as long as its sender likes: it may be a connection that lingers, or a file of his own file system. So
// no thread of ours may be who lets go of it, by a message that has more descriptors than there is room for, or by
// closing a socket with one unread. Such a socket is left open. All parts use this; it is not installed.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace vma {

inline constexpr int kPassRights = 83; // SO_PASSRIGHTS: Linux 6.16

// What each part has its own way to.
struct StrangersCalls {
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*shutdown)(int, int);
    ssize_t (*recvmsg)(int, msghdr *, int);
};

// The process's: sockets that were left open. No stranger is met any more when there are so many.
inline std::atomic<unsigned> g_sockets_left_open{0};
inline constexpr unsigned kMostLeftOpen = 32;
inline bool too_many_left_open() noexcept
{
    return g_sockets_left_open.load(std::memory_order_relaxed) >= kMostLeftOpen;
}

// Whether who sends descriptors into the socket is refused (Linux before 6.16 has no such thing).
inline void let_rights_in(int socket, bool allowed, const StrangersCalls &kernel) noexcept
{
    const int saved = errno;
    const int value = allowed ? 1 : 0;
    static_cast<void>(kernel.setsockopt(socket, SOL_SOCKET, kPassRights, &value, sizeof value));
    errno = saved;
}

inline bool is_stream(int socket, const StrangersCalls &kernel) noexcept
{
    int type = 0;
    socklen_t length = sizeof type;
    return kernel.getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// Nothing comes into the socket, which nobody else has, any more, and what is in it is taken out up to a message with
// descriptors. Whether there was none: then it may be closed. Of a socket for messages the sender's name is asked for,
// by which one without bytes can be told from the end.
inline bool is_safe_to_close(int socket, const StrangersCalls &kernel) noexcept
{
    const bool stream = is_stream(socket, kernel);
    const int on = 1;
    if (!stream)
        static_cast<void>(kernel.setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    static_cast<void>(kernel.shutdown(socket, SHUT_RDWR));
    char bytes[1024];
    alignas(cmsghdr) char sender[CMSG_SPACE(sizeof(ucred))];
    int flags = MSG_PEEK; // at each in turn, before it is taken
    for (iovec part{bytes, sizeof bytes};;) {
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = stream ? nullptr : sender; // no room for a descriptor, which would be ours then
        message.msg_controllen = stream ? 0 : sizeof sender;
        const ssize_t length = kernel.recvmsg(socket, &message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (length < 0 && (errno == EINTR || errno == ECONNRESET))
            continue;
        if (length < 0 || (length == 0 && (stream || message.msg_controllen == 0)))
            return true;
        if ((message.msg_flags & MSG_CTRUNC) != 0)
            return false;
        const bool looked = flags == MSG_PEEK;
        flags = looked ? 0 : MSG_PEEK;
        part.iov_len = looked ? static_cast<std::size_t>(length) : sizeof bytes;
    }
}

} // namespace vma
