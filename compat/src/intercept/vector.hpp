// SPDX-License-Identifier: BSD-2-Clause
// readv() and writev() as messages.
#pragma once

#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>

namespace vma::intercept {

inline constexpr unsigned kMaxVector = IOV_MAX; // the kernel's limit of parts, and of messages

// False for what the kernel refuses, or for no bytes at all: it answers these without looking at the socket.
inline bool carries_bytes(const iovec *parts, int count)
{
    if (parts == nullptr || count <= 0 || static_cast<unsigned>(count) > kMaxVector)
        return false;
    std::size_t total = 0;
    for (int i = 0; i < count; ++i)
        if (parts[i].iov_len > SSIZE_MAX || __builtin_add_overflow(total, parts[i].iov_len, &total))
            return false;
    return total != 0 && total <= SSIZE_MAX;
}

inline msghdr message_of(const iovec *parts, int count)
{
    msghdr message = {};
    message.msg_iov = const_cast<iovec *>(parts);
    message.msg_iovlen = static_cast<std::size_t>(count);
    return message;
}

} // namespace vma::intercept
