// SPDX-License-Identifier: BSD-2-Clause
// The descriptors that a message between UNIX-domain sockets carries (SCM_RIGHTS, unix(7)).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>

namespace vma::sock {

template <typename Visit> void each_passed(const msghdr &msg, Visit visit)
{
    for (const cmsghdr *c = CMSG_FIRSTHDR(&msg); c != nullptr;
         c = CMSG_NXTHDR(const_cast<msghdr *>(&msg), const_cast<cmsghdr *>(c))) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
            continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            visit(fd);
        }
    }
}

} // namespace vma::sock
