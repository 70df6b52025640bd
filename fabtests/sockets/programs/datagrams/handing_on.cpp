// SPDX-License-Identifier: BSD-2-Clause
// Scenarios of one socket behind several descriptors, processes and programs: dup, fork, exec, descriptor passing.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "fabtests/sockets/programs/datagrams/side.hpp"

namespace {

using namespace fabtest;

void reap(const Datagrams &me, pid_t child)
{
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: %s %d", WIFEXITED(status) ? "exit" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

// Client: asks and prints the answers. Server: `count` answers to whoever asks, by this descriptor.
void ask(const Datagrams &me, const char *who, int count)
{
    for (int i = 0; i < count; ++i) {
        const std::string text = who + std::to_string(i);
        must(static_cast<int>(send_to(me.link.fd, text.data(), text.size(), me.link.other)), "sendto");
        const Received r = receive_by(Form::kRecvfrom, me.link.fd, 100);
        if (r.data != text || me.name(r.from) != me.name(me.link.other))
            die("%s: \"%s\" from %s", text.c_str(), r.data.c_str(), me.name(r.from).c_str());
    }
    me.say("%s answers %d", who, count);
}

void answer(int fd, int count)
{
    for (int i = 0; i < count; ++i) {
        const Received r = receive_by(Form::kRecvfrom, fd, 100);
        if (r.result < 0 || send_to(fd, r.data.data(), r.data.size(), r.from) < 0)
            die("answer %d: %s", i, strerrorname_np(errno));
    }
}

constexpr int kCount = 100;

} // namespace

namespace fabtest {

// A program that was started with the socket: it answers, and says when it is there.
int inherited_socket(int fd, int control)
{
    Datagrams me;
    me.control = control;
    me.tell(0);
    answer(fd, kCount);
    return 0;
}

} // namespace fabtest

// A copy of the descriptor, with the first closed, in both orders.
EVERY_FAMILY(duplicates)
{
    if (!me.server) {
        for (const char *who : {"by both ", "by dup ", "by dup2 ", "by F_DUPFD "})
            ask(me, who, kCount);
        me.step();
        return;
    }
    const int copy = must(::dup(me.link.fd), "dup");
    answer(me.link.fd, kCount / 2);
    answer(copy, kCount / 2);
    must(::close(me.link.fd), "close");
    answer(copy, kCount);
    const int again = must(::dup2(copy, copy + 20), "dup2");
    must(::close(copy), "close");
    answer(again, kCount);
    const int last = must(::fcntl(again, F_DUPFD_CLOEXEC, 100), "F_DUPFD_CLOEXEC");
    must(::close(again), "close");
    answer(last, kCount);
    me.say("now %s", me.name(local_address(last)).c_str());
    me.step();
}

// dup2 over a socket closes it: its port refuses, and the descriptor is the other socket.
SCENARIO(replaced_by_dup2)
{
    const Link other = me.open("D", "T");
    if (me.server) {
        must(::dup2(me.link.fd, other.fd), "dup2");
        me.say("both %s", me.name(local_address(other.fd)).c_str());
    } else {
        must(connect_to(other.fd, other.other), "connect");
    }
    me.step();
    if (!me.server) {
        me.show("send to T", ::send(other.fd, "x", 1, 0));
        me.show("recv", receive_by(Form::kRecv, other.fd, 10));
        ask(me, "by D's descriptor ", kCount);
    } else {
        answer(other.fd, kCount);
    }
    me.step();
    me.still_works(me.link);
}

// Parent and child hold the socket: each receives by it, one after the other, and the parent goes on alone.
EVERY_FAMILY(forked)
{
    if (!me.server) {
        for (const char *who : {"child ", "parent meanwhile ", "parent alone "}) {
            me.hear();
            ask(me, who, kCount);
        }
        me.warm(me.link);
        me.still_works(me.link);
        return;
    }
    int ready[2];
    must(::pipe2(ready, O_CLOEXEC), "pipe2");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        me.tell(0);
        answer(me.link.fd, kCount);
        must(static_cast<int>(::write(ready[1], "d", 1)), "write");
        ::pause();
        ::_exit(0);
    }
    char byte;
    must(static_cast<int>(::read(ready[0], &byte, 1)), "read"); // the child waits for its end
    me.tell(0);
    answer(me.link.fd, kCount);
    must(::kill(child, SIGKILL), "kill");
    reap(me, child);
    me.tell(0);
    answer(me.link.fd, kCount);
    me.warm(me.link);
    me.still_works(me.link);
}

// A child changes how calls wait: so they wait in the parent, which is accelerated again.
EVERY_FAMILY(child_sets_how_calls_wait)
{
    constexpr int kRounds = 200; // more than it takes
    const auto in_child = [&me](auto act) {
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            act();
            ::_exit(0);
        }
        reap(me, child);
    };
    const auto exchange = [&me] {
        char byte = 'x';
        for (int i = 0; i < kRounds; ++i) {
            if (!me.server)
                must(static_cast<int>(send_to(me.link.fd, &byte, 1, me.link.other)), "send");
            pollfd arrives{me.link.fd, POLLIN, 0};
            must(::poll(&arrives, 1, -1), "poll");
            must(static_cast<int>(::recv(me.link.fd, &byte, 1, 0)), "recv");
            if (me.server)
                must(static_cast<int>(send_to(me.link.fd, &byte, 1, me.link.other)), "send");
        }
        me.step();
    };
    const timeval short_time{0, 20'000};
    if (me.server)
        in_child([&] { set_nonblocking(me.link.fd, true); });
    exchange();
    char byte;
    if (me.server) {
        me.show("recv, without waiting", ::recv(me.link.fd, &byte, 1, 0));
        in_child([&] {
            set_nonblocking(me.link.fd, false);
            must(::setsockopt(me.link.fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time), "setsockopt");
        });
    }
    me.step();
    exchange();
    if (me.server)
        me.show("recv, for a while", ::recv(me.link.fd, &byte, 1, 0));
    me.step();
    me.still_works(me.link);
}

// Datagrams that were in the queue before fork are there for either, once.
EVERY_FAMILY(forked_with_datagrams_there)
{
    me.deliver(me.link, {"one", "two", "three", "four"});
    if (me.server) {
        me.take("before", me.link.fd, MSG_DONTWAIT);
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            me.take("child", me.link.fd, MSG_DONTWAIT);
            me.take("child", me.link.fd, MSG_DONTWAIT);
            ::_exit(0);
        }
        reap(me, child);
        me.take("parent", me.link.fd, MSG_DONTWAIT);
        me.nothing_there("and", me.link.fd);
    }
    me.step();
    me.still_works(me.link);
}

// Whatever asks for them, and whoever: they are there until one has taken them.
EVERY_FAMILY(datagrams_seen_by_both)
{
    const auto ask = [&me](const char *who) {
        char bytes[16] = {};
        int count = -1;
        pollfd one{me.link.fd, POLLIN, 0};
        me.say("%s: poll %d", who, ::poll(&one, 1, 0));
        ::ioctl(me.link.fd, FIONREAD, &count);
        const ssize_t n = ::recv(me.link.fd, bytes, sizeof bytes - 1, MSG_PEEK | MSG_DONTWAIT);
        me.say("%s: FIONREAD %d, \"%s\" (%zd)", who, count, bytes, n);
    };
    me.deliver(me.link, {"one", "three", "to pass"});
    if (me.server) {
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            ask("child");
            me.take("child", me.link.fd, MSG_DONTWAIT);
            ask("child");
            ::_exit(0);
        }
        reap(me, child);
        ask("parent");
        me.take("parent", me.link.fd, MSG_DONTWAIT);
        int ends[2];
        must(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
        give_descriptor(ends[0], me.link.fd);
        const int passed = take_descriptor(ends[1]);
        ask("before");
        me.take("passed", passed, MSG_DONTWAIT);
        ask("after");
        must(::close(passed), "close");
        me.nothing_there("and", me.link.fd);
    }
    me.step();
    me.still_works(me.link);
}

// As a daemon does it: the process that made the socket ends, and its child serves.
EVERY_FAMILY(daemon_style)
{
    if (!me.server) {
        me.link.other.set_port(static_cast<std::uint16_t>(me.hear()));
        me.name_port(me.link.other.port(), "T");
        me.warm(me.link);
        me.hear();
        ask(me, "daemon ", 3 * kCount);
        me.step();
        return;
    }
    must(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl"); // to learn of the daemon's end
    must(::close(me.link.fd), "close");
    Datagrams its = me;
    const pid_t first = must(::fork(), "fork");
    if (first == 0) {
        its.link.fd = bound_socket(make_address(me.bound.c_str(), 0));
        its.tell(local_address(its.link.fd).port());
        its.warm(its.link);
        if (must(::fork(), "fork") != 0)
            ::_exit(0);
        ::setsid();
        while (::getppid() == first) // the parent's end
            ::sched_yield();
        its.tell(0);
        answer(its.link.fd, 3 * kCount);
        ::_exit(0);
    }
    reap(me, first);
    int status = -1;
    must(::wait(&status), "wait");
    me.say("daemon: %d", WEXITSTATUS(status));
    me.step();
}

// A child with a socket of its own beside the inherited one, at the same time as its parent.
EVERY_FAMILY(forked_server)
{
    const Link other = me.open("D", "T");
    if (!me.server) {
        Datagrams second = me;
        second.link = other;
        me.hear();
        for (int i = 0; i < 5; ++i) {
            ask(me, "parent ", kCount / 5);
            ask(second, "child ", kCount / 5);
        }
        me.step();
        return;
    }
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::close(me.link.fd);
        me.tell(0);
        answer(other.fd, kCount);
        ::_exit(0);
    }
    must(::close(other.fd), "close");
    answer(me.link.fd, kCount);
    reap(me, child);
    me.step();
}

// A program that is started with the socket, by fork and exec.
EVERY_FAMILY(started_program)
{
    if (!me.server) {
        me.hear();
        ask(me, "program ", kCount);
        me.step();
        me.warm(me.link);
        me.still_works(me.link);
        return;
    }
    const std::string fd = std::to_string(me.link.fd), control = std::to_string(me.control);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        must(::fcntl(me.link.fd, F_SETFD, 0), "F_SETFD");
        must(::fcntl(me.control, F_SETFD, 0), "F_SETFD");
        ::execl("/proc/self/exe", "semantics", "--inherited", fd.c_str(), control.c_str(), nullptr);
        ::_exit(9);
    }
    reap(me, child);
    me.step();
    me.warm(me.link);
    me.still_works(me.link);
}

// A program that replaces itself and keeps the socket. Its last line is the client's.
EVERY_FAMILY(replaced_program)
{
    if (!me.server) {
        me.hear();
        ask(me, "replaced ", kCount);
        return;
    }
    const std::string fd = std::to_string(me.link.fd), control = std::to_string(me.control);
    must(::fcntl(me.link.fd, F_SETFD, 0), "F_SETFD");
    must(::fcntl(me.control, F_SETFD, 0), "F_SETFD");
    me.say("done"); // this program does not come back
    ::execl("/proc/self/exe", "semantics", "--inherited", fd.c_str(), control.c_str(), nullptr);
    die("exec: %s", strerrorname_np(errno));
}

// The socket is given to the other side: both have it, then only the other.
EVERY_FAMILY(passed)
{
    if (me.server) {
        give_descriptor(me.control, me.link.fd);
        me.hear();
        answer(me.link.fd, kCount);
        must(::close(me.link.fd), "close");
        me.step();
        return;
    }
    const int fd = take_descriptor(me.control);
    me.say("it is %s", me.name(local_address(fd)).c_str());
    me.tell(0);
    ask(me, "by the server ", kCount);
    me.step();
    for (int i = 0; i < kCount; ++i) {
        must(static_cast<int>(send_to(me.link.fd, "own", 3, me.link.other)), "sendto");
        const Received r = receive_by(Form::kRecv, fd, 10);
        if (r.data != "own")
            die("by itself: %zd \"%s\"", r.result, r.data.c_str());
    }
    me.say("by itself %d", kCount);
}

// What is in the queue of a socket that is given away is there for either.
EVERY_FAMILY(passed_with_a_datagram_there)
{
    me.deliver(me.link, {"there before"});
    if (me.server) {
        give_descriptor(me.control, me.link.fd);
    } else {
        const int fd = take_descriptor(me.control);
        me.take("passed", fd, MSG_DONTWAIT);
        must(::close(fd), "close");
    }
    me.step();
}
