// SPDX-License-Identifier: BSD-2-Clause
// Descriptors that are shut down, closed or used again while somebody still waits on them, and numbers that become
// another file's.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

using namespace fabtest;

SCENARIO(shutdown_by_another_thread)
{
    if (me.server) {
        char buf[8];
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        return;
    }
    std::thread other([&] {
        ::usleep(100000);
        must(::shutdown(me.fd, SHUT_RDWR), "shutdown");
    });
    char buf[8];
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    other.join();
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
}

// A thread that waits keeps the connection: the other end sees no FIN before it returns.
SCENARIO(close_by_another_thread)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "x");
        char buf[8];
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        return;
    }
    std::atomic<int> got{-2};
    std::atomic<pid_t> task{0};
    std::thread waiter([&, fd = me.fd] {
        char buf[8];
        task = ::gettid();
        got = static_cast<int>(::recv(fd, buf, sizeof buf, 0));
    });
    while (task == 0)
        std::this_thread::yield();
    await_waiting(task);
    me.show("close", ::close(me.fd));
    me.say("the waiter still waits: %s", got == -2 ? "yes" : "no");
    me.step();
    waiter.join();
    me.say("the waiter's recv = %d", got.load());
    me.show("send", ::send(me.fd, "x", 1, 0));
}

// The number of a closed socket is another file's at once.
SCENARIO(descriptor_number_used_again)
{
    char buf[16] = {};
    if (me.server) {
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.step();
        return;
    }
    const int number = me.fd;
    me.show("close", ::close(me.fd));
    int ends[2];
    must(::pipe(ends), "pipe");
    me.say("same number: %s", ends[0] == number || ends[1] == number ? "yes" : "no");
    me.show("write", ::write(ends[1], "pipe", 4));
    me.show("read", ::read(ends[0], buf, sizeof buf));
    me.say("%s", buf);
    me.show("recv", ::recv(ends[0], buf, sizeof buf, 0));
    me.show("close again", ::close(ends[0]));
    me.show("close again", ::close(ends[0]));
    me.step();
}

SCENARIO(dup2_over_the_socket)
{
    char buf[16] = {};
    if (me.server) {
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.step();
        return;
    }
    int ends[2];
    must(::pipe(ends), "pipe");
    me.show("dup2", ::dup2(ends[0], me.fd) == me.fd);
    me.show("write", ::write(ends[1], "pipe", 4));
    me.show("read", ::read(me.fd, buf, sizeof buf));
    me.say("%s", buf);
    me.show("send", ::send(me.fd, buf, 1, 0));
    me.step();
}

SCENARIO(close_range)
{
    char buf[16];
    if (me.server) {
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.step();
        return;
    }
    me.show("close_range", ::close_range(static_cast<unsigned>(me.fd), static_cast<unsigned>(me.fd), 0));
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.step();
}
