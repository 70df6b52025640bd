// SPDX-License-Identifier: BSD-2-Clause
// Bytes that are there and unread when a second process gets the socket: whoever comes first reads them, and nobody
// does again. The sender has forked before, and so said how far the endpoint carried the stream: it can't be asked for
// them.
#include <pty.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "fabtests/sockets/programs/semantics/unread.hpp"

namespace fabtest {

void reap(const Side &me, pid_t child)
{
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: status %d", status);
}

void send_and_fork(Side &me, int fd, bool more)
{
    send_text(fd, kText);
    const pid_t child = must(::fork(), "fork");
    if (child == 0)
        ::_exit(0);
    reap(me, child);
    me.step();
    me.step();
    if (more)
        send_text(fd, ", by the kernel");
    me.step();
}

void await_text(Side &me, int fd)
{
    me.step();
    await_readable(fd, kBytes);
}

void go_on(Side &me)
{
    me.step();
    me.step();
}

void show_half(const Side &me, const char *who, int fd)
{
    char bytes[32] = {};
    const ssize_t n = ::recv(fd, bytes, kHalf, MSG_DONTWAIT);
    me.say("%s: \"%s\" (%zd)", who, bytes, n);
}

} // namespace fabtest

namespace {

using namespace fabtest;

void go_on_to_the_rest(Side &me)
{
    go_on(me);
    me.say("the rest: \"%s\"", receive_text(me.fd, 15).c_str());
}

void show_what_is_there(const Side &me, const char *who, int fd)
{
    char bytes[64] = {};
    int count = -1;
    pollfd one{fd, POLLIN, 0};
    me.say("%s: poll %d", who, ::poll(&one, 1, 0));
    ::ioctl(fd, FIONREAD, &count);
    const ssize_t peeked = ::recv(fd, bytes, sizeof bytes - 1, MSG_PEEK | MSG_DONTWAIT);
    me.say("%s: %d to read, \"%s\" (%zd)", who, count, bytes, peeked);
}

void set_peek_offset(const Side &me, int offset)
{
    me.show("SO_PEEK_OFF", ::setsockopt(me.fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset));
}

void peek_on(const Side &me, const char *who, std::size_t room)
{
    char bytes[32] = {};
    int offset = -100;
    socklen_t size = sizeof offset;
    const ssize_t n = ::recv(me.fd, bytes, room, MSG_PEEK | MSG_DONTWAIT);
    ::getsockopt(me.fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size);
    me.say("%s: peek \"%s\" (%zd), then at %d", who, bytes, n, offset);
}

void show_output(const Side &me, int from)
{
    char bytes[64] = {};
    std::size_t filled = 0;
    for (ssize_t n; (n = ::read(from, bytes + filled, sizeof bytes - 1 - filled)) > 0;)
        filled += static_cast<std::size_t>(n);
    me.say("program: \"%s\"", bytes);
    ::close(from);
}

// head(1) reads the first half from its standard input.
const char *const kHead[] = {"head", "-c", "11", nullptr};

} // namespace

SCENARIO(unread_bytes_are_read_once)
{
    if (me.server)
        return send_and_fork(me, me.fd, false);
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        me.say("child: \"%s\"", receive_text(me.fd, kHalf).c_str());
        ::_exit(0);
    }
    reap(me, child);
    show_half(me, "parent", me.fd);
    show_half(me, "parent", me.fd);
    go_on(me);
}

SCENARIO(unread_bytes_are_seen_by_both)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        show_what_is_there(me, "child", me.fd);
        show_half(me, "child", me.fd);
        show_what_is_there(me, "child", me.fd);
        ::_exit(0);
    }
    reap(me, child);
    show_what_is_there(me, "parent", me.fd);
    show_half(me, "parent", me.fd);
    show_what_is_there(me, "parent", me.fd);
    go_on_to_the_rest(me);
}

// By one process: a peek goes on where the path changes, as a read does, and waits there.
SCENARIO(unread_bytes_are_peeked_at_with_what_follows)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    await_text(me, me.fd);
    char bytes[64] = {};
    ssize_t n = ::recv(me.fd, bytes, 37, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT);
    me.say("what is there: \"%s\" (%zd)", bytes, n);
    me.step();
    n = ::recv(me.fd, bytes, 37, MSG_PEEK | MSG_WAITALL);
    me.say("all: \"%s\" (%zd)", bytes, n);
    for (const int flags : {0, int{MSG_TRUNC}, int{MSG_DONTWAIT}})
        for (const std::size_t room : {5UL, 22UL, 30UL, 60UL})
            me.show("peek", ::recv(me.fd, bytes, room, MSG_PEEK | flags));
    show_what_is_there(me, "then", me.fd);
    show_half(me, "a half", me.fd);
    show_what_is_there(me, "then", me.fd);
    me.step();
}

// The same without a call that waits, which would have the socket go to the kernel.
SCENARIO(unread_bytes_are_peeked_at_until_all_are_there)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    await_text(me, me.fd);
    me.step();
    await_readable(me.fd, kBytes + 15);
    show_what_is_there(me, "peek", me.fd);
    me.step();
    me.say("all: \"%s\"", receive_text(me.fd, kBytes + 15).c_str());
}

// Nobody waits for what another process has read.
SCENARIO(unread_bytes_are_read_by_the_child)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    await_text(me, me.fd);
    me.show("epoll_wait", ::epoll_wait(set, &event, 1, 0));
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        me.say("child: \"%s\"", receive_text(me.fd, kBytes).c_str());
        ::_exit(0);
    }
    reap(me, child);
    me.show("epoll_wait", ::epoll_wait(set, &event, 1, 0));
    show_what_is_there(me, "parent", me.fd);
    go_on(me);
    me.show("epoll_wait", ::epoll_wait(set, &event, 1, -1));
    me.say("the rest: \"%s\"", receive_text(me.fd, 15).c_str());
}

// libc's own forks.
SCENARIO(unread_bytes_are_read_in_a_terminal)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    await_text(me, me.fd);
    int terminal = -1;
    const pid_t child = must(::forkpty(&terminal, nullptr, nullptr, nullptr), "forkpty");
    if (child == 0)
        ::_exit(receive_text(me.fd, kBytes).size() == kBytes ? 7 : 1);
    reap(me, child);
    show_what_is_there(me, "parent", me.fd);
    go_on_to_the_rest(me);
}

SCENARIO(unread_bytes_are_read_by_a_daemon)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    await_text(me, me.fd);
    int ends[2];
    must(::pipe(ends), "pipe");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        must(::daemon(1, 1), "daemon");
        const std::string text = receive_text(me.fd, kBytes);
        must(static_cast<int>(::write(ends[1], text.data(), text.size())), "write");
        ::_exit(0);
    }
    ::close(ends[1]);
    reap(me, child);
    char text[64] = {};
    me.show("read of what the daemon has read", ::read(ends[0], text, sizeof text - 1));
    me.say("daemon: \"%s\"", text);
    show_what_is_there(me, "parent", me.fd);
    go_on_to_the_rest(me);
}

// Sets that the child has got by fork tell it of them as they tell the parent.
SCENARIO(unread_bytes_are_told_to_the_child)
{
    if (me.server)
        return send_and_fork(me, me.fd, false);
    epoll_event event{};
    event.events = EPOLLIN;
    const int sets[] = {must(::epoll_create1(0), "epoll_create1"), must(::epoll_create1(0), "epoll_create1")};
    must(::epoll_ctl(sets[0], EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    must(::epoll_ctl(sets[1], EPOLL_CTL_ADD, sets[0], &event), "epoll_ctl");
    const auto look = [&](const char *who) {
        pollfd one{sets[0], POLLIN, 0};
        const int polled = ::poll(&one, 1, 0);
        const int inner = ::epoll_wait(sets[0], &event, 1, 0);
        me.say("%s: poll %d, epoll_wait %d, of the set around it %d", who, polled, inner,
               ::epoll_wait(sets[1], &event, 1, 0));
    };
    await_text(me, me.fd);
    look("parent");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        look("child");
        show_half(me, "child", me.fd);
        look("child");
        ::_exit(0);
    }
    reap(me, child);
    look("parent");
    show_half(me, "parent", me.fd);
    look("parent");
    go_on(me);
}

// Nobody tells the child of what it has read itself, and it hears of what comes by the kernel then.
SCENARIO(unread_bytes_are_read_from_a_set_of_the_child)
{
    if (me.server) {
        send_and_fork(me, me.fd, true);
        me.step();
        return;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    const int set = must(::epoll_create1(0), "epoll_create1");
    must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        for (int i = 0; i < 2; ++i) {
            me.show("child: epoll_wait", ::epoll_wait(set, &event, 1, -1));
            show_half(me, "child", me.fd);
        }
        me.show("child: epoll_wait", ::epoll_wait(set, &event, 1, 0));
        go_on(me);
        me.show("child: epoll_wait", ::epoll_wait(set, &event, 1, -1));
        me.say("child: \"%s\"", receive_text(me.fd, 15).c_str());
        me.show("child: epoll_wait", ::epoll_wait(set, &event, 1, 0));
        ::_exit(0);
    }
    reap(me, child);
    me.show("epoll_wait", ::epoll_wait(set, &event, 1, 0));
    me.step();
}

// splice() takes the first bytes, whatever SO_PEEK_OFF says, and leaves its place where it is.
SCENARIO(unread_bytes_are_spliced_behind_a_peek)
{
    if (me.server) {
        send_and_fork(me, me.fd, true);
        me.step();
        return;
    }
    int ends[2];
    char bytes[32] = {};
    must(::pipe(ends), "pipe");
    await_text(me, me.fd);
    set_peek_offset(me, 3);
    peek_on(me, "before", 4);
    for (const std::size_t room : {std::size_t{5}, std::size_t{7}}) {
        me.show("splice", ::splice(me.fd, nullptr, ends[1], nullptr, room, 0));
        std::memset(bytes, 0, sizeof bytes);
        me.show("read", ::read(ends[0], bytes, sizeof bytes - 1));
        me.say("\"%s\"", bytes);
        peek_on(me, "behind", 0);
        peek_on(me, "behind", 2);
    }
    go_on(me);
    await_readable(me.fd, kBytes - 12 + 15);
    peek_on(me, "at the end", 20);
    me.step();
}

// SO_PEEK_OFF (socket(7), Linux 6.9 for TCP): in front of the kernel's bytes, and from one process to the other.
SCENARIO(unread_bytes_are_peeked_at_an_offset)
{
    if (me.server) {
        send_and_fork(me, me.fd, true);
        me.step();
        return;
    }
    await_text(me, me.fd);
    set_peek_offset(me, 3);
    peek_on(me, "parent", 4);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        peek_on(me, "child", 7);
        show_half(me, "child", me.fd);
        ::_exit(0);
    }
    reap(me, child);
    peek_on(me, "parent", 8);
    peek_on(me, "parent", 4);
    go_on(me);
    await_readable(me.fd, kHalf + 15);
    for (const int offset : {-1, 5, 26}) { // over both, and behind all
        set_peek_offset(me, offset);
        peek_on(me, "parent", 30);
    }
    const timeval brief{0, 20000};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief), "SO_RCVTIMEO");
    char byte;
    me.show("recv", ::recv(me.fd, &byte, 1, MSG_PEEK));
    set_peek_offset(me, 3);
    for (int i = 0; i < 4; ++i)
        peek_on(me, "parent", 6);
    show_half(me, "parent", me.fd);
    peek_on(me, "parent", 20);
    set_peek_offset(me, 9);
    peek_on(me, "parent", 4);
    set_peek_offset(me, -1);
    peek_on(me, "parent", 9);
    peek_on(me, "parent", 20);
    me.say("the rest: \"%s\"", receive_text(me.fd, 15).c_str());
    me.step();
}

SCENARIO(unread_bytes_are_passed)
{
    int ends[2] = {-1, -1};
    if (!me.server)
        must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    const pid_t child = me.server ? -1 : must(::fork(), "fork");
    if (child == 0) { // before there is a connection
        ::close(me.fd);
        ::close(ends[0]);
        const int fd = take_descriptor(ends[1]);
        show_what_is_there(me, "child", fd);
        show_half(me, "child", fd);
        must(static_cast<int>(::write(ends[1], "d", 1)), "write");
        me.say("child, the rest: \"%s\"", receive_text(fd, 15).c_str());
        ::_exit(0);
    }
    const int fd = me.connection();
    if (me.server)
        return send_and_fork(me, fd, true);
    await_text(me, fd);
    show_half(me, "parent", fd);
    give_descriptor(ends[0], fd);
    ::close(fd);
    char byte;
    must(static_cast<int>(::read(ends[0], &byte, 1)), "read");
    go_on(me);
    reap(me, child);
}

// A message that nobody has received yet keeps what its sender has closed.
SCENARIO(unread_bytes_are_passed_to_oneself)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
    await_text(me, me.fd);
    give_descriptor(ends[0], me.fd);
    me.show("close", ::close(me.fd));
    me.fd = take_descriptor(ends[1]);
    show_what_is_there(me, "passed", me.fd);
    show_half(me, "passed", me.fd);
    show_half(me, "passed", me.fd);
    go_on_to_the_rest(me);
}

SCENARIO(unread_bytes_of_a_started_program)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    int out[2];
    must(::pipe(out), "pipe");
    await_text(me, me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        must(::dup2(me.fd, 0), "dup2");
        must(::dup2(out[1], 1), "dup2");
        ::close(me.fd);
        ::execvp(kHead[0], const_cast<char **>(kHead));
        ::_exit(9);
    }
    ::close(out[1]);
    show_output(me, out[0]);
    reap(me, child);
    show_half(me, "parent", me.fd);
    go_on_to_the_rest(me);
}

SCENARIO(unread_bytes_of_a_spawned_program)
{
    if (me.server)
        return send_and_fork(me, me.fd, true);
    int out[2];
    must(::pipe2(out, O_CLOEXEC), "pipe2");
    await_text(me, me.fd);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, me.fd, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    pid_t child = -1;
    me.say("posix_spawnp: %d",
           ::posix_spawnp(&child, kHead[0], &actions, nullptr, const_cast<char **>(kHead), environ));
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    show_output(me, out[0]);
    reap(me, child);
    show_half(me, "parent", me.fd);
    go_on_to_the_rest(me);
}
