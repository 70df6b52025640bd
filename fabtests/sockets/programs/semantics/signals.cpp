// SPDX-License-Identifier: BSD-2-Clause
// Signals, jumps and cancellation while a call waits. No scenario depends on when a signal comes: alarms repeat until
// the call has told what it does with one.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <csetjmp>
#include <pthread.h>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

volatile sig_atomic_t g_alarms;
int g_notify_after; // alarms after which the handler tells the peer to end the wait
int g_control;
int g_socket;

void count_alarm(int)
{
    const int saved = errno;
    g_alarms = g_alarms + 1;
    if (g_alarms == g_notify_after) {
        const std::uint64_t value = 0;
        if (::send(g_control, &value, sizeof value, MSG_NOSIGNAL) < 0)
            ::_exit(9);
    }
    errno = saved;
}

// The call is interrupted. A send that still found some room is repeated: full means full now, not for ever.
template <typename Call> void interrupted(const Side &me, const char *name, bool restart, Call call)
{
    g_notify_after = -1;
    long result;
    {
        const Alarms alarms(20, restart, count_alarm);
        do
            result = call();
        while (result > 0);
    }
    me.show(name, result);
}

// The call goes on after signals: the peer ends the wait after four of them.
template <typename Call> void continued(const Side &me, const char *name, Call call)
{
    g_control = me.control;
    g_alarms = 0;
    g_notify_after = 4;
    long result;
    {
        const Alarms alarms(20, true, count_alarm);
        do
            result = call();
        while (g_alarms < g_notify_after);
    }
    me.show(name, result);
}

} // namespace

SCENARIO(interrupted_receive)
{
    if (me.server) {
        me.step();
        return;
    }
    char buf[16];
    iovec part{buf, sizeof buf};
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    interrupted(me, "recv", false, [&] { return ::recv(me.fd, buf, sizeof buf, 0); });
    interrupted(me, "read", false, [&] { return ::read(me.fd, buf, sizeof buf); });
    interrupted(me, "readv", false, [&] { return ::readv(me.fd, &part, 1); });
    interrupted(me, "recvmsg", false, [&] { return ::recvmsg(me.fd, &msg, 0); });
    interrupted(me, "recv WAITALL", false, [&] { return ::recv(me.fd, buf, sizeof buf, MSG_WAITALL); });
    interrupted(me, "recv PEEK", false, [&] { return ::recv(me.fd, buf, sizeof buf, MSG_PEEK); });
    interrupted(me, "accept", false, [&] {
        const int listener = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
        must(::listen(listener, 1), "listen");
        return ::accept(listener, nullptr, nullptr);
    });
    const timeval limit{patience::seconds(), 0}; // with a time-out, SA_RESTART does not restart
    must(::setsockopt(me.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    interrupted(me, "recv with SA_RESTART and a time-out", true, [&] { return ::recv(me.fd, buf, sizeof buf, 0); });
    me.step();
}

SCENARIO(interrupted_waitall)
{
    if (me.server) {
        send_text(me.fd, "part");
        me.step();
        return;
    }
    await_readable(me.fd, 4);
    char buf[16];
    interrupted(me, "recv WAITALL with 4 bytes there", false,
                [&] { return ::recv(me.fd, buf, sizeof buf, MSG_WAITALL); });
    me.step();
}

SCENARIO(interrupted_send)
{
    if (me.server) {
        me.step();
        return;
    }
    fill_until_full(me.fd);
    static char block[1 << 20];
    iovec part{block, sizeof block};
    interrupted(me, "send", false, [&] { return ::send(me.fd, block, sizeof block, 0); });
    interrupted(me, "write", false, [&] { return ::write(me.fd, block, 1); });
    interrupted(me, "writev", false, [&] { return ::writev(me.fd, &part, 1); });
    const timeval limit{patience::seconds(), 0};
    must(::setsockopt(me.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), "SO_SNDTIMEO");
    interrupted(me, "send with SA_RESTART and a time-out", true, [&] { return ::send(me.fd, block, 1, 0); });
    me.step();
}

SCENARIO(interrupted_send_in_part)
{
    if (me.server) {
        me.step();
        return;
    }
    static char block[64 << 20];
    g_notify_after = -1;
    ssize_t n;
    {
        const Alarms alarms(100, false, count_alarm);
        n = ::send(me.fd, block, sizeof block, 0);
    }
    me.say("send of 64 MiB: %s", n > 0 && n < static_cast<ssize_t>(sizeof block) ? "in part" : "unexpected");
    me.step();
}

SCENARIO(restarted_receive)
{
    if (me.server) {
        for (int i = 0; i < 3; ++i) {
            me.hear();
            send_text(me.fd, "data");
        }
        me.step();
        return;
    }
    char buf[16];
    iovec part{buf, 4};
    continued(me, "recv", [&] { return ::recv(me.fd, buf, sizeof buf, 0); });
    continued(me, "readv", [&] { return ::readv(me.fd, &part, 1); });
    continued(me, "recv WAITALL", [&] { return ::recv(me.fd, buf, 4, MSG_WAITALL); });
    me.step();
}

SCENARIO(restarted_send)
{
    if (me.server) {
        me.hear();
        me.say("drained: %s", drain(me.fd) > 0 ? "yes" : "no");
        return;
    }
    fill_until_full(me.fd);
    static char block[1000];
    continued(me, "send", [&] { return ::send(me.fd, block, sizeof block, 0); });
    ::close(me.fd);
}

// Multiplexers are never restarted.
SCENARIO(interrupted_multiplexers)
{
    if (me.server) {
        me.step();
        return;
    }
    for (const bool restart : {false, true}) {
        pollfd p{me.fd, POLLIN, 0};
        interrupted(me, "poll", restart, [&] { return ::poll(&p, 1, -1); });
        interrupted(me, "poll with a time-out", restart, [&] { return ::poll(&p, 1, patience::milliseconds()); });
        interrupted(me, "ppoll", restart, [&] { return ::ppoll(&p, 1, nullptr, nullptr); });
        interrupted(me, "select", restart, [&] {
            fd_set in;
            FD_ZERO(&in);
            FD_SET(me.fd, &in);
            return ::select(me.fd + 1, &in, nullptr, nullptr, nullptr);
        });
        interrupted(me, "pselect", restart, [&] {
            fd_set in;
            FD_ZERO(&in);
            FD_SET(me.fd, &in);
            const timespec limit{patience::seconds(), 0};
            return ::pselect(me.fd + 1, &in, nullptr, nullptr, &limit, nullptr);
        });
        const int set = must(::epoll_create1(0), "epoll_create1");
        epoll_event event{EPOLLIN, {}};
        must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
        interrupted(me, "epoll_wait", restart, [&] { return ::epoll_wait(set, &event, 1, -1); });
        interrupted(me, "epoll_pwait with a time-out", restart,
                    [&] { return ::epoll_pwait(set, &event, 1, patience::milliseconds(), nullptr); });
        ::close(set);
    }
    me.step();
}

// A signal that waits behind the mask comes in the call that opens the mask, and nowhere else.
SCENARIO(masks_of_multiplexers)
{
    if (me.server) {
        me.step();
        return;
    }
    struct sigaction action {
    };
    action.sa_handler = count_alarm;
    must(::sigaction(SIGUSR1, &action, nullptr), "sigaction");
    g_notify_after = -1;
    g_alarms = 0;
    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    must(::sigprocmask(SIG_BLOCK, &blocked, &open), "sigprocmask");
    pollfd p{me.fd, POLLIN, 0};
    ::raise(SIGUSR1);
    me.show("poll behind the mask", ::poll(&p, 1, 50));
    me.say("handled: %d", static_cast<int>(g_alarms));
    me.show("ppoll", ::ppoll(&p, 1, nullptr, &open));
    me.say("handled: %d", static_cast<int>(g_alarms));
    ::raise(SIGUSR1);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(me.fd, &in);
    me.show("pselect", ::pselect(me.fd + 1, &in, nullptr, nullptr, nullptr, &open));
    me.say("handled: %d", static_cast<int>(g_alarms));
    ::raise(SIGUSR1);
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event{EPOLLIN, {}};
    must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    me.show("epoll_pwait", ::epoll_pwait(set, &event, 1, -1, &open));
    me.say("handled: %d", static_cast<int>(g_alarms));
    ::raise(SIGUSR1);
    me.show("epoll_wait behind the mask", ::epoll_wait(set, &event, 1, 50));
    me.say("handled: %d", static_cast<int>(g_alarms));
    sigset_t now;
    must(::sigprocmask(SIG_SETMASK, nullptr, &now), "sigprocmask");
    me.say("mask kept: %s", sigismember(&now, SIGUSR1) == 1 ? "yes" : "no");
    must(::sigprocmask(SIG_SETMASK, &open, nullptr), "sigprocmask");
    me.say("handled: %d", static_cast<int>(g_alarms));
    me.step();
}

// send() is async-signal-safe: a handler may call it while the program is in the middle of a call on the same socket.
SCENARIO(handler_sends)
{
    constexpr int kMessages = 3000, kFromHandler = 30;
    if (me.server) {
        int plain = 0, handler = 0;
        char block[512];
        while (plain < kMessages || handler < kFromHandler) {
            const ssize_t n = ::recv(me.fd, block, sizeof block, 0);
            if (n <= 0)
                die("recv: %zd", n);
            for (ssize_t i = 0; i < n; ++i) {
                plain += block[i] == 'p';
                handler += block[i] == 'h';
                if (block[i] == 'p')
                    send_text(me.fd, "a");
            }
        }
        me.say("%d plain, %d by the handler", plain, handler);
        me.step();
        return;
    }
    g_socket = me.fd;
    g_alarms = 0;
    {
        const Alarms alarms(2, true, [](int) {
            const int saved = errno;
            if (g_alarms < kFromHandler && ::send(g_socket, "h", 1, MSG_NOSIGNAL) == 1)
                g_alarms = g_alarms + 1;
            errno = saved;
        });
        for (int i = 0; i < kMessages || g_alarms < kFromHandler; ++i) {
            if (i < kMessages) {
                send_text(me.fd, "p");
                receive_text(me.fd, 1);
            } else {
                ::usleep(1000);
            }
        }
    }
    me.step();
}

// Leaving a waiting call by a jump out of a handler, as old programs make time-outs.
SCENARIO(jump_out_of_receive)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "after the jump");
        me.say("%s", receive_text(me.fd, 5).c_str());
        return;
    }
    static sigjmp_buf target;
    static volatile int rounds;
    rounds = 0;
    char buf[32];
    if (sigsetjmp(target, 1) == 0 || rounds < 3) {
        rounds = rounds + 1;
        const Alarms *alarms = new Alarms(30, true, [](int) { siglongjmp(target, 1); }); // not destroyed by the jump
        const ssize_t n = ::recv(me.fd, buf, sizeof buf, 0);
        me.say("recv came back: %zd", n);
        delete alarms;
    }
    const itimerval never{};
    must(::setitimer(ITIMER_REAL, &never, nullptr), "setitimer");
    me.say("jumped %d times", rounds);
    me.step();
    me.say("%s", receive_text(me.fd, 14).c_str());
    send_text(me.fd, "still");
}

// A thread that is cancelled while it waits leaves the socket usable.
SCENARIO(cancelled_receive)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "for another");
        me.say("%s", receive_text(me.fd, 2).c_str());
        return;
    }
    g_socket = me.fd;
    for (int kind = 0; kind < 3; ++kind) {
        pthread_t thread;
        static int which;
        which = kind;
        must(-::pthread_create(
                 &thread, nullptr,
                 [](void *) -> void * {
                     char buf[8];
                     pollfd p{g_socket, POLLIN, 0};
                     if (which == 0)
                         static_cast<void>(::recv(g_socket, buf, sizeof buf, 0));
                     else if (which == 1)
                         static_cast<void>(::poll(&p, 1, -1));
                     else
                         static_cast<void>(::read(g_socket, buf, sizeof buf));
                     return nullptr;
                 },
                 nullptr),
             "pthread_create");
        ::usleep(50000);
        must(-::pthread_cancel(thread), "pthread_cancel");
        void *result = nullptr;
        must(-::pthread_join(thread, &result), "pthread_join");
        me.say("%s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
    }
    me.step();
    me.say("%s", receive_text(me.fd, 11).c_str());
    send_text(me.fd, "ok");
}

namespace {

constexpr int kAgainMs = 20;

Alarms *g_childs_own; // until it ends
int g_strays;         // children that found one of their files written to, or did not end
pid_t g_parent;

// In a child: all numbers that are free, up to the library's own, lead to one file. Nobody but the program writes to
// it, whatever a signal that ends a sleep was to wake in the parent.
bool file_is_let_be()
{
    constexpr int kHighest = 1023;
    const int file = ::eventfd(0, EFD_NONBLOCK);
    for (int next = file; next >= 0 && next < kHighest;)
        next = ::fcntl(file, F_DUPFD, 0);
    for (int i = 0; i < 10; ++i)
        ::raise(SIGUSR1);
    std::uint64_t count = 0;
    return ::read(file, &count, sizeof count) < 0 && errno == EAGAIN;
}

// It goes on using the socket.
bool look_once(int fd)
{
    char byte;
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 0 && ::recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void set_alarm(int milliseconds) // one; 0: none
{
    const itimerval next{{}, {0, milliseconds * 1000}};
    must(::setitimer(ITIMER_REAL, &next, nullptr), "setitimer");
}

void fork_in_handler(int)
{
    const int saved = errno;
    static int runs;
    set_alarm(0); // the next one comes when this one is over
    const pid_t child = ::fork();
    const bool goes_back = ++runs % 2 == 0; // into the call, which is over for it as well
    if (child == 0 && (!file_is_let_be() || !goes_back))
        ::_exit(goes_back ? 1 : 0);
    int status = 0;
    if (child == 0) {
        g_childs_own = new Alarms(kAgainMs, false, [](int) {}); // the call may not have begun when this one came
        return;
    }
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0)
        g_strays = g_strays + 1;
    set_alarm(kAgainMs);
    errno = saved;
}

// The handler of the signal that ends the call forks. The child goes on in the handler, and then in the call, or not.
template <typename Call> void forked_in(Side &me, const char *name, Call call)
{
    if (me.server) {
        me.step();
        send_text(me.fd, "over");
        return;
    }
    ::signal(SIGUSR1, [](int) {});
    g_parent = ::getpid();
    for (int i = 0; i < 2; ++i) {
        const Alarms alarms(kAgainMs, false, fork_in_handler);
        const auto result = call();
        if (::getpid() != g_parent)
            ::_exit(result < 0 && errno == EINTR && look_once(me.fd) ? 0 : 1);
        me.show(name, result);
    }
    me.say("%d strays", g_strays);
    me.step();
    me.say("%s", receive_text(me.fd, 4).c_str());
}

} // namespace

SCENARIO(forked_in_receive)
{
    char byte;
    forked_in(me, "recv", [&] { return ::recv(me.fd, &byte, 1, 0); });
}

SCENARIO(forked_in_poll)
{
    const int other = ::eventfd(0, 0);
    pollfd fds[] = {{me.fd, POLLIN, 0}, {other, POLLIN, 0}};
    forked_in(me, "poll", [&] { return ::poll(fds, 2, -1); });
}

SCENARIO(forked_in_epoll_wait)
{
    const int set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN;
    must(::epoll_ctl(set, EPOLL_CTL_ADD, me.fd, &event), "epoll_ctl");
    forked_in(me, "epoll_wait", [&] { return ::epoll_wait(set, &event, 1, -1); });
}
