// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/arguments.hpp"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <algorithm>

#include "compat/src/libc/fault.hpp"

namespace vma::sock {

int refused_message(const msghdr &message)
{
    if (message.msg_name != nullptr && static_cast<int>(message.msg_namelen) < 0)
        return -EINVAL;
    if (message.msg_iovlen > IOV_MAX)
        return -EMSGSIZE;
    if (message.msg_iovlen != 0 && is_nowhere(message.msg_iov))
        return -EFAULT;
    bool leaves = false;
    for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
        const iovec &part = message.msg_iov[i];
        if (part.iov_len > SSIZE_MAX)
            return -EINVAL;
        const bool is_cut = message.msg_iovlen == 1; // one part alone the kernel cuts before it looks at it
        leaves |= leaves_user_space(part.iov_base, is_cut ? std::min(part.iov_len, kMostBytes) : part.iov_len);
    }
    return leaves ? -EFAULT : 0;
}

Most most_of(const msghdr &message)
{
    Most most;
    const iovec *part = message.msg_iov;
    for (; part->iov_len <= kMostBytes - most.bytes; ++part) {
        most.bytes += part->iov_len;
        ++most.count;
    }
    most.rest = {part->iov_base, kMostBytes - most.bytes};
    return most;
}

bool lies_nowhere(const msghdr &message)
{
    for (std::size_t i = 0; i < message.msg_iovlen; ++i)
        if (message.msg_iov[i].iov_len != 0 && is_nowhere(message.msg_iov[i].iov_base))
            return true;
    return false;
}

namespace {

// Visits each header as for_each_cmsghdr() of the kernel does; false as soon as one is wrong, or `visit` says so.
template <typename Visit> bool each_control(const msghdr &message, Visit visit)
{
    const auto *const bytes = static_cast<const char *>(message.msg_control);
    std::size_t at = 0;
    while (message.msg_controllen - at >= sizeof(cmsghdr)) {
        cmsghdr header;
        memcpy(&header, bytes + at, sizeof header);
        if (header.cmsg_len < sizeof header || header.cmsg_len > message.msg_controllen - at || !visit(header))
            return false;
        at += CMSG_ALIGN(header.cmsg_len);
        if (at > message.msg_controllen)
            break;
    }
    return true;
}

} // namespace

int refused_control(const msghdr &message)
{
    if (message.msg_controllen == 0)
        return 0;
    if (message.msg_controllen > INT_MAX)
        return -ENOBUFS;
    if (is_nowhere(message.msg_control))
        return -EFAULT;
    return each_control(message, [](const cmsghdr &) { return true; }) ? 0 : -EINVAL;
}

bool asks_kernel(const msghdr &message)
{
    return message.msg_controllen != 0 && !each_control(message, [](const cmsghdr &header) {
               return header.cmsg_level != SOL_SOCKET || header.cmsg_type == SCM_RIGHTS ||
                      header.cmsg_type == SCM_CREDENTIALS;
           });
}

int refused_name(const sockaddr *name, socklen_t length)
{
    if (name == nullptr || length == 0)
        return 0;
    if (length > sizeof(sockaddr_storage))
        return -EINVAL;
    return is_nowhere(name) ? -EFAULT : 0;
}

int refused_place(const socklen_t *length)
{
    if (is_nowhere(length) || !libc::can_update(length, sizeof *length))
        return -EFAULT;
    return static_cast<int>(*length) < 0 ? -EINVAL : 0;
}

} // namespace vma::sock
