// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/sock_diag.hpp"

#include <cerrno>
#include <cstring>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"

#if !defined(SO_NETNS_COOKIE)
#define SO_NETNS_COOKIE 71 // Linux 5.14
#endif

namespace vma::local {
namespace {

constexpr std::size_t kAnswerRoom = 1024;
constexpr std::uint32_t kLoopbackInterface =
    1; // in every network namespace; finds those that are bound to it too, see inet_lookup() of the kernel

template <typename Request> struct Question {
    nlmsghdr header;
    Request request;
};

template <typename Request> Question<Request> question() noexcept
{
    Question<Request> q{};
    q.header.nlmsg_len = sizeof q;
    q.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    q.header.nlmsg_flags = NLM_F_REQUEST;
    return q;
}

bool to_v6(const sockaddr_storage &from, sockaddr_in6 &out) noexcept
{
    if (from.ss_family == AF_INET6) {
        std::memcpy(&out, &from, sizeof out);
        return true;
    }
    if (from.ss_family != AF_INET)
        return false;
    sockaddr_in v4;
    std::memcpy(&v4, &from, sizeof v4);
    out = {};
    out.sin6_family = AF_INET6;
    out.sin6_port = v4.sin_port;
    out.sin6_addr.s6_addr[10] = out.sin6_addr.s6_addr[11] = 0xff;
    std::memcpy(&out.sin6_addr.s6_addr[12], &v4.sin_addr, sizeof v4.sin_addr);
    return true;
}

Question<inet_diag_req_v2> ask_for_other_end(const TcpAddresses &addresses) noexcept
{
    auto q = question<inet_diag_req_v2>();
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&addresses.local.sin6_addr);
    const std::size_t skip = v4 ? 12 : 0;
    q.request.sdiag_family = v4 ? AF_INET : AF_INET6;
    q.request.sdiag_protocol = IPPROTO_TCP;
    q.request.idiag_states = ~0U;
    q.request.id.idiag_if = kLoopbackInterface;
    q.request.id.idiag_sport = addresses.peer.sin6_port;
    q.request.id.idiag_dport = addresses.local.sin6_port;
    q.request.id.idiag_cookie[0] = q.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    std::memcpy(q.request.id.idiag_src, &addresses.peer.sin6_addr.s6_addr[skip], sizeof(in6_addr) - skip);
    std::memcpy(q.request.id.idiag_dst, &addresses.local.sin6_addr.s6_addr[skip], sizeof(in6_addr) - skip);
    return q;
}

// The attribute of a unix_diag_msg that names the peer.
int read_peer(const char *attributes, std::size_t length, SocketInode &out) noexcept
{
    for (std::size_t at = 0; at + sizeof(nlattr) <= length;) {
        nlattr attribute;
        std::memcpy(&attribute, attributes + at, sizeof attribute);
        if (attribute.nla_len < NLA_HDRLEN || at + attribute.nla_len > length)
            break;
        if (attribute.nla_type == UNIX_DIAG_PEER && attribute.nla_len == NLA_HDRLEN + sizeof out) {
            std::memcpy(&out, attributes + at + NLA_HDRLEN, sizeof out);
            return out != 0 ? 0 : -FI_ENOENT;
        }
        at += NLA_ALIGN(attribute.nla_len);
    }
    return -FI_ENOENT;
}

} // namespace

SocketInode inode_of(int socket) noexcept
{
    struct stat status {
    };
    const bool known = core::kernel::fstat(socket, &status) == 0 && S_ISSOCK(status.st_mode);
    return known ? static_cast<SocketInode>(status.st_ino) : 0;
}

std::uint64_t network_of(int socket) noexcept
{
    std::uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    return core::kernel::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

int read_tcp_addresses(int socket, TcpAddresses &out) noexcept
{
    sockaddr_storage local{};
    sockaddr_storage peer{};
    socklen_t local_length = sizeof local;
    socklen_t peer_length = sizeof peer;
    if (core::kernel::getsockname(socket, reinterpret_cast<sockaddr *>(&local), &local_length) != 0 ||
        core::kernel::getpeername(socket, reinterpret_cast<sockaddr *>(&peer), &peer_length) != 0)
        return -errno;
    out.network = network_of(socket);
    return to_v6(local, out.local) && to_v6(peer, out.peer) ? 0 : -FI_EINVAL;
}

// Its namespace is the thread's at the time, which may be another one than it was.
int SockDiag::open_in(std::uint64_t network) noexcept
{
    if (network == 0)
        return -FI_ENOSYS;
    if (netlink_ && network_ == network)
        return 0;
    netlink_ = core::make_fd(
        [] { return core::kernel::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG); });
    if (!netlink_)
        return -errno;
    network_ = network_of(netlink_.get());
    return network_ == network ? 0 : -FI_EHOSTUNREACH;
}

// The kernel answers while it is asked, so nothing is waited for.
int SockDiag::ask(const void *question, std::size_t length, void *answer, std::size_t room,
                  std::size_t &filled) noexcept
{
    nlmsghdr header{};
    if (core::kernel::send(netlink_.get(), question, length, MSG_DONTWAIT) != static_cast<ssize_t>(length))
        return -errno;
    const ssize_t n = core::kernel::recvfrom(netlink_.get(), answer, room, MSG_DONTWAIT);
    if (n < static_cast<ssize_t>(NLMSG_HDRLEN))
        return n < 0 ? -errno : -FI_EINVAL;
    std::memcpy(&header, answer, sizeof header);
    filled = static_cast<std::size_t>(n);
    if (header.nlmsg_type == NLMSG_ERROR && filled >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
        nlmsgerr error;
        std::memcpy(&error, static_cast<const char *>(answer) + NLMSG_HDRLEN, sizeof error);
        return error.error < 0 ? error.error : -FI_EINVAL;
    }
    return header.nlmsg_type == SOCK_DIAG_BY_FAMILY ? 0 : -FI_EINVAL;
}

int SockDiag::other_end_of_tcp(const TcpAddresses &addresses, SocketInode &out, uid_t &owner) noexcept
{
    if (const int error = open_in(addresses.network))
        return error;
    alignas(nlmsghdr) char answer[kAnswerRoom];
    inet_diag_msg m{};
    std::size_t filled = 0;
    const auto q = ask_for_other_end(addresses);
    const int error = ask(&q, sizeof q, answer, sizeof answer, filled);
    if (error != 0) {
        netlink_.reset(); // an answer may still come
        return error;
    }
    if (filled < NLMSG_LENGTH(sizeof m))
        return -FI_EINVAL;
    std::memcpy(&m, answer + NLMSG_HDRLEN, sizeof m);
    // Where the connection has ended a listener may be found, which has no peer, or a socket that no process has.
    if (m.id.idiag_dport != addresses.local.sin6_port || m.id.idiag_sport != addresses.peer.sin6_port ||
        m.idiag_inode == 0)
        return -FI_ENOENT;
    out = m.idiag_inode;
    owner = m.idiag_uid;
    return 0;
}

int SockDiag::other_end_of_unix(int socket, SocketInode &out) noexcept
{
    if (const int error = open_in(network_of(socket)))
        return error;
    auto q = question<unix_diag_req>();
    q.request.sdiag_family = AF_UNIX;
    q.request.udiag_states = ~0U;
    q.request.udiag_ino = inode_of(socket);
    q.request.udiag_show = UDIAG_SHOW_PEER;
    std::uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    if (core::kernel::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &length) != 0)
        return -errno;
    q.request.udiag_cookie[0] = static_cast<std::uint32_t>(cookie);
    q.request.udiag_cookie[1] = static_cast<std::uint32_t>(cookie >> 32);
    alignas(nlmsghdr) char answer[kAnswerRoom];
    std::size_t filled = 0;
    const int error = ask(&q, sizeof q, answer, sizeof answer, filled);
    if (error != 0) {
        netlink_.reset();
        return error;
    }
    constexpr std::size_t kFixed = NLMSG_ALIGN(NLMSG_LENGTH(sizeof(unix_diag_msg)));
    return filled > kFixed ? read_peer(answer + kFixed, filled - kFixed, out) : -FI_ENOENT;
}

} // namespace vma::local
