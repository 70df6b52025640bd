// SPDX-License-Identifier: BSD-2-Clause
// Calls that move bytes, in all their forms. See actor.hpp.
#include "fabtests/sockets/programs/compared/actor.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

namespace compared {

namespace {

// In three parts, the second of them empty where the length is even.
int parts_of(std::vector<char> &bytes, iovec (&parts)[3])
{
    const std::size_t first = bytes.size() / 3;
    const std::size_t second = bytes.size() % 2 == 0 ? 0 : (bytes.size() - first) / 2;
    parts[0] = {bytes.data(), first};
    parts[1] = {bytes.data() + first, second};
    parts[2] = {bytes.data() + first + second, bytes.size() - first - second};
    return 3;
}

Reply send_bytes(const Command &command)
{
    std::vector<char> bytes(static_cast<std::size_t>(command.length));
    fill(bytes.data(), bytes.size(), command.seed);
    const int fd = fd_of(command.slot);
    const int flags = command.flags | MSG_NOSIGNAL;
    iovec parts[3];
    mmsghdr several[2] = {};
    several[0].msg_hdr.msg_iov = parts;
    several[0].msg_hdr.msg_iovlen = static_cast<std::size_t>(parts_of(bytes, parts));
    several[1] = several[0];
    switch (command.form) {
    case 0:
        return outcome(::send(fd, bytes.data(), bytes.size(), flags));
    case 1:
        return outcome(::write(fd, bytes.data(), bytes.size()));
    case 2:
        return outcome(::writev(fd, parts, 3));
    case 3:
        return outcome(::sendmsg(fd, &several[0].msg_hdr, flags));
    case 4:
        return outcome(::sendto(fd, bytes.data(), bytes.size(), flags, nullptr, 0));
    default:
        Reply reply = outcome(::sendmmsg(fd, several, 2, flags));
        reply.value = several[0].msg_len + several[1].msg_len;
        return reply;
    }
}

bool is_stream(int fd)
{
    int type = 0;
    socklen_t length = sizeof type;
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

Reply receive_message_forms(const Command &command, int fd, std::vector<char> &bytes)
{
    iovec parts[3];
    mmsghdr several[2] = {};
    msghdr &one = several[0].msg_hdr;
    one.msg_iov = parts;
    one.msg_iovlen = static_cast<std::size_t>(parts_of(bytes, parts));
    Reply reply;
    if (command.form == 3) {
        reply = outcome(::recvmsg(fd, &one, command.flags));
    } else {
        std::vector<char> more(bytes.size());
        iovec second{more.data(), more.size()};
        several[1].msg_hdr.msg_iov = &second;
        several[1].msg_hdr.msg_iovlen = 1;
        reply = outcome(::recvmmsg(fd, several, is_stream(fd) ? 1 : 2, command.flags | MSG_DONTWAIT, nullptr));
        reply.value = reply.result > 1 ? several[1].msg_len + 1 : 0;
        reply.sum = reply.value != 0 ? sum_of(more.data(), std::min<std::size_t>(more.size(), several[1].msg_len)) : 0;
        if (reply.result == 1)
            reply.result = several[0].msg_len; // as the other forms say it
    }
    reply.flags = reply.result < 0 ? 0 : one.msg_flags & ~MSG_CMSG_CLOEXEC;
    return reply;
}

bool has_unread(int fd)
{
    int unread = 0;
    return ::ioctl(fd, FIONREAD, &unread) == 0 && unread > 0;
}

Reply receive_once(const Command &command, std::vector<char> &bytes)
{
    const int fd = fd_of(command.slot);
    iovec parts[3];
    parts_of(bytes, parts);
    switch (command.form) {
    case 0:
        return outcome(::recv(fd, bytes.data(), bytes.size(), command.flags));
    case 1:
        return outcome(::read(fd, bytes.data(), bytes.size()));
    case 2:
        return outcome(::readv(fd, parts, 3));
    case 4:
        return outcome(::recvfrom(fd, bytes.data(), bytes.size(), command.flags, nullptr, nullptr));
    default:
        return receive_message_forms(command, fd, bytes);
    }
}

// Who sleeps would be taken for one whose call waits.
void stay_awake_for(std::chrono::microseconds time)
{
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < time)
        ::sched_yield();
}

// Of a stream the library's first call may bring less than all that is there, and the next one the rest: what has come
// since it looked last, or is being sent while it wakes (`slept`).
void receive_rest(const Command &command, std::vector<char> &bytes, Reply &reply, bool slept)
{
    const int fd = fd_of(command.slot);
    if (!is_stream(fd))
        return;
    if (slept)
        stay_awake_for(std::chrono::milliseconds(20));
    const bool has_flags = command.form != 1 && command.form != 2;
    const int flags = MSG_DONTWAIT | (has_flags ? command.flags & MSG_TRUNC : 0);
    for (auto done = static_cast<std::size_t>(reply.result); done < bytes.size() && has_unread(fd);) {
        const ssize_t more = ::recv(fd, bytes.data() + done, bytes.size() - done, flags);
        if (more <= 0)
            break;
        done += static_cast<std::size_t>(more);
        reply.result += more;
    }
}

Reply receive_bytes(const Command &command)
{
    constexpr int kWithoutTheRest = MSG_PEEK | MSG_OOB | MSG_ERRQUEUE;
    std::vector<char> bytes(static_cast<std::size_t>(command.length));
    const auto began = std::chrono::steady_clock::now();
    Reply reply = receive_once(command, bytes);
    const bool slept = std::chrono::steady_clock::now() - began > std::chrono::microseconds(50);
    const bool is_plain = command.form == 1 || command.form == 2 || (command.flags & kWithoutTheRest) == 0;
    if (is_plain && reply.result > 0 && reply.value == 0)
        receive_rest(command, bytes, reply, slept);
    reply.sum += sum_of(bytes.data(), bytes.size()); // what is not overwritten is 0 in both worlds
    return reply;
}

// Bytes that go through a pipe: from the socket until nothing is left, as splice() may stop at each piece.
Reply splice_out(const Command &command)
{
    int ends[2];
    if (::pipe(ends) != 0)
        return outcome(-1);
    std::vector<char> bytes(static_cast<std::size_t>(command.length));
    std::size_t moved = 0;
    ssize_t step = 1;
    int error = 0;
    while (moved < bytes.size() && step > 0 && (moved == 0 || has_unread(fd_of(command.slot)))) {
        step = ::splice(fd_of(command.slot), nullptr, ends[1], nullptr, bytes.size() - moved, SPLICE_F_NONBLOCK);
        error = step < 0 ? errno : 0;
        for (ssize_t left = step; left > 0;) {
            const ssize_t got = ::read(ends[0], bytes.data() + moved, static_cast<std::size_t>(left));
            if (got <= 0)
                ::_exit(9);
            moved += static_cast<std::size_t>(got);
            left -= got;
        }
    }
    ::close(ends[0]);
    ::close(ends[1]);
    Reply reply;
    reply.result = static_cast<std::int64_t>(moved);
    reply.error = moved > 0 ? 0 : error;
    reply.sum = sum_of(bytes.data(), moved);
    return reply;
}

Reply splice_in(const Command &command, const std::vector<char> &bytes)
{
    int ends[2];
    if (::pipe(ends) != 0)
        return outcome(-1);
    Reply reply;
    if (::write(ends[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        ::_exit(9);
    reply = outcome(::splice(ends[0], nullptr, fd_of(command.slot), nullptr, bytes.size(), SPLICE_F_NONBLOCK));
    ::close(ends[0]);
    ::close(ends[1]);
    return reply;
}

Reply send_file(const Command &command, const std::vector<char> &bytes)
{
    const int file = ::memfd_create("compared", MFD_CLOEXEC);
    if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        ::_exit(9);
    off_t from = 0;
    Reply reply = outcome(::sendfile(fd_of(command.slot), file, &from, bytes.size()));
    reply.value = from;
    ::close(file);
    return reply;
}

Reply move_bytes(const Command &command)
{
    if (command.form == 0)
        return splice_out(command);
    std::vector<char> bytes(static_cast<std::size_t>(command.length));
    fill(bytes.data(), bytes.size(), command.seed);
    return command.form == 1 ? splice_in(command, bytes) : send_file(command, bytes);
}

} // namespace

Reply do_bytes(const Command &command)
{
    if (command.op == Op::kSend)
        return send_bytes(command);
    return command.op == Op::kReceive ? receive_bytes(command) : move_bytes(command);
}

} // namespace compared
