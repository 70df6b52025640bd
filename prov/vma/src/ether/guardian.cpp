// SPDX-License-Identifier: BSD-2-Clause
// System calls are made by number, as in ether/stream/repair.cpp: the preload library's functions are not meant for us.
#include "ether/guardian.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>

#include "core/log.hpp"
#include "ofi/libfabric.hpp"
#include "vma/passed.hpp"

namespace vma::ether {
namespace {

constexpr int kSendBuffer = 8 << 20; // some 10,000 messages: as many connections may be opened in one go

int send_message(int fd, const GuardianMessage &message, std::span<const int> passed) noexcept
{
    PassedRoom<2> room;
    iovec part{const_cast<GuardianMessage *>(&message), sizeof message};
    mmsghdr out{};
    out.msg_hdr.msg_iov = &part;
    out.msg_hdr.msg_iovlen = 1;
    pass(out.msg_hdr, room, passed);
    return ::syscall(SYS_sendmmsg, fd, &out, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

GuardianMessage describe(GuardianCall call, const inet::Flow &flow) noexcept
{
    GuardianMessage message;
    message.call = call;
    message.local = flow.local.address;
    message.remote = flow.remote.address;
    message.local_port = flow.local.port;
    message.remote_port = flow.remote.port;
    return message;
}

} // namespace

void Guardian::connect() noexcept
{
    const char *const named = ofi::param(ofi::Param::guardian);
    if (named == nullptr && ::secure_getenv("FI_VMA_GUARDIAN") != nullptr)
        return; // empty
    const char *const path = named != nullptr ? named : kGuardianPath;
    int error = open(path);
    if (error == 0)
        error = greet();
    if (error == 0)
        return;
    socket_.reset();
    VMA_DEBUG(fabric, "no guardian at %s: %s: silent peers don't hear of a sudden death of this process", path,
              std::strerror(-error));
}

int Guardian::open(const char *path) noexcept
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    std::memcpy(address.sun_path, path, length);
    constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    socket_ = core::make_fd([] { return static_cast<int>(::syscall(SYS_socket, AF_UNIX, kType, 0)); });
    if (!socket_ || ::syscall(SYS_connect, socket_.get(), &address, sizeof address) != 0)
        return -errno;
    ucred owner{};
    socklen_t size = sizeof owner;
    if (::syscall(SYS_getsockopt, socket_.get(), SOL_SOCKET, SO_PEERCRED, &owner, &size) != 0)
        return -errno;
    if (owner.uid != 0 && owner.uid != ::geteuid())
        return -EPERM;
    if (::syscall(SYS_setsockopt, socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer) != 0)
        VMA_DEBUG(fabric, "the guardian's queue stays short: %s", std::strerror(errno));
    return 0;
}

int Guardian::greet() noexcept
{
    core::UniqueFd raw[2];
    int fds[2];
    std::size_t count = 0;
    for (const int family : {AF_INET, AF_INET6}) {
        raw[count] = core::make_fd(
            [&] { return static_cast<int>(::syscall(SYS_socket, family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)); });
        if (raw[count]) {
            fds[count] = raw[count].get();
            ++count;
        }
    }
    if (count == 0)
        return -errno;
    GuardianMessage hello;
    hello.call = GuardianCall::kHello;
    return send_message(socket_.get(), hello, {fds, count});
}

bool Guardian::send(const GuardianMessage &message) noexcept
{
    if (!socket_)
        return false;
    const int error = send_message(socket_.get(), message, {});
    if (error == 0)
        return true;
    if (error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM) {
        ++missed_;
        VMA_DEBUG(ep_ctrl, "the guardian is late: %" PRIu64 " messages were not told", missed_);
        return false;
    }
    VMA_DEBUG(ep_ctrl, "the guardian is gone: %s", std::strerror(-error));
    socket_.reset();
    return false;
}

void Guardian::add(const inet::Connection &connection, std::uint32_t stamp) noexcept
{
    GuardianMessage message = describe(GuardianCall::kAdd, connection.flow);
    message.timestamps = connection.agreed.timestamps ? 1 : 0;
    message.seq = connection.una - 1;
    message.ack = connection.receive.next;
    message.stamp = stamp;
    message.echo = connection.receive.stamp_recent;
    static_cast<void>(send(message));
}

void Guardian::remove(const inet::Flow &flow) noexcept
{
    static_cast<void>(send(describe(GuardianCall::kRemove, flow)));
}

void Guardian::forget() noexcept
{
    GuardianMessage message;
    message.call = GuardianCall::kForget;
    static_cast<void>(send(message));
}

} // namespace vma::ether
