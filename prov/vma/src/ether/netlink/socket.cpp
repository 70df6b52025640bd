// SPDX-License-Identifier: BSD-2-Clause
#include "ether/netlink/socket.hpp"

#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "core/kernel.hpp"

namespace vma::ether {
namespace {

constexpr std::size_t kBuffer = 64 << 10; // the kernel gives parts of a dump that are half as long at most

NetlinkBytes payload_of(const nlmsghdr &message)
{
    return {static_cast<const std::uint8_t *>(mnl()->payload(&message)), mnl()->payload_size(&message)};
}

int error_of(NetlinkBytes payload)
{
    std::int32_t error = 0; // the end of a dump need not say
    if (payload.size() >= sizeof error)
        memcpy(&error, payload.data(), sizeof error);
    return error;
}

} // namespace

int NetlinkSocket::open(std::span<const unsigned> groups, int receive_buffer, NetlinkSocket &opened) noexcept
{
    if (mnl() == nullptr)
        return -ELIBACC;
    NetlinkSocket made;
    made.fd_ = core::make_fd([] { return core::kernel::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE); });
    if (!made.fd_)
        return -errno;
    // Beyond the limit of the system if we may.
    if (receive_buffer > 0 && core::kernel::setsockopt(made.fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_buffer,
                                                       sizeof receive_buffer) != 0)
        (void)core::kernel::setsockopt(made.fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int strict = 1; // filters of a dump are obeyed; kernels before 4.20 send more, which does no harm
    (void)core::kernel::setsockopt(made.fd_.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &strict, sizeof strict);
    sockaddr_nl any{};
    any.nl_family = AF_NETLINK;
    if (core::kernel::bind(made.fd_.get(), reinterpret_cast<const sockaddr *>(&any), sizeof any) != 0)
        return -errno;
    for (const unsigned group : groups) {
        if (core::kernel::setsockopt(made.fd_.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0)
            return -errno;
    }
    made.buffer_.resize(kBuffer);
    opened = std::move(made);
    return 0;
}

// The first message of what came; `size`: bytes of all, 0 where nothing of use came, or negative errno.
const nlmsghdr *NetlinkSocket::receive(int flags, int &size) noexcept
{
    sockaddr_nl from{};
    socklen_t length = sizeof from;
    const ssize_t received =
        core::kernel::recvfrom(fd_.get(), buffer_.data(), buffer_.size(), flags | MSG_TRUNC, &from, &length);
    if (received < 0)
        size = errno == EINTR ? 0 : -errno;
    else if (from.nl_pid != 0) // any process may send to us
        size = 0;
    else
        size = static_cast<std::size_t>(received) > buffer_.size() ? -ENOBUFS : static_cast<int>(received);
    return reinterpret_cast<const nlmsghdr *>(buffer_.data());
}

// Not by mnl_cb_run(): it leaves the rest of a dump that changed in the socket, which then refuses the next one
// (EBUSY), and libmnl 1.0.4 reads no error in a dump's end.
int NetlinkSocket::ask(NetlinkRequest &request, const Handler &handler) noexcept
{
    nlmsghdr &asked = request.header();
    const bool is_dump = (asked.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    asked.nlmsg_seq = ++sequence_;
    asked.nlmsg_flags = static_cast<std::uint16_t>(asked.nlmsg_flags | (is_dump ? 0 : NLM_F_ACK));
    if (core::kernel::send(fd_.get(), &asked, asked.nlmsg_len, 0) < 0)
        return -errno;
    bool changed = false;
    while (true) {
        int size = 0;
        const nlmsghdr *message = receive(0, size);
        if (size < 0)
            return size;
        for (; mnl()->ok(message, size); message = mnl()->next(message, &size)) {
            if (message->nlmsg_seq != sequence_)
                continue; // of a request that was given up
            changed |= (message->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
            if (message->nlmsg_type == NLMSG_ERROR || message->nlmsg_type == NLMSG_DONE) {
                const int error = error_of(payload_of(*message));
                return error == 0 && changed ? -EINTR : error;
            }
            handler(*message, payload_of(*message));
        }
    }
}

int NetlinkSocket::take_events(const Handler &handler) noexcept
{
    while (true) {
        int size = 0;
        const nlmsghdr *message = receive(MSG_DONTWAIT, size);
        if (size < 0)
            return size == -EAGAIN ? 0 : size;
        for (; mnl()->ok(message, size); message = mnl()->next(message, &size))
            handler(*message, payload_of(*message));
    }
}

} // namespace vma::ether
