// SPDX-License-Identifier: BSD-2-Clause
// Calls that few programs make on a socket: with the flags of files, from a socket into a pipe, behind a shutdown.
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <array>

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
    if (!me.server) {
        send_text(me.fd, "abc");
        me.step();
        return;
    }
    await_readable(me.fd, 3);
    receive_header(me, 0, 0);
    receive_header(me, 0, 8);
    must(::shutdown(me.fd, SHUT_RD), "shutdown");
    receive_header(me, 0, 8);
    receive_header(me, MSG_PEEK, 8);
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
