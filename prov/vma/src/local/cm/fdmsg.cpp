// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/fdmsg.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

#include "core/kernel.hpp"
#include "core/log.hpp"

namespace vma::local {

bool send_packet(int socket, const void *data, std::size_t length, std::span<const int> fds) noexcept
{
    iovec payload{const_cast<void *>(data), length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)] = {};
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    ssize_t sent;
    do {
        sent = core::kernel::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(length);
}

namespace {

// How many came; those that were not expected are closed.
std::size_t take_fds(msghdr &header, std::span<core::UniqueFd> fds) noexcept
{
    std::size_t count = 0;
    for (cmsghdr *control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= control->cmsg_len; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, reinterpret_cast<char *>(control) + at, sizeof(int));
            core::UniqueFd owned = core::adopt_fd(fd);
            if (count < fds.size())
                fds[count] = std::move(owned);
            ++count;
        }
    }
    return count;
}

} // namespace

Packet receive_packet(int socket, void *data, std::size_t length, std::span<core::UniqueFd> fds) noexcept
{
    iovec payload{data, length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)];
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const core::ForkGuard guard; // no child may be born with descriptors that nobody knows yet
    ssize_t got;
    do {
        got = core::kernel::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? Packet::nothing : Packet::end;
    const bool complete = take_fds(header, fds) == fds.size();
    return got == static_cast<ssize_t>(length) && header.msg_flags == MSG_CMSG_CLOEXEC && complete ? Packet::whole
                                                                                                   : Packet::end;
}

pid_t peer_of_our_user(int socket) noexcept
{
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (core::kernel::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return -1;
    if (peer.uid != ::geteuid()) {
        VMA_WARN(ep_ctrl, "process %d of user %u is refused: only user %u may send datagrams here",
                 static_cast<int>(peer.pid), peer.uid, ::geteuid());
        return -1;
    }
    return peer.pid;
}

} // namespace vma::local
