// SPDX-License-Identifier: BSD-2-Clause
// The start of a connection: refused, non-blocking, repeated, taken back, accepted with flags, on a socket that has
// none.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

sockaddr_in loopback(std::uint16_t port)
{
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(port);
    return in;
}

int connect_to(int fd, std::uint16_t port)
{
    const sockaddr_in in = loopback(port);
    return ::connect(fd, reinterpret_cast<const sockaddr *>(&in), sizeof in);
}

int tcp(int flags = 0)
{
    return must(::socket(AF_INET, SOCK_STREAM | flags, 0), "socket");
}

// A port where nobody listens: bound, never listening.
std::uint16_t silent_port()
{
    static const int holder = tcp();
    sockaddr_in in = loopback(0);
    socklen_t len = sizeof in;
    if (::getsockname(holder, reinterpret_cast<sockaddr *>(&in), &len) == 0 && in.sin_port == 0) {
        in = loopback(0);
        must(::bind(holder, reinterpret_cast<sockaddr *>(&in), sizeof in), "bind");
        must(::getsockname(holder, reinterpret_cast<sockaddr *>(&in), &len), "getsockname");
    }
    return ntohs(in.sin_port);
}

std::string polled(int fd)
{
    pollfd p{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    return must(::poll(&p, 1, 0), "poll") > 0 ? event_names(static_cast<unsigned>(p.revents)) : "none";
}

void show_error(const Side &me, int fd)
{
    int error = -1;
    socklen_t len = sizeof error;
    must(::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), "SO_ERROR");
    me.say("SO_ERROR: %s", error == 0 ? "0" : strerrorname_np(error));
}

} // namespace

SCENARIO(refused)
{
    if (me.server)
        return;
    int fd = tcp();
    me.show("connect", connect_to(fd, silent_port()));
    me.say("poll: %s", polled(fd).c_str());
    show_error(me, fd);
    char byte;
    me.show("recv", ::recv(fd, &byte, 1, 0));
    me.show("send", ::send(fd, &byte, 1, MSG_NOSIGNAL));
    me.show("connect", connect_to(fd, silent_port()));
    ::close(fd);
    fd = tcp(SOCK_NONBLOCK);
    const int result = connect_to(fd, silent_port());
    me.say("non-blocking connect = %d %s", result, strerrorname_np(errno));
    await_events(fd, POLLERR);
    me.say("poll: %s", polled(fd).c_str());
    show_error(me, fd);
    show_error(me, fd);
    ::close(fd);
}

SCENARIO(refused_then_accepted)
{
    if (me.server) {
        const int fd = must(::accept(me.listener, nullptr, nullptr), "accept");
        me.offload(fd);
        me.say("got %s", receive_text(fd, 3).c_str());
        return;
    }
    const int fd = tcp();
    me.show("connect", connect_to(fd, silent_port()));
    me.show("connect", connect_to(fd, me.port));
    me.offload(fd);
    send_text(fd, "yes");
    me.show("connect", connect_to(fd, me.port));
    ::close(fd);
}

SCENARIO(nonblocking_connect)
{
    char buf[8];
    if (me.server) {
        me.step();
        const int fd = must(::accept(me.listener, nullptr, nullptr), "accept");
        me.step();
        me.offload(fd);
        me.show("recv", ::recv(fd, buf, sizeof buf, 0));
        return;
    }
    const int fd = tcp(SOCK_NONBLOCK);
    me.say("poll before: %s", polled(fd).c_str());
    me.show("recv before", ::recv(fd, buf, sizeof buf, 0));
    me.show("connect", connect_to(fd, me.port));
    await_events(fd, POLLOUT);
    me.say("poll: %s", polled(fd).c_str());
    show_error(me, fd);
    me.show("connect", connect_to(fd, me.port));
    me.show("connect", connect_to(fd, me.port));
    me.show("recv", ::recv(fd, buf, sizeof buf, 0));
    me.step();
    me.step();
    set_nonblocking(fd, false);
    me.offload(fd);
    set_nonblocking(fd, true);
    me.show("recv", ::recv(fd, buf, sizeof buf, 0));
    ::close(fd);
}

SCENARIO(not_connected)
{
    if (me.server)
        return;
    const int fd = tcp();
    char byte = 0;
    me.say("poll: %s", polled(fd).c_str());
    me.show("recv", ::recv(fd, &byte, 1, 0));
    me.show("read", ::read(fd, &byte, 1));
    me.show("send", ::send(fd, &byte, 1, MSG_NOSIGNAL));
    me.show("shutdown", ::shutdown(fd, SHUT_WR));
    sockaddr_storage name{};
    socklen_t len = sizeof name;
    me.show("getpeername", ::getpeername(fd, reinterpret_cast<sockaddr *>(&name), &len));
    me.show("accept", ::accept(fd, nullptr, nullptr));
    int count = -1;
    me.show("FIONREAD", ::ioctl(fd, FIONREAD, &count));
    me.say("%d", count);
    me.show("listen", ::listen(fd, 5));
    me.show("recv on a listener", ::recv(fd, &byte, 1, 0));
    me.show("send on a listener", ::send(fd, &byte, 1, MSG_NOSIGNAL));
    me.show("connect on a listener", connect_to(fd, me.port));
    me.say("poll: %s", polled(fd).c_str());
    me.show("close", ::close(fd));
    me.show("recv", ::recv(fd, &byte, 1, 0));
    me.show("connect", connect_to(fd, me.port));
}

SCENARIO(accepted_with_flags)
{
    if (me.server) {
        sockaddr_storage name{};
        socklen_t len = sizeof name;
        int fd = must(::accept4(me.listener, reinterpret_cast<sockaddr *>(&name), &len, SOCK_NONBLOCK | SOCK_CLOEXEC),
                      "accept4");
        me.say("family %d length %u", name.ss_family, len);
        me.say("flags: %d %d", (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, ::fcntl(fd, F_GETFD));
        char byte;
        me.show("recv", ::recv(fd, &byte, 1, 0));
        me.step();
        set_nonblocking(fd, false);
        me.offload(fd);
        ::close(fd);
        set_nonblocking(me.listener, true);
        await_events(me.listener, POLLIN);
        fd = must(::accept(me.listener, nullptr, nullptr), "accept");
        me.say("flags: %d %d", (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, ::fcntl(fd, F_GETFD));
        me.show("accept on an empty queue", ::accept(me.listener, nullptr, nullptr));
        me.show("accept4 with bad flags", ::accept4(me.listener, nullptr, nullptr, 1 << 30));
        me.offload(fd);
        me.step();
        return;
    }
    int fd = tcp();
    me.show("connect", connect_to(fd, me.port));
    me.step();
    me.offload(fd);
    int second = tcp(SOCK_CLOEXEC);
    me.show("connect", connect_to(second, me.port));
    me.offload(second);
    me.step();
}

// Data that is sent before accept() was called.
SCENARIO(data_before_accept)
{
    const Pattern pattern(11);
    if (me.server) {
        me.step();
        const int fd = must(::accept(me.listener, nullptr, nullptr), "accept");
        read_pattern(fd, pattern, 0, 50000);
        char byte;
        me.show("at the end", ::recv(fd, &byte, 1, 0));
        send_text(fd, "heard");
        return;
    }
    const int fd = tcp();
    me.show("connect", connect_to(fd, me.port));
    for (unsigned i = 0; i < 50; ++i)
        write_pattern(fd, pattern, i * 1000, i * 1000 + 1000);
    me.show("shutdown", ::shutdown(fd, SHUT_WR));
    me.step();
    me.say("%s", receive_text(fd, 5).c_str());
}

SCENARIO(listener_closed_with_a_guest_waiting)
{
    if (me.server) {
        me.step();
        me.show("close", ::close(me.listener));
        me.step();
        return;
    }
    const int fd = tcp();
    me.show("connect", connect_to(fd, me.port));
    me.show("send", ::send(fd, "x", 1, 0));
    me.step();
    me.step();
    await_events(fd, POLLERR);
    char byte;
    me.show("recv", ::recv(fd, &byte, 1, 0));
    me.show("connect", connect_to(fd, me.port));
}

// connect(AF_UNSPEC) ends a connection and makes the socket fit for a new one.
SCENARIO(dissolved_and_connected_again)
{
    char buf[16];
    if (me.server) {
        me.step();
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        const int fd = must(::accept(me.listener, nullptr, nullptr), "accept");
        me.say("got %s", receive_text(fd, 5).c_str());
        send_text(fd, "fine");
        me.step();
        return;
    }
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    me.show("connect AF_UNSPEC", ::connect(me.fd, &none, sizeof none));
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.show("send", ::send(me.fd, buf, 1, MSG_NOSIGNAL));
    me.step();
    me.show("connect", connect_to(me.fd, me.port));
    send_text(me.fd, "again");
    me.say("got %s", receive_text(me.fd, 4).c_str());
    me.step();
}

SCENARIO(connected_to_itself)
{
    if (me.server)
        return;
    const int fd = tcp();
    sockaddr_in in = loopback(0);
    must(::bind(fd, reinterpret_cast<sockaddr *>(&in), sizeof in), "bind");
    socklen_t len = sizeof in;
    must(::getsockname(fd, reinterpret_cast<sockaddr *>(&in), &len), "getsockname");
    me.show("connect to my own port", ::connect(fd, reinterpret_cast<sockaddr *>(&in), sizeof in));
    const int on = 1;
    must(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    for (int i = 0; i < 100; ++i) {
        send_text(fd, "echo");
        if (receive_text(fd, 4) != "echo")
            me.say("wrong");
    }
    me.show("shutdown", ::shutdown(fd, SHUT_WR));
    char byte;
    me.show("recv", ::recv(fd, &byte, 1, 0));
}

// Both ends in one process.
SCENARIO(both_ends_in_one_process)
{
    if (me.server)
        return;
    const int listener = tcp();
    sockaddr_in in = loopback(0);
    must(::bind(listener, reinterpret_cast<sockaddr *>(&in), sizeof in), "bind");
    socklen_t len = sizeof in;
    must(::getsockname(listener, reinterpret_cast<sockaddr *>(&in), &len), "getsockname");
    must(::listen(listener, 5), "listen");
    const int a = tcp();
    must(::connect(a, reinterpret_cast<sockaddr *>(&in), sizeof in), "connect");
    const int b = must(::accept(listener, nullptr, nullptr), "accept");
    const Pattern pattern(12);
    for (unsigned i = 0; i < 300; ++i) {
        write_pattern(a, pattern, i * 100, i * 100 + 100);
        read_pattern(b, pattern, i * 100, i * 100 + 100);
        write_pattern(b, pattern, i * 100, i * 100 + 100);
        read_pattern(a, pattern, i * 100, i * 100 + 100);
    }
    me.show("close", ::close(a));
    char byte;
    me.show("recv", ::recv(b, &byte, 1, 0));
}
