// SPDX-License-Identifier: BSD-2-Clause
// A message is looked at first, which gives us a second descriptor for each file that it brings: while the first ones
// lie in the queue, none of ours is the last, so closing it ends nothing. Only what is known to be harmless is taken.
#include "local/strangers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/ioctl.h>

#include "core/kernel.hpp"
#include "local/cm/message.hpp"
#include "local/segment.hpp"
#include "vma/passed.hpp"

namespace vma::local {

constinit const StrangersCalls kStrangersCalls = {core::kernel::getsockopt, core::kernel::setsockopt,
                                                  core::kernel::shutdown, core::kernel::recvmsg};

namespace {

enum class Kind {
    harmless, // it can be closed without asking anybody
    unknown,  // for want of a descriptor
    other,
};

// Descriptors in a socket's queue, by proc(5), which needs none of the locks that who shares the socket can hold.
// -1: it can't be told for want of a descriptor. Linux before 5.6 doesn't tell, nor does one before 5.14 tell a process
// that has become another user: 0. The caller has a ForkGuard.
int descriptors_inside(int socket) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/thread-self/fdinfo/%d", socket);
    const core::UniqueFd file(core::kernel::open(path, O_RDONLY | O_CLOEXEC));
    char text[1024];
    const ssize_t length = file ? core::kernel::read(file.get(), text, sizeof text - 1) : -1;
    if (length < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -1 : 0;
    text[length] = '\0';
    int count = 0;
    const char *const line = std::strstr(text, "scm_fds:");
    return line != nullptr && std::sscanf(line, "scm_fds: %d", &count) == 1 ? count : 0;
}

// A bell: one end of a pair, without a name, which may lie in any file system. Nothing is in it and nothing can come
// into it from here on, and it rings as before.
Kind kind_of_unix_socket(int fd) noexcept
{
    int type = 0;
    socklen_t length = sizeof type;
    sockaddr_storage name;
    socklen_t name_length = sizeof name;
    socklen_t peer_length = sizeof name;
    const auto address = reinterpret_cast<sockaddr *>(&name);
    if (core::kernel::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM ||
        core::kernel::getsockname(fd, address, &name_length) != 0 || name_length > sizeof(sa_family_t) ||
        core::kernel::getpeername(fd, address, &peer_length) != 0 || core::kernel::shutdown(fd, SHUT_RD) != 0)
        return Kind::other;
    int unread = -1;
    if (core::kernel::ioctl(fd, FIONREAD, &unread) != 0 || unread != 0)
        return Kind::other;
    const int inside = descriptors_inside(fd);
    return inside < 0 ? Kind::unknown : inside == 0 ? Kind::harmless : Kind::other;
}

Kind kind_of(int fd) noexcept
{
    if (is_sealed_memory(fd))
        return Kind::harmless;
    const int flags = core::kernel::fcntl(fd, F_GETFL);
    if (flags < 0 || socket_number(fd) == 0)
        return Kind::other;
    if ((flags & O_PATH) != 0)
        return Kind::harmless;
    return is_unix_socket(fd) ? kind_of_unix_socket(fd) : Kind::other;
}

// What a look at a message has given us. What is not harmless is left open: even this close could wait. More than `fds`
// has room for are closed, and make the count wrong.
Taken keep(const msghdr &header, std::span<core::UniqueFd> fds, unsigned &count) noexcept
{
    Taken taken = Taken::message;
    each_passed(header, [&](int fd) {
        const Kind kind = kind_of(fd);
        if (kind == Kind::other)
            taken = Taken::refused;
        else if (kind == Kind::unknown && taken == Taken::message)
            taken = Taken::lost;
        if (kind == Kind::harmless && count < fds.size())
            fds[count] = core::adopt_fd(fd);
        else if (kind != Kind::other)
            core::kernel::close(fd);
        ++count;
    });
    if (taken == Taken::message && (header.msg_flags & MSG_CTRUNC) != 0)
        return count >= fds.size() ? Taken::refused : Taken::lost;
    return taken;
}

// Out of the queue it goes, without more descriptors.
bool take_what_was_seen(int socket) noexcept
{
    msghdr header{};
    ssize_t length;
    do {
        length = core::kernel::recvmsg(socket, &header, MSG_DONTWAIT);
    } while (length < 0 && (errno == EINTR || errno == ECONNRESET)); // as at the look
    return length >= 0;
}

void leave_open(core::UniqueFd socket) noexcept
{
    socket.leave_open();
    g_sockets_left_open.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

Taken take_from_stranger(int socket, std::span<std::byte> bytes, std::span<core::UniqueFd> fds,
                         StrangersMessage &out) noexcept
{
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kLinkFdCount)];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    ssize_t length;
    Taken taken;
    out = {};
    {
        const core::ForkGuard guard; // nor may a child be born with descriptors that nobody knows yet
        do {
            header.msg_control = control;
            header.msg_controllen = sizeof control;
            length = core::kernel::recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            // Told once, before what the peer sent earlier, when it closed with something of ours unread.
        } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
        if (length < 0)
            return errno == EAGAIN ? Taken::nothing : Taken::end;
        if (length == 0 && header.msg_controllen == 0)
            return Taken::end;
        taken = keep(header, fds, out.fd_count);
    }
    if (taken == Taken::message && !take_what_was_seen(socket))
        taken = Taken::lost;
    if (taken != Taken::message)
        std::for_each(fds.begin(), fds.end(), [](core::UniqueFd &fd) { fd.reset(); }); // the queue has them
    out.length = static_cast<std::size_t>(length);
    out.flags = header.msg_flags;
    return taken;
}

void let_go(core::UniqueFd socket, bool was_refused) noexcept
{
    if (!socket.is_of_this_process())
        return;
    const int saved = errno;
    while (!is_safe_to_close(socket.get(), kStrangersCalls)) {
        std::byte bytes[1];
        core::UniqueFd fds[kLinkFdCount];
        StrangersMessage message;
        if (was_refused || is_stream(socket.get(), kStrangersCalls) || // a bell, which brings none
            take_from_stranger(socket.get(), bytes, fds, message) != Taken::message) {
            leave_open(std::move(socket));
            break;
        }
    }
    errno = saved;
}

// At the limit of descriptors accept4(2) fails before it looks whether there is anybody.
void let_go_of_listener(core::UniqueFd socket) noexcept
{
    if (!socket.is_of_this_process())
        return;
    const int saved = errno;
    pollfd queue{socket.get(), POLLIN, 0};
    const bool is_empty = core::kernel::poll(&queue, 1, 0) == 0;
    static_cast<void>(core::kernel::shutdown(socket.get(), SHUT_RDWR)); // who connects from here on is refused
    bool more = true;
    while (more) {
        core::UniqueFd one = core::make_fd(
            [&] { return core::kernel::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (one)
            let_go(std::move(one));
        else
            more = errno == EINTR || errno == ECONNABORTED;
    }
    if (errno != EAGAIN && errno != EINVAL && !is_empty)
        leave_open(std::move(socket));
    errno = saved;
}

} // namespace vma::local
