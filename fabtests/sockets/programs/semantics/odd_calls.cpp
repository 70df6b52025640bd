// SPDX-License-Identifier: BSD-2-Clause
// Calls that few programs make on a socket: with the flags of files, from a socket into a pipe, behind a shutdown.
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

void read_pipe(const Side &me, int fd)
{
    char bytes[64] = {};
    me.show("read of the pipe", ::read(fd, bytes, sizeof bytes - 1));
    me.say("\"%s\"", bytes);
}

// All that a call says of a message besides its bytes.
void receive_header(const Side &me, int flags, std::size_t room)
{
    char bytes[8];
    char control[64];
    sockaddr_storage name;
    iovec part{bytes, room};
    msghdr message{};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    message.msg_flags = 0x55;
    me.show("recvmsg", ::recvmsg(me.fd, &message, flags));
    me.say("name %u, control %zu, flags %#x", message.msg_namelen, message.msg_controllen,
           static_cast<unsigned>(message.msg_flags));
}

} // namespace

SCENARIO(flags_of_files)
{
    char bytes[] = "two";
    const iovec part{bytes, 3};
    if (me.server) {
        me.say("\"%s\"", receive_text(me.fd, 11).c_str());
        me.step();
        await_readable(me.fd, 3);
        me.show("preadv2", ::preadv2(me.fd, &part, 1, -1, RWF_HIPRI));
        me.step();
        return;
    }
    send_text(me.fd, "one");
    me.show("pwritev2", ::pwritev2(me.fd, &part, 1, -1, RWF_DSYNC | RWF_SYNC | RWF_APPEND));
    send_text(me.fd, "three");
    me.step();
    send_text(me.fd, "abc");
    me.step();
}

SCENARIO(sendfile_from_a_socket)
{
    if (!me.server) {
        send_text(me.fd, "hello");
        me.step();
        return;
    }
    std::array<int, 2> ends{};
    must(::pipe(ends.data()), "pipe");
    await_readable(me.fd, 5);
    me.show("sendfile to a socket", ::sendfile(me.fd, me.fd, nullptr, 5));
    me.show("sendfile from a pipe", ::sendfile(me.fd, ends[0], nullptr, 5));
    off_t offset = 0;
    me.show("sendfile with an offset", ::sendfile(ends[1], me.fd, &offset, 3));
    me.show("sendfile to a pipe", ::sendfile(ends[1], me.fd, nullptr, 3));
    read_pipe(me, ends[0]);
    me.show("sendfile to a pipe", ::sendfile(ends[1], me.fd, nullptr, 100));
    read_pipe(me, ends[0]);
    set_nonblocking(me.fd, true);
    me.show("sendfile of nothing", ::sendfile(ends[1], me.fd, nullptr, 100));
    me.step();
}

SCENARIO(headers_of_nothing)
{
    if (me.server) {
        send_text(me.fd, "abc");
        me.step();
        return;
    }
    await_readable(me.fd, 3);
    receive_header(me, 0, 0);
    receive_header(me, 0, 8);
    receive_header(me, MSG_DONTWAIT, 8);
    must(::shutdown(me.fd, SHUT_RD), "shutdown");
    receive_header(me, 0, 8);
    receive_header(me, MSG_PEEK, 8);
    me.step();
}

// Of a message without room for a name: the kernel doesn't say how long it is.
SCENARIO(headers_without_a_name)
{
    if (me.server) {
        send_text(me.fd, "abcdefghij");
        me.step();
        me.step();
        must(::shutdown(me.fd, SHUT_WR), "shutdown");
        me.step();
        return;
    }
    char bytes[4];
    iovec part{bytes, 2};
    mmsghdr messages[2]{};
    for (mmsghdr &message : messages) {
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
    }
    msghdr &first = messages[0].msg_hdr;
    const auto receive = [&](const char *name, int flags, std::size_t room) {
        part.iov_len = room;
        first.msg_namelen = 77;
        first.msg_control = bytes;
        first.msg_controllen = sizeof bytes;
        first.msg_flags = 0x55;
        me.show(name, ::recvmsg(me.fd, &first, flags));
        me.say("name %u, control %zu, flags %#x", first.msg_namelen, first.msg_controllen,
               static_cast<unsigned>(first.msg_flags));
    };
    await_readable(me.fd, 10);
    receive("peek", MSG_PEEK | MSG_CMSG_CLOEXEC, 2);
    receive("nothing", MSG_CMSG_CLOEXEC, 0);
    receive("two", 0, 2);
    receive("thrown away", MSG_TRUNC, 2);
    receive("all", MSG_WAITALL, 2);
    for (mmsghdr &message : messages)
        message.msg_hdr.msg_namelen = 78;
    me.show("recvmmsg", ::recvmmsg(me.fd, messages, 2, 0, nullptr));
    me.say("names %u %u", first.msg_namelen, messages[1].msg_hdr.msg_namelen);
    receive("not there", MSG_DONTWAIT, 2);
    me.step();
    me.step();
    receive("the end", 0, 2);
    me.step();
}

// The parent has the socket to itself again, and yet it is not accelerated: its bytes lie in memory.
SCENARIO(child_sets_a_time_beside_unread_bytes)
{
    if (me.server) {
        send_text(me.fd, "unread");
        me.step();
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 6);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        const timeval timeout{0, 20'000};
        ::_exit(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 ? 0 : 1);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("a child sets SO_RCVTIMEO: status %d", status);
    char bytes[64];
    me.show("recv", ::recv(me.fd, bytes, sizeof bytes, MSG_WAITALL));
    me.step();
}

// The peer closes with something unread, which resets the connection behind "eight by".
void reset_behind_eight(Side &me, void (*then)(Side &me, char *bytes, std::size_t room))
{
    if (me.server) {
        me.step(); // the client's bytes are here, or on their way
        await_readable(me.fd, 4);
        send_text(me.fd, "eight by");
        ::close(me.fd);
        me.step();
        return;
    }
    char bytes[32] = {};
    send_text(me.fd, "four");
    me.step();
    me.step();
    await_events(me.fd, POLLERR);
    then(me, bytes, sizeof bytes);
    me.show("recv", ::recv(me.fd, bytes, sizeof bytes, MSG_DONTWAIT));
}

// A read of more than there is leaves the reset to the next call, whatever comes in between.
SCENARIO(reset_behind_bytes_and_a_new_program)
{
    reset_behind_eight(me, [](Side &side, char *bytes, std::size_t room) {
        side.show("read", ::read(side.fd, bytes, room));
        must(::system("true"), "system");
        pollfd polled{side.fd, POLLIN | POLLOUT, 0};
        side.show("poll", ::poll(&polled, 1, 0));
        side.say("%s", event_names(static_cast<unsigned>(polled.revents)).c_str());
        side.show("recv", ::recv(side.fd, bytes, room, MSG_DONTWAIT));
    });
}

SCENARIO(splice_at_a_reset)
{
    reset_behind_eight(me, [](Side &side, char *bytes, std::size_t room) {
        int ends[2];
        must(::pipe(ends), "pipe");
        side.show("read", ::read(side.fd, bytes, room));
        side.show("splice", ::splice(side.fd, nullptr, ends[1], nullptr, 8, SPLICE_F_NONBLOCK));
        side.show("splice", ::splice(side.fd, nullptr, ends[1], nullptr, 8, SPLICE_F_NONBLOCK));
    });
}

// The error is the socket's, not the process's that has read the last bytes.
SCENARIO(reset_behind_bytes_of_another_process)
{
    reset_behind_eight(me, [](Side &side, char *bytes, std::size_t room) {
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            side.show("child's read", ::read(side.fd, bytes, room));
            ::_exit(0);
        }
        must(::waitpid(child, nullptr, 0), "waitpid");
        side.show("send", ::send(side.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    });
}

// What is unread goes with the connection.
SCENARIO(dissolved_with_unread_bytes)
{
    if (me.server) {
        send_text(me.fd, "eight by");
        me.step();
        me.step();
        return;
    }
    char bytes[32] = {};
    int unread = 0;
    me.step();
    await_readable(me.fd, 8);
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    me.show("connect", ::connect(me.fd, &nobody, sizeof nobody));
    me.show("FIONREAD", ::ioctl(me.fd, FIONREAD, &unread));
    me.say("%d", unread);
    for (int i = 0; i < 2; ++i)
        me.show("recv", ::recv(me.fd, bytes, sizeof bytes, MSG_DONTWAIT));
    me.step();
}

// A read of nothing waits for its time-out, and is none the less a read of nothing.
SCENARIO(read_of_nothing_in_time)
{
    const timeval time{0, 3000};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), "SO_RCVTIMEO");
    me.show("recv", ::recv(me.fd, nullptr, 0, 0));
    me.show("recv, not waiting", ::recv(me.fd, nullptr, 0, MSG_DONTWAIT));
    me.step();
}

// A call moves no more than that a program can keep the number of bytes in an int.
SCENARIO(more_than_a_call_moves)
{
    static char block[2 << 20];
    static iovec parts[IOV_MAX];
    constexpr std::size_t kAll = sizeof block * IOV_MAX;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = IOV_MAX;
    for (iovec &part : parts)
        part = {block, sizeof block};
    iovec cut[] = {{block, 4}, {block + 4, INT_MAX}};
    send_text(me.fd, "0123456789");
    await_readable(me.fd, 10);
    me.show("readv of what is there", ::readv(me.fd, cut, 2));
    me.step();
    const std::string name = me.server ? "recvmsg" : "sendmsg";
    const auto n = static_cast<std::size_t>(
        me.show(name.c_str(), me.server ? ::recvmsg(me.fd, &message, MSG_WAITALL) : ::sendmsg(me.fd, &message, 0)));
    if (me.server)
        receive_all(me.fd, block, std::min(kAll - n, sizeof block));
    else
        send_all(me.fd, block, std::min(kAll - n, sizeof block));
    me.step();
}
