// SPDX-License-Identifier: BSD-2-Clause
// The order of events, by act: in each round the client does something by the kernel that the server hears of on one
// descriptor, each time in another way, and then sends a byte on an accelerated connection. The server, whose epoll set
// has both, is never told of the byte first.
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kRounds = 60; // of each act
constexpr char kByte = 'x';

// What the client does with its end of what the server watches.
struct Act {
    const char *name;
    void (*make)(int ends[2]); // the server's first; nullptr: the client connects
    void (*act)(int fd);
    bool ends; // it can be done once: each round has a new one
};

void make_unix(int ends[2])
{
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
}

void make_pipe(int ends[2])
{
    must(::pipe(ends), "pipe");
}

void make_eventfd(int ends[2])
{
    ends[0] = must(::eventfd(0, 0), "eventfd");
    ends[1] = must(::dup(ends[0]), "dup");
}

void gone(ssize_t n)
{
    if (n < 0)
        must(-1, "the act");
}

iovec one()
{
    return {const_cast<char *>(&kByte), 1};
}

msghdr message(iovec &part)
{
    msghdr m = {};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    return m;
}

int file()
{
    static const int fd = ::fileno(std::tmpfile());
    static const ssize_t written = ::pwrite(fd, &kByte, 1, 0);
    gone(written);
    return fd;
}

void by_write(int fd)
{
    gone(::write(fd, &kByte, 1));
}

void by_writev(int fd)
{
    const iovec part = one();
    gone(::writev(fd, &part, 1));
}

void by_send(int fd)
{
    gone(::send(fd, &kByte, 1, 0));
}

void by_sendto(int fd)
{
    gone(::sendto(fd, &kByte, 1, 0, nullptr, 0));
}

void by_sendmsg(int fd)
{
    iovec part = one();
    const msghdr m = message(part);
    gone(::sendmsg(fd, &m, 0));
}

void by_sendmmsg(int fd)
{
    iovec part = one();
    mmsghdr m = {message(part), 0};
    gone(::sendmmsg(fd, &m, 1, 0));
}

void by_sendfile(int fd)
{
    off_t offset = 0;
    gone(::sendfile(fd, file(), &offset, 1));
}

void by_splice(int fd)
{
    off64_t offset = 0;
    gone(::splice(file(), &offset, fd, nullptr, 1, 0));
}

void by_dprintf(int fd)
{
    gone(::dprintf(fd, "%c", kByte));
}

void by_syscall(int fd)
{
    gone(::syscall(SYS_write, fd, &kByte, 1));
}

void by_eventfd_write(int fd)
{
    gone(::eventfd_write(fd, 1));
}

void by_shutdown(int fd)
{
    gone(::shutdown(fd, SHUT_WR));
}

void by_close(int fd)
{
    gone(::close(fd));
}

void by_close_range(int fd)
{
    gone(::close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0));
}

void by_dup2(int fd)
{
    gone(::dup2(STDERR_FILENO, fd));
}

void by_fclose(int fd)
{
    FILE *const stream = ::fdopen(fd, "w");
    std::fputc(kByte, stream);
    gone(std::fclose(stream));
}

// A plain connection of ours, which has carried too little to be accelerated. The byte has come when it is
// acknowledged: on a busy machine that is some time after the call.
void by_plain_send(int fd)
{
    by_send(fd);
    for (int unacknowledged = 1; unacknowledged != 0;)
        must(::ioctl(fd, SIOCOUTQ, &unacknowledged), "SIOCOUTQ");
}

constexpr Act kActs[] = {
    {"write() to a pipe", make_pipe, by_write, false},
    {"writev()", make_unix, by_writev, false},
    {"send()", make_unix, by_send, false},
    {"sendto()", make_unix, by_sendto, false},
    {"sendmsg()", make_unix, by_sendmsg, false},
    {"sendmmsg()", make_unix, by_sendmmsg, false},
    {"sendfile()", make_unix, by_sendfile, false},
    {"splice()", make_pipe, by_splice, false},
    {"dprintf()", make_pipe, by_dprintf, false},
    {"syscall()", make_pipe, by_syscall, false},
    {"eventfd_write()", make_eventfd, by_eventfd_write, false},
    {"shutdown()", make_unix, by_shutdown, true},
    {"close()", make_unix, by_close, true},
    {"close_range()", make_unix, by_close_range, true},
    {"dup2()", make_pipe, by_dup2, true},
    {"fclose()", make_pipe, by_fclose, true},
    {"a send on a connection that is not accelerated", nullptr, by_plain_send, true},
};

// This side's end of what an act is done with.
int open_end(Peer &me, const Act &act)
{
    if (act.make == nullptr)
        return me.connect_plain();
    if (me.server)
        return take_descriptor(me.control);
    int ends[2];
    act.make(ends);
    give_descriptor(me.control, ends[0]);
    ::close(ends[0]);
    return ends[1];
}

void add(int set, int fd)
{
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

// Until it is told of the byte.
void wait_for_both(int set, int stream, const Act &act)
{
    for (bool byte = false, acted = false; !byte;) {
        epoll_event events[4];
        const int n = must(::epoll_wait(set, events, 4, -1), "epoll_wait");
        for (int i = 0; i < n; ++i)
            (events[i].data.fd == stream ? byte : acted) = true;
        if (byte && !acted)
            die("%s: the byte behind it was told of first", act.name);
    }
}

void serve(Peer &me, int stream, const Act &act)
{
    const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    add(set, stream);
    for (int round = 0, other = -1; round < kRounds; ++round) {
        char room[64];
        if (other < 0)
            add(set, other = open_end(me, act));
        receive_all(stream, room, 1);
        send_all(stream, &kByte, 1);
        wait_for_both(set, stream, act);
        receive_all(stream, room, 1);
        [[maybe_unused]] const ssize_t n = ::read(other, room, sizeof room);
        if (!act.ends && round + 1 < kRounds)
            continue;
        ::close(other);
        other = -1;
    }
    ::close(set);
}

// What has been done by the kernel so far is told with the first of the two bytes.
void act_and_send(Peer &me, int stream, const Act &act)
{
    for (int round = 0, fd = -1; round < kRounds; ++round) {
        char go = 0;
        if (fd < 0)
            fd = open_end(me, act);
        send_all(stream, &kByte, 1);
        receive_all(stream, &go, 1);
        act.act(fd);
        send_all(stream, &kByte, 1);
        if (act.ends)
            fd = -1;
    }
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    me.open_listener();
    const int stream = me.connect_plain();
    me.offload(stream);
    for (const Act &act : kActs) {
        if (me.server)
            serve(me, stream, act);
        else
            act_and_send(me, stream, act);
        me.step();
    }
    return 0;
}
