// SPDX-License-Identifier: BSD-2-Clause
// The descriptors that a message between UNIX-domain sockets carries (SCM_RIGHTS, unix(7)): how they are put into it
// and read from it. All parts use it; it is not installed.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace vma {

// A message's control data with that many descriptors at most.
template <std::size_t Most> struct PassedRoom {
    alignas(cmsghdr) char bytes[CMSG_SPACE(Most * sizeof(int))] = {};
};

// The message carries `fds`, of which `room` has a copy; nothing where there are none. No more than there is room for.
template <std::size_t Most> void pass(msghdr &message, PassedRoom<Most> &room, std::span<const int> fds) noexcept
{
    if (fds.empty())
        return;
    message.msg_control = room.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr *const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
}

// Before a receive: the message may bring as many as there is room for.
template <std::size_t Most> void expect_passed(msghdr &message, PassedRoom<Most> &room) noexcept
{
    message.msg_control = room.bytes;
    message.msg_controllen = sizeof room.bytes;
}

// Calls visit(fd) for each that a received message brought, or that one to be sent carries.
template <typename Visit> void each_passed(const msghdr &message, Visit visit)
{
    for (const cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr;
         c = CMSG_NXTHDR(const_cast<msghdr *>(&message), const_cast<cmsghdr *>(c))) {
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

} // namespace vma
