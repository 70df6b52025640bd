// SPDX-License-Identifier: BSD-2-Clause
// An epoll set that the client passes on before it has a socket, by sendmsg or by sendmmsg as the last argument says.
// Who has got it hears of a connection that is accelerated before it is registered.
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

void give_by_sendmmsg(int over, int fd)
{
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    char byte = 0;
    iovec part = {&byte, 1};
    mmsghdr message{};
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
    message.msg_hdr.msg_control = control;
    message.msg_hdr.msg_controllen = sizeof control;
    cmsghdr *const header = CMSG_FIRSTHDR(&message.msg_hdr);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    must(::sendmmsg(over, &message, 1, 0), "sendmmsg");
}

// 0: it has heard.
int await_event(int set)
{
    epoll_event event{};
    return ::epoll_wait(set, &event, 1, patience::milliseconds()) == 1 && event.data.u32 == 7 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    int set = -1;
    pid_t child = -1;
    if (!me.server) {
        int ends[2];
        must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
        child = must(::fork(), "fork"); // before there is a set: it has not got it that way
        if (child == 0)
            ::_exit(await_event(take_descriptor(ends[1])));
        set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
        if (std::strcmp(argv[argc - 1], "sendmmsg") == 0)
            give_by_sendmmsg(ends[0], set);
        else
            give_descriptor(ends[0], set);
    }
    me.open_listener();
    const int fd = me.connect_plain();
    me.offload(fd);
    if (!me.server) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = 7;
        must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    me.step();
    if (me.server)
        send_all(fd, "x", 1);
    int status = 0;
    if (!me.server)
        must(::waitpid(child, &status, 0), "waitpid");
    me.step();
    return status == 0 ? 0 : 1;
}
