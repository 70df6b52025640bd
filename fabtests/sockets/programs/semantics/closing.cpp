// SPDX-License-Identifier: BSD-2-Clause
// The end of a connection: halves shut down, close with and without unread data, linger, SIGPIPE.
#include <pthread.h>
#include <unistd.h>

#include <atomic>

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

namespace {

// TCP refuses what comes when both directions are shut, though the descriptor stays open.
void send_until_refused(const Side &me)
{
    count_pipes();
    char block[1000] = {};
    int n;
    while ((n = static_cast<int>(::send(me.fd, block, sizeof block, 0))) > 0) {
    }
    me.show("send", n);
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
}

} // namespace

SCENARIO(shutdown_both_under_a_sender)
{
    if (me.server)
        return send_until_refused(me);
    char buf[4096];
    receive_text(me.fd, 1000);
    me.show("shutdown", ::shutdown(me.fd, SHUT_RDWR));
    while (::recv(me.fd, buf, sizeof buf, 0) > 0) {
    }
    await_events(me.fd, POLLHUP);
    int error; // of the reset, unless it has ended the loop
    socklen_t len = sizeof error;
    must(::getsockopt(me.fd, SOL_SOCKET, SO_ERROR, &error, &len), "SO_ERROR");
    me.show("recv", ::recv(me.fd, buf, 1, 0));
}

SCENARIO(shutdown_both_beside_unread_bytes)
{
    if (me.server) {
        send_text(me.fd, "early");
        me.step();
        me.step();
        return send_until_refused(me);
    }
    me.step();
    await_readable(me.fd, 5);
    me.show("shutdown", ::shutdown(me.fd, SHUT_RD));
    me.show("shutdown", ::shutdown(me.fd, SHUT_WR));
    show_poll(me, "with both shut");
    me.step();
    await_events(me.fd, POLLERR);
    show_poll(me, "behind the peer's bytes");
    me.say("got %s", receive_text(me.fd, 5).c_str());
    say_error(me);
    char byte;
    me.show("recv", ::recv(me.fd, &byte, 1, 0));
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

// recvmmsg() tells an error that is pending before it looks for bytes; a receive tells it behind them.
SCENARIO(reset_behind_data_for_many)
{
    char buf[3][4] = {};
    iovec parts[3] = {{buf[0], 4}, {buf[1], 4}, {buf[2], 4}};
    mmsghdr many[3] = {};
    for (int i = 0; i < 3; ++i) {
        many[i].msg_hdr.msg_iov = &parts[i];
        many[i].msg_hdr.msg_iovlen = 1;
    }
    if (me.server) {
        send_text(me.fd, "twelve bytes");
        me.step();
        me.step();
        const linger none{1, 0};
        send_text(me.fd, "8 bytes!");
        must(::setsockopt(me.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none), "SO_LINGER");
        ::close(me.fd);
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 12);
    volatile std::uintptr_t nowhere = 1; // the compiler would see what is wrong
    parts[1].iov_base = reinterpret_cast<void *>(nowhere);
    me.show("recvmmsg to nowhere", ::recvmmsg(me.fd, many, 3, MSG_DONTWAIT, nullptr));
    for (int i = 0; i < 3; ++i)
        me.show("recv", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
    parts[1].iov_base = buf[1];
    me.step();
    me.step();
    await_events(me.fd, POLLERR);
    for (int i = 0; i < 3; ++i)
        me.show("recvmmsg", ::recvmmsg(me.fd, many, 2, MSG_DONTWAIT, nullptr));
    me.show("recv", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
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

// As Java closes a channel that another thread reads: by another file in the place of the socket's, and then one signal
// to that thread, wherever in the call it is by then.
SCENARIO(dup2_under_a_read)
{
    constexpr int kRounds = 400;
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    must(::sigaction(SIGUSR1, &action, nullptr), "sigaction");
    if (me.server) {
        me.step();
        return;
    }
    struct Reader {
        int fd;
        std::atomic<bool> begins{false};
        ssize_t n = 0;
        int error = 0;
    };
    int ended[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ended), "socketpair");
    must(::shutdown(ended[0], SHUT_RDWR), "shutdown");
    int as_expected = 0;
    for (int round = 0; round < kRounds; ++round) {
        Reader reader{must(::dup(me.fd), "dup")};
        pthread_t thread;
        const auto read = [](void *argument) -> void * {
            Reader &one = *static_cast<Reader *>(argument);
            char buf[8];
            one.begins = true;
            one.n = ::read(one.fd, buf, sizeof buf);
            one.error = errno;
            return nullptr;
        };
        must(::pthread_create(&thread, nullptr, read, &reader), "pthread_create");
        while (!reader.begins)
            ;
        for (volatile int i = round * 7 % 400; i > 0;)
            i = i - 1;
        must(::dup2(ended[0], reader.fd), "dup2");
        ::pthread_kill(thread, SIGUSR1);
        ::pthread_join(thread, nullptr);
        as_expected += reader.n == 0 || (reader.n == -1 && reader.error == EINTR);
        ::close(reader.fd);
    }
    me.say("%d of %d ended, or were interrupted", as_expected, kRounds);
    me.step();
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
