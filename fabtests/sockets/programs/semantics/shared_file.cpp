// SPDX-License-Identifier: BSD-2-Clause
// What a child does to the open file, which it has in common with its parent: how calls wait, and what is shut down.
// The parent has the file to itself again afterwards, and finds it as the child has left it.
#include <sys/time.h>
#include <sys/wait.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

constexpr int kLines = 200; // more than it takes until a connection is accelerated again

template <typename Act> void in_child(const Side &me, const char *what, Act act)
{
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        act();
        ::_exit(0);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("a child %s: status %d", what, status);
}

void echo_until_end(int fd)
{
    char block[4096];
    for (ssize_t n; (n = ::recv(fd, block, sizeof block, 0)) > 0;)
        send_all(fd, block, static_cast<std::size_t>(n));
}

// However receives wait.
void exchange_lines(const Side &me)
{
    for (int i = 0; i < kLines; ++i) {
        send_text(me.fd, "line\n");
        await_readable(me.fd, 5);
        if (receive_text(me.fd, 5) != "line\n")
            die("wrong answer to line %d", i);
    }
    me.say("%d lines came back", kLines);
}

void set_timeout(int fd, int name, int microseconds)
{
    const timeval timeout{0, microseconds};
    must(::setsockopt(fd, SOL_SOCKET, name, &timeout, sizeof timeout), "setsockopt");
}

} // namespace

SCENARIO(child_sets_how_calls_wait)
{
    if (me.server)
        return echo_until_end(me.fd);
    char byte;
    in_child(me, "sets O_NONBLOCK", [&] { set_nonblocking(me.fd, true); });
    exchange_lines(me);
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    in_child(me, "clears O_NONBLOCK and sets SO_RCVTIMEO", [&] {
        set_nonblocking(me.fd, false);
        set_timeout(me.fd, SO_RCVTIMEO, 20'000);
    });
    exchange_lines(me);
    const std::int64_t before = now_ms();
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
    me.say("it has waited: %d", now_ms() - before >= 19);
    in_child(me, "clears SO_RCVTIMEO", [&] { set_timeout(me.fd, SO_RCVTIMEO, 0); });
    exchange_lines(me);
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

SCENARIO(child_sets_how_long_sends_wait)
{
    if (me.server) {
        for (int i = 0; i < kLines; ++i)
            send_text(me.fd, receive_text(me.fd, 5).c_str());
        me.step();
        drain(me.fd);
        return;
    }
    in_child(me, "sets SO_SNDTIMEO", [&] { set_timeout(me.fd, SO_SNDTIMEO, 20'000); });
    exchange_lines(me);
    static char block[65536];
    ssize_t n = 0;
    while ((n = ::send(me.fd, block, sizeof block, 0)) > 0) {
    }
    me.show("send, with no room", n);
    me.step();
}

SCENARIO(child_ends_sending)
{
    if (me.server) {
        for (int i = 0; i < kLines; ++i)
            send_text(me.fd, "line\n");
        me.say("%zu bytes came", drain(me.fd));
        return;
    }
    in_child(me, "has SHUT_WR", [&] { must(::shutdown(me.fd, SHUT_WR), "shutdown"); });
    for (int i = 0; i < kLines; ++i)
        receive_text(me.fd, 5);
    me.show("send", ::send(me.fd, "x", 1, MSG_NOSIGNAL));
    char byte;
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

SCENARIO(child_ends_receiving)
{
    if (me.server) {
        me.say("%zu bytes came", drain(me.fd));
        return;
    }
    in_child(me, "has SHUT_RD", [&] { must(::shutdown(me.fd, SHUT_RD), "shutdown"); });
    for (int i = 0; i < kLines; ++i)
        send_text(me.fd, "line\n");
    char byte;
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
}
