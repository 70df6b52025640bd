// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/group_link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "vma/passed.hpp"

#ifndef SO_NETNS_COOKIE // Linux 5.14
#define SO_NETNS_COOKIE 71
#endif

namespace vma::ether {
namespace {

constexpr std::uint32_t kVersion = 2; // of what is shared: processes with another library don't share with us
constexpr std::size_t kAtOnce = 200;  // descriptors of a message; the kernel takes 253
constexpr std::uint32_t kMost = 4096; // of an answer
constexpr int kBacklog = 64;

struct Question {
    std::uint32_t version;
};

struct Answer {
    std::int32_t status;
    std::uint32_t descriptors; // of all messages together
};

// The kernel keeps such names apart by network namespace, as it does the interface's index.
socklen_t make_name(unsigned interface, sockaddr_un &name) noexcept
{
    name = {};
    name.sun_family = AF_UNIX;
    const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "vma-nic/%u/%u", interface,
                                     static_cast<unsigned>(::geteuid()));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
}

core::UniqueFd make_socket() noexcept
{
    return core::make_fd(
        [] { return core::kernel::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

template <typename T> bool option(int fd, int name, T &value) noexcept
{
    socklen_t size = sizeof value;
    return core::kernel::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0;
}

bool is_this_users(int connection, uid_t &user) noexcept
{
    ucred who{};
    if (!option(connection, SO_PEERCRED, who))
        return false;
    user = who.uid;
    return user == ::geteuid();
}

// Only who has CAP_NET_RAW in the network namespace can make one.
core::UniqueFd make_proof() noexcept
{
    return core::make_fd([] { return core::kernel::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0); });
}

bool is_proof(int shown) noexcept
{
    int family = 0;
    if (!option(shown, SO_DOMAIN, family) || family != AF_XDP)
        return false;
    std::uint64_t theirs = 0;
    std::uint64_t ours = 0;
    const core::UniqueFd mine = make_proof();
    return !option(shown, SO_NETNS_COOKIE, theirs) || !option(mine.get(), SO_NETNS_COOKIE, ours) || theirs == ours;
}

template <typename Message>
bool send_with(int socket, const Message &message, std::span<const int> descriptors) noexcept
{
    PassedRoom<kAtOnce> room;
    iovec part{const_cast<Message *>(&message), sizeof message};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    pass(header, room, descriptors);
    return core::kernel::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t{sizeof message};
}

// 0, -EAGAIN, -ECONNRESET where nobody is there any more, -EPROTO where it is no such message, -EMFILE.
template <typename Message>
int receive_with(int socket, Message &message, std::vector<core::UniqueFd> &descriptors) noexcept
{
    PassedRoom<kAtOnce> room;
    iovec part{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    expect_passed(header, room);
    const core::ForkGuard guard;
    const ssize_t length = core::kernel::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (length < 0)
        return errno == EAGAIN ? -EAGAIN : -ECONNRESET;
    each_passed(header, [&](int fd) { descriptors.push_back(core::adopt_fd(fd)); });
    if (length == 0)
        return -ECONNRESET;
    if ((header.msg_flags & MSG_CTRUNC) != 0)
        return -EMFILE;
    return length == ssize_t{sizeof message} && (header.msg_flags & MSG_TRUNC) == 0 ? 0 : -EPROTO;
}

} // namespace

core::UniqueFd listen_for_members(unsigned interface) noexcept
{
    core::UniqueFd socket = make_socket();
    sockaddr_un name;
    const socklen_t length = make_name(interface, name);
    if (!socket || core::kernel::bind(socket.get(), reinterpret_cast<const sockaddr *>(&name), length) != 0 ||
        core::kernel::listen(socket.get(), kBacklog) != 0)
        return {};
    return socket;
}

core::UniqueFd ask_member(unsigned interface, uid_t &holder) noexcept
{
    const core::UniqueFd proof = make_proof();
    core::UniqueFd socket = make_socket();
    sockaddr_un name;
    const socklen_t length = make_name(interface, name);
    if (!proof || !socket ||
        core::kernel::connect(socket.get(), reinterpret_cast<const sockaddr *>(&name), length) != 0)
        return {};
    if (!is_this_users(socket.get(), holder)) {
        errno = EACCES;
        return {};
    }
    const int shown = proof.get();
    if (!send_with(socket.get(), Question{kVersion}, {&shown, 1}))
        return {};
    return socket;
}

Asked read_question(int connection) noexcept
{
    Question question{};
    std::vector<core::UniqueFd> shown;
    const int status = receive_with(connection, question, shown);
    if (status == -EAGAIN)
        return Asked::kNothingYet;
    uid_t user = 0;
    const bool right = status == 0 && question.version == kVersion && is_this_users(connection, user) &&
                       shown.size() == 1 && is_proof(shown.front().get());
    return right ? Asked::kRight : Asked::kWrong;
}

bool send_answer(int connection, int status, std::span<const int> descriptors) noexcept
{
    const Answer answer{status, static_cast<std::uint32_t>(descriptors.size())};
    do {
        const std::size_t now = std::min(descriptors.size(), kAtOnce);
        if (!send_with(connection, answer, descriptors.first(now)))
            return false;
        descriptors = descriptors.subspan(now);
    } while (!descriptors.empty());
    return true;
}

int receive_answer(int connection, int milliseconds, std::vector<core::UniqueFd> &descriptors) noexcept
{
    const std::uint64_t end = core::monotonic_ns() + static_cast<std::uint64_t>(milliseconds) * 1'000'000;
    while (true) {
        Answer answer{};
        const int status = receive_with(connection, answer, descriptors);
        if (status == 0 && answer.status != 0)
            return answer.status < 0 ? answer.status : -EPROTO;
        if (status == 0 && (answer.descriptors > kMost || descriptors.size() > answer.descriptors))
            return -EPROTO;
        if (status == 0 && descriptors.size() == answer.descriptors)
            return 0;
        if (status != 0 && status != -EAGAIN)
            return status;
        const std::uint64_t now = core::monotonic_ns();
        if (now >= end)
            return -ETIMEDOUT;
        pollfd wanted{connection, POLLIN, 0};
        if (status == -EAGAIN)
            (void)core::kernel::poll(&wanted, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    }
}

} // namespace vma::ether
