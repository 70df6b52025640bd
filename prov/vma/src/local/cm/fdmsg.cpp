// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/fdmsg.hpp"

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "vma/passed.hpp"

namespace vma::local {

bool send_packet(int socket, const void *data, std::size_t length, std::span<const int> fds) noexcept
{
    iovec payload{const_cast<void *>(data), length};
    PassedRoom<kMaxPacketFds> room;
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    pass(header, room, fds);
    ssize_t sent;
    do {
        sent = core::kernel::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(length);
}

namespace {

// How many came; those that were not expected are closed.
std::size_t take_fds(const msghdr &header, std::span<core::UniqueFd> fds) noexcept
{
    std::size_t count = 0;
    each_passed(header, [&](int fd) {
        core::UniqueFd owned = core::adopt_fd(fd);
        if (count < fds.size())
            fds[count] = std::move(owned);
        ++count;
    });
    return count;
}

} // namespace

Packet receive_packet(int socket, void *data, std::size_t length, std::span<core::UniqueFd> fds) noexcept
{
    iovec payload{data, length};
    PassedRoom<kMaxPacketFds> room;
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    expect_passed(header, room);
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
