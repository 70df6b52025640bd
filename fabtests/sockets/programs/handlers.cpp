// SPDX-License-Identifier: BSD-2-Clause
// A signal handler that calls what POSIX lets it call, on the socket that its thread is in the middle of a call on: the
// client, some thousand times a second, while it sends, receives and polls. WHAT the handler does: send, receive, peek,
// poll, jump (out of the call, with siglongjmp). HOW it is installed: restart, nodefer, once (SA_RESETHAND, and anew by
// itself). No byte is lost: both sides print what has gone each way.
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr int kRuns = 1500;  // of the handler
constexpr int kJumps = 3000; // each leaves a call where it is
constexpr int kMicroseconds = 400;
constexpr char kPlain = 'p', kHandlers = 'h', kAnswer = 'a';

int g_fd;
std::string_view g_what;
std::string_view g_how;
int g_wanted; // runs
volatile sig_atomic_t g_runs;
volatile sig_atomic_t g_sent;     // bytes, by the handler
volatile sig_atomic_t g_received; // likewise
volatile sig_atomic_t g_may_jump;
sigjmp_buf g_target;

void install();

// Each so many microseconds, 0: no more. Of a handler for one signal it is the next one alone, which the handler asks
// for when it has installed itself: another one that came before would end the process, here as on the kernel.
void set_timer(int microseconds)
{
    const timeval next{0, microseconds};
    const itimerval times{g_how == "once" ? timeval{} : next, next};
    must(::setitimer(ITIMER_REAL, &times, nullptr), "setitimer");
}

void do_it()
{
    char byte = kHandlers;
    pollfd p{g_fd, POLLIN | POLLOUT, 0};
    if (g_what == "send" && ::send(g_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        g_sent = g_sent + 1;
    else if (g_what == "receive" && ::recv(g_fd, &byte, 1, MSG_DONTWAIT) == 1)
        g_received = g_received + 1;
    else if (g_what == "peek")
        ::recv(g_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    else if (g_what == "poll")
        ::poll(&p, 1, 0);
}

void handle(int)
{
    const int saved = errno;
    if (g_how == "once") {
        install();
        set_timer(g_runs < g_wanted ? kMicroseconds : 0);
    }
    g_runs = g_runs + 1;
    if (g_what == "jump" && g_may_jump != 0) {
        g_may_jump = 0;
        siglongjmp(g_target, 1);
    }
    do_it();
    errno = saved;
}

void install()
{
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    if (g_how == "nodefer")
        action.sa_flags |= SA_NODEFER;
    if (g_how == "once")
        action.sa_flags |= static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGALRM, &action, nullptr);
}

// Of the thread itself, where a jump can't undo them.
long g_rounds;
std::uint64_t g_plain_sent;
std::uint64_t g_plain_received;

// One round; a jump leads to the next one. What it leaves unknown is what its call has moved.
void exchange()
{
    char block[64];
    if (::send(g_fd, "pppp", 4, MSG_NOSIGNAL) == 4)
        g_plain_sent += 4;
    pollfd p{g_fd, POLLIN, 0};
    if (++g_rounds % 3 == 0)
        ::poll(&p, 1, 1);
    const ssize_t n = ::recv(g_fd, block, sizeof block, MSG_DONTWAIT);
    if (n == 0)
        die("the connection has ended");
    g_plain_received += n > 0 ? static_cast<std::uint64_t>(n) : 0;
}

void call_from_handlers(const Peer &me)
{
    install();
    set_timer(kMicroseconds);
    while (g_runs < g_wanted) {
        sigsetjmp(g_target, 1);
        g_may_jump = 1;
        exchange();
        g_may_jump = 0;
    }
    set_timer(0);
    g_what = ""; // one may still come
    must(::shutdown(g_fd, SHUT_WR), "shutdown");
    char block[4096];
    for (ssize_t n; (n = ::recv(g_fd, block, sizeof block, 0)) > 0;)
        g_plain_received += static_cast<std::uint64_t>(n);
    if (me.hear() != g_plain_received + static_cast<std::uint64_t>(g_received))
        std::printf("answers are missing or doubled, unless calls were left\n");
    std::printf("sent %llu and %d\n", static_cast<unsigned long long>(g_plain_sent), static_cast<int>(g_sent));
}

void answer(const Peer &me)
{
    long plain = 0, handlers = 0;
    std::uint64_t answers = 0;
    char block[1 << 15];
    for (ssize_t n; (n = ::recv(g_fd, block, sizeof block, 0)) != 0;) {
        if (n < 0)
            die("recv: %s", std::strerror(errno));
        for (ssize_t i = 0; i < n; ++i) {
            plain += block[i] == kPlain ? 1 : 0;
            handlers += block[i] == kHandlers ? 1 : 0;
        }
        if (::send(g_fd, &kAnswer, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
            ++answers;
    }
    must(::shutdown(g_fd, SHUT_WR), "shutdown");
    me.tell(answers);
    std::printf("sent %ld and %ld\n", plain, handlers);
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    if (argc != 3)
        die("usage: handlers server|client --control FD WHAT HOW");
    g_what = argv[1];
    g_how = argv[2];
    g_wanted = g_what == "jump" ? kJumps : kRuns;
    me.open_listener();
    g_fd = me.connect_plain();
    me.offload(g_fd);
    me.step();
    if (me.server)
        answer(me);
    else
        call_from_handlers(me);
    return 0;
}
