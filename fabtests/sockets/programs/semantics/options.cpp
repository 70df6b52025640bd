// SPDX-License-Identifier: BSD-2-Clause
// Options that change what calls wait for, or tell: time-outs without time, a low-water mark, TCP_INQ; set on the
// connection and on its listener.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <initializer_list>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

constexpr int kInq = 36;            // TCP_INQ, not in glibc's headers
constexpr int kReceiveTimeNew = 66; // SO_RCVTIMEO_NEW

void set_time(const Side &me, int fd, int name, timeval time)
{
    me.show("setsockopt", ::setsockopt(fd, SOL_SOCKET, name, &time, sizeof time));
}

int listen_anywhere(sockaddr_in &address)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof address;
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd, reinterpret_cast<sockaddr *>(&address), size);
    ::listen(fd, 4);
    ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size);
    return fd;
}

// What recvmsg() tells of what is left.
void receive_inq(const Side &me, std::size_t room)
{
    std::vector<char> bytes(room);
    alignas(cmsghdr) char control[128];
    iovec part = {bytes.data(), room};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(me.fd, &message, MSG_DONTWAIT);
    if (n < 0) {
        me.show("recvmsg", n); // it has written nothing
        return;
    }
    int left = -1;
    const cmsghdr *const c = CMSG_FIRSTHDR(&message);
    if (c != nullptr && c->cmsg_level == IPPROTO_TCP && c->cmsg_type == kInq)
        memcpy(&left, CMSG_DATA(c), sizeof left);
    me.say("recvmsg %zd, left %d, flags %#x", n, left, static_cast<unsigned>(message.msg_flags));
}

} // namespace

SCENARIO(no_time_at_all)
{
    char byte;
    for (const int name : {SO_RCVTIMEO, kReceiveTimeNew}) {
        for (const timeval time : {timeval{-1, 0}, timeval{-1, 999999}, timeval{-1, 1000000}, timeval{0, -1}})
            set_time(me, me.fd, name, time);
        me.show("recv", ::recv(me.fd, &byte, 1, 0));
        me.show("recv all", ::recv(me.fd, &byte, 1, MSG_WAITALL));
        set_time(me, me.fd, name, {INT64_C(1) << 33, 0});
        me.step();
        send_text(me.fd, "x");
        me.say("%s", receive_text(me.fd, 1).c_str());
        me.step();
    }
    if (me.server) {
        me.step();
        return;
    }
    set_time(me, me.fd, SO_SNDTIMEO, {-1, 0});
    const std::vector<char> big(32 << 20);
    ssize_t n = ::send(me.fd, big.data(), big.size(), MSG_NOSIGNAL);
    me.say("send: %s", n > 0 && n < static_cast<ssize_t>(big.size()) ? "a part" : "not a part");
    while (n > 0) // the peer's kernel takes some more until its buffer is full
        n = ::send(me.fd, big.data(), big.size(), MSG_NOSIGNAL);
    me.show("send", n);
    me.step();
}

SCENARIO(no_time_to_accept_or_connect)
{
    sockaddr_in address;
    const int listener = listen_anywhere(address);
    set_time(me, listener, SO_RCVTIMEO, {-1, 0});
    me.show("accept", ::accept(listener, nullptr, nullptr));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_time(me, fd, SO_SNDTIMEO, {-1, 0});
    me.show("connect", ::connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address));
    await_events(listener, POLLIN);
    await_events(fd, POLLOUT);
    const int accepted = ::accept(listener, nullptr, nullptr);
    char byte;
    me.show("recv", ::recv(accepted, &byte, 1, 0)); // has it of its listener
    for (int i = 0; i < 300; ++i) {
        send_text(fd, "x");
        await_events(accepted, POLLIN);
        ::recv(accepted, &byte, 1, 0);
        send_text(accepted, "y");
        receive_text(fd, 1);
    }
    me.show("recv", ::recv(accepted, &byte, 1, 0));
    for (const int open : {listener, fd, accepted})
        ::close(open);
    me.step();
}

SCENARIO(low_water_of_what_is_there)
{
    if (me.server) {
        send_text(me.fd, "12345");
        me.step();
        me.step();
        send_text(me.fd, "67890");
        me.step();
        return;
    }
    await_readable(me.fd, 5);
    me.step();
    const int water = 10;
    me.show("setsockopt", ::setsockopt(me.fd, SOL_SOCKET, SO_RCVLOWAT, &water, sizeof water));
    pollfd p = {me.fd, POLLIN, 0};
    me.show("poll", ::poll(&p, 1, 0));
    me.step();
    me.show("poll", ::poll(&p, 1, patience::milliseconds()));
    char bytes[16];
    me.show("recv", ::recv(me.fd, bytes, sizeof bytes, 0));
    me.step();
}

SCENARIO(bytes_left_are_told)
{
    if (me.server) {
        for (int i = 0; i < 3; ++i) {
            send_text(me.fd, "0123456789");
            me.step();
            me.step();
        }
        ::shutdown(me.fd, SHUT_WR);
        me.step();
        me.step();
        return;
    }
    const int on = 1;
    me.show("setsockopt", ::setsockopt(me.fd, IPPROTO_TCP, kInq, &on, sizeof on));
    for (int i = 0; i < 3; ++i) {
        me.step();
        await_readable(me.fd, 10);
        receive_inq(me, 3);
        receive_inq(me, 20);
        receive_inq(me, 20);
        me.step();
    }
    me.step();
    await_events(me.fd, POLLRDHUP);
    receive_inq(me, 20);
    receive_inq(me, 20);
    me.step();
}
