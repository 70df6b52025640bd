// SPDX-License-Identifier: BSD-2-Clause
// readv() and writev() as messages.
#pragma once

#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>

#include "compat/src/libc/fault.hpp"

namespace vma::intercept {

inline constexpr unsigned kMaxVector = IOV_MAX; // the kernel's limit of parts, and of messages

// Of pwritev2() and preadv2(): sockets take no notice of these.
inline constexpr int kOfFiles = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND;

// False for what the kernel refuses, also for want of memory there, or for no bytes at all: it answers these without
// looking at the socket.
inline bool carries_bytes(const iovec *parts, int count)
{
    if (parts == nullptr || count <= 0 || static_cast<unsigned>(count) > kMaxVector ||
        !libc::can_read(parts, static_cast<std::size_t>(count) * sizeof *parts))
        return false;
    std::size_t total = 0;
    for (int i = 0; i < count; ++i)
        if (parts[i].iov_len > SSIZE_MAX || __builtin_add_overflow(total, parts[i].iov_len, &total))
            return false;
    return total != 0 && total <= SSIZE_MAX;
}

// Is all there that the kernel looks at before it moves a byte? If not, it refuses the message.
inline bool is_there(const msghdr *message)
{
    return message != nullptr && libc::can_read(message, sizeof *message) &&
           (message->msg_iovlen > kMaxVector ||
            libc::can_read(message->msg_iov, message->msg_iovlen * sizeof *message->msg_iov));
}

// Of what is sent also who it is for, and control data.
inline bool is_there_to_send(const msghdr *message)
{
    constexpr std::size_t kMostControl = 1 << 20; // more the kernel refuses
    return is_there(message) &&
           (message->msg_name == nullptr || message->msg_namelen > sizeof(sockaddr_storage) ||
            libc::can_read(message->msg_name, message->msg_namelen)) &&
           (message->msg_control == nullptr || message->msg_controllen > kMostControl ||
            libc::can_read(message->msg_control, message->msg_controllen));
}

// Messages up to the first that is not there: the kernel says so of that one only where it comes first.
inline unsigned count_there(const mmsghdr *messages, unsigned count, bool (*whole)(const msghdr *))
{
    unsigned there = 0;
    while (messages != nullptr && there < count && there < kMaxVector &&
           libc::can_update(messages + there, sizeof *messages) && whole(&messages[there].msg_hdr))
        ++there;
    return there;
}

inline msghdr message_of(const iovec *parts, int count)
{
    msghdr message = {};
    message.msg_iov = const_cast<iovec *>(parts);
    message.msg_iovlen = static_cast<std::size_t>(count);
    return message;
}

} // namespace vma::intercept
