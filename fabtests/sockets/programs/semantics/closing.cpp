// SPDX-License-Identifier: BSD-2-Clause
// The end of a connection: halves shut down, close with and without unread data, linger, SIGPIPE, and descriptors that
// are closed or used again while somebody still waits on them.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

volatile sig_atomic_t g_pipes;

void count_pipes()
{
    g_pipes = 0;
    ::signal(SIGPIPE, [](int) { g_pipes = g_pipes + 1; });
}

int polled(int fd, short events)
{
    pollfd p{fd, events, 0};
    return must(::poll(&p, 1, 0), "poll") > 0 ? p.revents : 0;
}

void show_poll(const Side &me, const char *when)
{
    me.say("poll %s: %s", when,
           event_names(static_cast<unsigned>(polled(me.fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI))).c_str());
}

void say_error(const Side &me)
{
    int error = -1;
    socklen_t len = sizeof error;
    must(::getsockopt(me.fd, SOL_SOCKET, SO_ERROR, &error, &len), "SO_ERROR");
    me.say("SO_ERROR: %s", error == 0 ? "0" : strerrorname_np(error));
}

} // namespace

SCENARIO(shutdown_write)
{
    count_pipes();
    char buf[32];
    if (me.server) {
        me.say("got %s", receive_text(me.fd, 7).c_str());
        me.show("at the end", ::recv(me.fd, buf, sizeof buf, 0));
        me.show("again", ::recv(me.fd, buf, sizeof buf, 0));
        show_poll(me, "after the peer's end");
        send_text(me.fd, "answer");
        me.step();
        me.step();
        me.show("close", ::close(me.fd));
        me.step();
        return;
    }
    show_poll(me, "before");
    send_text(me.fd, "request");
    me.show("shutdown", ::shutdown(me.fd, SHUT_WR));
    me.show("send", ::send(me.fd, "x", 1, 0));
    me.show("send NOSIGNAL", ::send(me.fd, "x", 1, MSG_NOSIGNAL));
    me.show("write", ::write(me.fd, "x", 1));
    me.show("send of nothing", ::send(me.fd, "x", 0, 0));
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
    me.say("got %s", receive_text(me.fd, 6).c_str());
    me.show("recv DONTWAIT", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
    me.step();
    show_poll(me, "with my half closed");
    me.show("shutdown again", ::shutdown(me.fd, SHUT_WR));
    me.step();
    me.step();
    await_events(me.fd, POLLHUP);
    show_poll(me, "at last");
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.show("shutdown", ::shutdown(me.fd, SHUT_RDWR));
}

SCENARIO(shutdown_read)
{
    char buf[32];
    if (me.server) {
        me.step();
        me.show("send", ::send(me.fd, "late", 4, MSG_NOSIGNAL));
        me.step();
        me.say("got %s", receive_text(me.fd, 5).c_str());
        me.step();
        return;
    }
    me.show("shutdown", ::shutdown(me.fd, SHUT_RD));
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.show("recv DONTWAIT", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
    show_poll(me, "after shutdown");
    me.step();
    me.step();
    await_readable(me.fd, 4);
    const ssize_t n = ::recv(me.fd, buf, sizeof buf, 0);
    me.say("came all the same: %.*s", static_cast<int>(n), buf);
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    send_text(me.fd, "still");
    me.step();
}

SCENARIO(shutdown_both)
{
    count_pipes();
    char buf[32];
    if (me.server) {
        me.step();
        me.step();
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        show_poll(me, "after the peer's shutdown");
        me.step();
        return;
    }
    me.step();
    me.show("shutdown", ::shutdown(me.fd, SHUT_RDWR));
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.show("send", ::send(me.fd, "x", 1, 0));
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
    me.show("shutdown again", ::shutdown(me.fd, SHUT_RDWR));
    me.step();
    me.step();
}

SCENARIO(half_close_with_much_data)
{
    const Pattern up(1), down(2);
    constexpr std::uint64_t kBytes = 5000000;
    char byte;
    if (me.server) {
        read_pattern(me.fd, up, 0, kBytes);
        me.show("at the end", ::recv(me.fd, &byte, 1, 0));
        write_pattern(me.fd, down, 0, kBytes);
        me.show("close", ::close(me.fd));
        return;
    }
    write_pattern(me.fd, up, 0, kBytes);
    me.show("shutdown", ::shutdown(me.fd, SHUT_WR));
    read_pattern(me.fd, down, 0, kBytes);
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

SCENARIO(close_delivers_everything)
{
    const Pattern pattern(3);
    char byte;
    if (me.server) {
        me.step(); // the peer is gone before the first byte is read
        read_pattern(me.fd, pattern, 0, 60000);
        me.show("at the end", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    write_pattern(me.fd, pattern, 0, 60000);
    me.show("close", ::close(me.fd));
    me.step();
}

SCENARIO(close_with_unread_data)
{
    count_pipes();
    char buf[32];
    if (me.server) {
        send_text(me.fd, "never read");
        me.step();
        me.step();
        await_events(me.fd, POLLERR);
        show_poll(me, "after the reset");
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.show("send", ::send(me.fd, "x", 1, 0));
        me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
        say_error(me);
        return;
    }
    await_readable(me.fd, 10);
    me.step();
    me.show("close", ::close(me.fd));
    me.step();
}

SCENARIO(close_with_part_read)
{
    char buf[32];
    if (me.server) {
        send_text(me.fd, "0123456789");
        me.step();
        me.step();
        await_events(me.fd, POLLERR);
        say_error(me);
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        return;
    }
    await_readable(me.fd, 10);
    me.show("recv", ::recv(me.fd, buf, 4, 0));
    me.step();
    me.show("close", ::close(me.fd));
    me.step();
}

SCENARIO(reset_behind_data)
{
    count_pipes();
    char buf[32];
    if (me.server) {
        send_text(me.fd, "never read");
        await_readable(me.fd, 4);
        me.step();
        me.step();
        await_events(me.fd, POLLERR);
        const ssize_t n = ::recv(me.fd, buf, sizeof buf, 0);
        me.say("what stood before the reset: %.*s", static_cast<int>(n), n > 0 ? buf : "");
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        return;
    }
    await_readable(me.fd, 10);
    send_text(me.fd, "last");
    me.step();
    me.show("close", ::close(me.fd));
    me.step();
}

SCENARIO(linger_zero)
{
    count_pipes();
    char buf[32];
    if (me.server) {
        me.step();
        await_events(me.fd, POLLERR);
        show_poll(me, "after the reset");
        me.show("write", ::write(me.fd, "x", 1));
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.show("write", ::write(me.fd, "x", 1));
        me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
        return;
    }
    const linger now{1, 0};
    me.show("SO_LINGER", ::setsockopt(me.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    me.show("close", ::close(me.fd));
    me.step();
}

SCENARIO(linger_delivers)
{
    const Pattern pattern(4);
    char byte;
    if (me.server) {
        me.step();
        read_pattern(me.fd, pattern, 0, 3000000);
        me.show("at the end", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    const linger long_time{1, 20};
    me.show("SO_LINGER", ::setsockopt(me.fd, SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time));
    me.step();
    write_pattern(me.fd, pattern, 0, 3000000);
    me.show("close", ::close(me.fd));
}

SCENARIO(linger_runs_out)
{
    if (me.server) {
        me.step();
        me.step();
        return;
    }
    fill_until_full(me.fd);
    const linger one_second{1, 1};
    me.show("SO_LINGER", ::setsockopt(me.fd, SOL_SOCKET, SO_LINGER, &one_second, sizeof one_second));
    me.step();
    const std::int64_t start = now_ms();
    me.show("close", ::close(me.fd));
    me.say("waited: %s", now_ms() - start >= 950 ? "yes" : "no");
    me.step();
}

SCENARIO(broken_pipe)
{
    count_pipes();
    if (me.server) {
        me.step();
        me.show("close", ::close(me.fd));
        me.step();
        me.step();
        return;
    }
    me.step();
    me.step();
    await_events(me.fd, POLLIN | POLLRDHUP);
    show_poll(me, "after the peer's close");
    me.show("first send", ::send(me.fd, "x", 1, 0)); // the kernel learns from the answer that nobody is there
    await_events(me.fd, POLLERR);
    show_poll(me, "after the first send");
    me.show("send", ::send(me.fd, "x", 1, 0));
    me.show("write", ::write(me.fd, "x", 1));
    iovec part{const_cast<char *>("x"), 1};
    me.show("writev", ::writev(me.fd, &part, 1));
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    me.show("sendmsg", ::sendmsg(me.fd, &msg, 0));
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
    me.show("sendmsg NOSIGNAL", ::sendmsg(me.fd, &msg, MSG_NOSIGNAL));
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
    char buf[8];
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
    me.step();
}

SCENARIO(peer_closes_while_i_wait)
{
    char buf[8];
    if (me.server) {
        me.step();
        ::usleep(100000);
        me.show("close", ::close(me.fd));
        return;
    }
    me.step();
    me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
}

SCENARIO(peer_resets_while_i_send)
{
    count_pipes();
    if (me.server) {
        me.step();
        ::usleep(100000);
        me.show("close", ::close(me.fd)); // unread data: a reset
        return;
    }
    fill_until_full(me.fd);
    me.step();
    char block[1000] = {};
    ssize_t n;
    while ((n = ::send(me.fd, block, sizeof block, 0)) > 0) {
    }
    me.show("send", n);
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
}

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

SCENARIO(exit_without_close)
{
    const Pattern pattern(5);
    char byte;
    if (me.server) {
        read_pattern(me.fd, pattern, 0, 100000);
        me.show("at the end", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    write_pattern(me.fd, pattern, 0, 100000);
    me.say("done");
    ::_exit(0);
}
