// SPDX-License-Identifier: BSD-2-Clause
// Calls about descriptors, names and options. See actor.hpp.
#include "fabtests/sockets/programs/compared/actor.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace compared {

namespace {

sockaddr_in loopback(int port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
}

const sockaddr *plain(const sockaddr_in &address)
{
    return reinterpret_cast<const sockaddr *>(&address);
}

// A new descriptor in the command's other slot, as "0" in both worlds.
Reply placed(int fd, int slot)
{
    Reply reply = outcome(fd < 0 ? -1 : 0);
    if (fd >= 0)
        set_slot(slot, fd);
    return reply;
}

// Without Nagle's algorithm, which has a second small send wait for a time: what has come would be a matter of luck.
Reply make_socket(const Command &command)
{
    const int fd = ::socket(AF_INET, command.form | command.flags, 0);
    const int on = 1;
    if (fd >= 0 && command.form == SOCK_STREAM)
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return placed(fd, command.other);
}

int port_of(int fd)
{
    sockaddr_in address{};
    socklen_t length = sizeof address;
    return ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) == 0 ? ntohs(address.sin_port) : 0;
}

Reply listen_there(const Command &command)
{
    const int fd = fd_of(command.slot);
    const Reply reply = outcome(::listen(fd, static_cast<int>(command.value)));
    Reply named = reply;
    named.port = port_of(fd);
    return named;
}

Reply bind_there(const Command &command)
{
    const int fd = fd_of(command.slot);
    const sockaddr_in address = loopback(0);
    Reply reply = outcome(::bind(fd, plain(address), sizeof address));
    reply.port = port_of(fd);
    return reply;
}

Reply connect_there(const Command &command)
{
    const sockaddr_in address = loopback(command.port);
    return outcome(::connect(fd_of(command.slot), plain(address), sizeof address));
}

Reply dissolve(const Command &command)
{
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    return outcome(::connect(fd_of(command.slot), &nobody, sizeof nobody));
}

Reply name_of_end(const Command &command)
{
    sockaddr_in address{};
    socklen_t length = sizeof address;
    auto *const there = reinterpret_cast<sockaddr *>(&address);
    Reply reply = outcome(command.op == Op::kName ? ::getsockname(fd_of(command.slot), there, &length)
                                                  : ::getpeername(fd_of(command.slot), there, &length));
    if (reply.result == 0)
        reply.value = length * 100 + address.sin_family * 10 + (address.sin_port != 0 ? 1 : 0);
    return reply;
}

Reply close_slot(const Command &command)
{
    const int fd = fd_of(command.slot);
    set_slot(command.slot, -1);
    return outcome(::close(fd));
}

Reply replace(const Command &command)
{
    const int onto = fd_of(command.other);
    const int got = ::dup2(fd_of(command.slot), onto);
    return outcome(got < 0 ? -1 : got == onto);
}

Reply nonblocking(const Command &command)
{
    const int fd = fd_of(command.slot);
    if (command.form == 0) {
        int on = static_cast<int>(command.value);
        return outcome(::ioctl(fd, FIONBIO, &on));
    }
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0)
        return outcome(-1);
    Reply reply = outcome(::fcntl(fd, F_SETFL, command.value != 0 ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
    reply.value = flags;
    return reply;
}

Reply ask(const Command &command, unsigned long request)
{
    int value = -1;
    Reply reply = outcome(::ioctl(fd_of(command.slot), request, &value));
    reply.value = value;
    return reply;
}

Reply get_option(const Command &command)
{
    const int fd = fd_of(command.slot);
    int value[2] = {};
    socklen_t length = sizeof value;
    Reply reply = outcome(::getsockopt(fd, command.flags, command.form, value, &length));
    reply.value = value[0];
    return reply;
}

Reply set_option(const Command &command)
{
    const int fd = fd_of(command.slot);
    if (command.flags == SOL_SOCKET && (command.form == SO_RCVTIMEO || command.form == SO_SNDTIMEO)) {
        const timeval time{0, command.value};
        return outcome(::setsockopt(fd, SOL_SOCKET, command.form, &time, sizeof time));
    }
    if (command.flags == SOL_SOCKET && command.form == SO_LINGER) {
        const linger value{command.value >= 0, static_cast<int>(command.value >= 0 ? command.value : 0)};
        return outcome(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
    }
    const int value = static_cast<int>(command.value);
    return outcome(::setsockopt(fd, command.flags, command.form, &value, sizeof value));
}

} // namespace

Reply do_files(const Command &command)
{
    const int fd = fd_of(command.slot);
    switch (command.op) {
    case Op::kSocket:
        return make_socket(command);
    case Op::kListen:
        return listen_there(command);
    case Op::kBind:
        return bind_there(command);
    case Op::kConnect:
        return connect_there(command);
    case Op::kAccept:
        return placed(::accept4(fd, nullptr, nullptr, command.flags), command.other);
    case Op::kShutdown:
        return outcome(::shutdown(fd, command.form));
    case Op::kClose:
        return close_slot(command);
    case Op::kDuplicate:
        return placed(command.form == 0 ? ::dup(fd) : ::fcntl(fd, F_DUPFD_CLOEXEC, 0), command.other);
    case Op::kReplace:
        return replace(command);
    case Op::kNonblocking:
        return nonblocking(command);
    case Op::kUnread:
        return ask(command, FIONREAD);
    case Op::kMark:
        return ask(command, SIOCATMARK);
    case Op::kGetOption:
        return get_option(command);
    case Op::kSetOption:
        return set_option(command);
    case Op::kDissolve:
        return dissolve(command);
    default:
        return name_of_end(command);
    }
}

} // namespace compared
