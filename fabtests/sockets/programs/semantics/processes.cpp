// SPDX-License-Identifier: BSD-2-Clause
// New processes in the ways that servers make them, and changes of what a process may do, while a connection is in use.
// The client sends lines and gets them back from whoever has the server's descriptor. More of fork(), exec() and
// SCM_RIGHTS: descriptors.cpp.
#include <linux/sched.h> // clone_args
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

constexpr int kLines = 200;

void echo_until_end(int fd)
{
    char block[4096];
    for (ssize_t n; (n = ::recv(fd, block, sizeof block, 0)) > 0;)
        send_all(fd, block, static_cast<std::size_t>(n));
}

void exchange_lines(const Side &me, int count)
{
    for (int i = 0; i < count; ++i) {
        const std::string line = "line " + std::to_string(i) + "\n";
        send_text(me.fd, line.c_str());
        if (receive_text(me.fd, line.size()) != line)
            die("wrong answer to line %d", i);
    }
    me.say("%d lines came back", count);
}

void ask_for_lines(const Side &me)
{
    exchange_lines(me, kLines);
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    char byte;
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

void reap(const Side &me, pid_t child)
{
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: status %d", status);
}

// Runs the rest of the server in a process that has left its parent, and waits until that has ended.
template <typename Leave> void in_daemon(Side &me, Leave leave)
{
    int ends[2];
    must(::pipe(ends), "pipe");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::close(ends[0]);
        leave();
        echo_until_end(me.fd);
        ::_exit(0);
    }
    ::close(ends[1]);
    ::close(me.fd);
    reap(me, child);
    char byte;
    me.show("the daemon has ended", ::read(ends[0], &byte, 1));
}

int echo_of_clone(void *side)
{
    echo_until_end(static_cast<Side *>(side)->fd);
    return 0;
}

// Calls that are no cancellation points, of a thread that is to be cancelled: each has to come back.
void *call_with_cancellation_pending(void *argument)
{
    Side &me = *static_cast<Side *>(argument);
    must(::pthread_cancel(::pthread_self()), "pthread_cancel");
    const int one = 1;
    int count = 0;
    socklen_t size = sizeof count;
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    epoll_event event{};
    event.events = EPOLLIN;
    const int set = ::epoll_create1(EPOLL_CLOEXEC);
    me.show("setsockopt", ::setsockopt(me.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one));
    me.show("getsockopt", ::getsockopt(me.fd, SOL_SOCKET, SO_ERROR, &count, &size));
    me.show("FIONREAD", ::ioctl(me.fd, FIONREAD, &count));
    me.show("getpeername", ::getpeername(me.fd, reinterpret_cast<sockaddr *>(&address), &length));
    me.show("EPOLL_CTL_ADD", ::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event));
    me.show("EPOLL_CTL_DEL", ::epoll_ctl(set, EPOLL_CTL_DEL, me.fd, nullptr));
    const int second = ::dup(me.fd);
    me.say("dup: %s", second >= 0 ? "made" : "failed");
    me.show("dup2", ::dup2(me.fd, second) == second ? 0 : -1);
    me.show("shutdown", ::shutdown(second, SHUT_WR));
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    char byte;
    me.show("recv, not to be cancelled", ::recv(me.fd, &byte, 1, 0));
    me.show("send after shutdown", ::send(me.fd, &byte, 1, MSG_NOSIGNAL));
    ::close(set);
    ::close(second);
    ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    ::pthread_testcancel();
    return nullptr;
}

} // namespace

// As inetd starts a server: the connection is its standard input and output.
SCENARIO(inetd)
{
    if (!me.server)
        return ask_for_lines(me);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        must(::dup2(me.fd, 0), "dup2");
        must(::dup2(me.fd, 1), "dup2");
        ::close(me.fd);
        ::execlp("cat", "cat", nullptr);
        ::_exit(9);
    }
    ::close(me.fd);
    reap(me, child);
}

SCENARIO(spawn_with_file_actions)
{
    if (!me.server)
        return ask_for_lines(me);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, me.fd, 0);
    ::posix_spawn_file_actions_adddup2(&actions, me.fd, 1);
    ::posix_spawn_file_actions_addclose(&actions, me.fd);
    char name[] = "cat";
    char *const argv[] = {name, nullptr};
    pid_t child = -1;
    me.say("posix_spawnp: %d", ::posix_spawnp(&child, name, &actions, nullptr, argv, environ));
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(me.fd);
    reap(me, child);
}

SCENARIO(daemon)
{
    if (!me.server)
        return ask_for_lines(me);
    in_daemon(me, [] { must(::daemon(1, 1), "daemon"); });
}

SCENARIO(double_fork)
{
    if (!me.server)
        return ask_for_lines(me);
    in_daemon(me, [] {
        ::setsid();
        if (must(::fork(), "fork") != 0)
            ::_exit(0);
    });
}

// A child with memory of its own, made past fork().
SCENARIO(cloned_child)
{
    if (!me.server)
        return ask_for_lines(me);
    alignas(16) static char stack[256 << 10];
    const pid_t child = must(::clone(echo_of_clone, stack + sizeof stack, SIGCHLD, &me), "clone");
    ::close(me.fd);
    reap(me, child);
}

// Likewise by numbers of system calls, with the stack of whoever calls.
SCENARIO(children_by_number)
{
    if (!me.server)
        return ask_for_lines(me);
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    const auto made = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
    if (must(made, "clone3") == 0)
        ::_exit(echo_of_clone(&me));
    ::close(me.fd);
    reap(me, made);
    me.show("clone3 of nothing", ::syscall(SYS_clone3, nullptr, sizeof arguments));
    me.show("clone3 of too little", ::syscall(SYS_clone3, &arguments, 8));
    arguments.flags = CLONE_THREAD;
    me.show("clone3 of flags that don't fit", ::syscall(SYS_clone3, &arguments, sizeof arguments));
}

// The superuser's server gives its rights away; others are told that they have none.
SCENARIO(chroot_and_setuid)
{
    if (!me.server) {
        exchange_lines(me, kLines);
        const int second = me.connect_plain();
        ::close(me.fd);
        me.fd = second;
        return ask_for_lines(me);
    }
    me.show("chroot", ::chroot("/proc"));
    me.show("chdir", ::chdir("/"));
    me.show("setresgid", ::setresgid(65534, 65534, 65534));
    me.show("setresuid", ::setresuid(65534, 65534, 65534));
    const int first = me.fd;
    char block[4096];
    std::size_t lines = 0;
    while (lines < kLines) {
        const ssize_t n = ::recv(first, block, sizeof block, 0);
        for (ssize_t i = 0; i < n; ++i)
            lines += block[i] == '\n';
        send_all(first, block, static_cast<std::size_t>(n));
    }
    const int second = me.connect_plain();
    ::close(first);
    echo_until_end(second);
}

// No room for one descriptor more than the program has.
SCENARIO(descriptors_run_out)
{
    if (me.server)
        return echo_until_end(me.fd);
    const int next = ::dup(me.fd);
    const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    ::close(next);
    me.show("setrlimit", ::setrlimit(RLIMIT_NOFILE, &limit));
    me.show("dup", ::dup(me.fd));
    me.show("socket", ::socket(AF_INET, SOCK_STREAM, 0));
    ask_for_lines(me);
}

SCENARIO(cancellation_is_pending)
{
    if (me.server)
        return echo_until_end(me.fd);
    pthread_t thread;
    must(::pthread_create(&thread, nullptr, call_with_cancellation_pending, &me), "pthread_create");
    void *result = nullptr;
    must(::pthread_join(thread, &result), "pthread_join");
    me.say("the thread %s", result == PTHREAD_CANCELED ? "was cancelled" : "came to its end");
}
