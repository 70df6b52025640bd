// SPDX-License-Identifier: BSD-2-Clause
// A server that allows itself only the system calls that it makes, in several ways and at several moments. WHEN:
// `first` before it accepts, `accepted` before a byte is exchanged, `running` once its connections are accelerated
// where they are to be, `reset` likewise, before the peer resets one of them. HOW: who sets the filter, and by what, or
// `never`. ACTION: what the filter does about any other call. What it prints is the same without the library.
#include <arpa/inet.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr unsigned kRounds = 300;
constexpr unsigned kSecondAt = 150; // the second connection has a turn
constexpr unsigned kDatagramEach = 25;
constexpr std::size_t kLength = 64;
constexpr int kMostDescriptors = 4096;

struct Plan {
    std::string when;
    std::string how;
    std::string action;
};

struct Sockets {
    int first = -1;
    int second = -1;
    int datagrams = -1;
    int set = -1;
};

// ---- the filter

std::vector<int> allowed(const Plan &plan)
{
    std::vector<int> calls = {
        SYS_read, SYS_write,      SYS_recvfrom,     SYS_sendto,    SYS_accept,      SYS_accept4, SYS_close,
        SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll,   SYS_pselect6,
#ifdef SYS_poll
        SYS_poll, SYS_epoll_wait, SYS_select,
#endif
    };
    const std::vector<int> of_threads = {SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_set_robust_list};
    if (plan.how == "thread" || plan.how == "tsync" || plan.how == "other")
        calls.insert(calls.end(), of_threads.begin(), of_threads.end());
    if (plan.how == "instruction") // nothing tells the library before; it looks
        calls.insert(calls.end(), {SYS_openat, SYS_gettid});
    return calls;
}

std::vector<sock_filter> filter(const Plan &plan)
{
    const std::uint32_t action = plan.action == "kill"   ? SECCOMP_RET_KILL_PROCESS
                                 : plan.action == "trap" ? SECCOMP_RET_TRAP
                                                         : SECCOMP_RET_ERRNO | EPERM;
    std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const int call : allowed(plan)) {
        code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
        code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, action));
    return code;
}

void say(const char *text)
{
    (void)!::write(STDOUT_FILENO, text, strlen(text));
}

void on_refused(int, siginfo_t *info, void *)
{
    char text[64];
    snprintf(text, sizeof text, "refused: system call %d\n", info->si_syscall);
    say(text);
    ::_exit(9);
}

#if defined(__x86_64__)
long instruction(long number, long a, long b, long c)
{
    long result = 0;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
#else
long instruction(long number, long a, long b, long c)
{
    return ::syscall(number, a, b, c);
}
#endif

void restrict_self(const Plan &plan)
{
    std::vector<sock_filter> code = filter(plan);
    const sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
    struct sigaction refused = {};
    refused.sa_sigaction = on_refused;
    refused.sa_flags = SA_SIGINFO;
    must(::sigaction(SIGSYS, &refused, nullptr), "sigaction");
    must(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
    // Whether there are filters is asked in this way: nothing is to come of it.
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) == 0 || errno != EFAULT)
        die("a filter of nothing was taken");
    long result = 0;
    if (plan.how == "strict")
        result = ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    else if (plan.how == "prctl" || plan.how == "child" || plan.how == "thread")
        result = ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    else if (plan.how == "syscall")
        result = ::syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    else if (plan.how == "instruction")
        result = instruction(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, reinterpret_cast<long>(&program));
    else
        result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, plan.how == "tsync" ? SECCOMP_FILTER_FLAG_TSYNC : 0UL,
                           &program);
    must(static_cast<int>(result), "the filter");
}

// ---- serving

bool receive_exactly(int fd, char *message, bool by_read)
{
    std::size_t done = 0;
    while (done < kLength) {
        const ssize_t n = by_read ? ::read(fd, message + done, kLength - done)
                                  : ::recv(fd, message + done, kLength - done, MSG_WAITALL);
        if (n <= 0)
            return false;
        done += static_cast<std::size_t>(n);
    }
    return true;
}

// By one of four calls.
bool poll_says(int fd, unsigned call)
{
    pollfd p = {fd, POLLIN, 0};
    constexpr int kBits = static_cast<int>(sizeof(unsigned long) * 8);
    unsigned long words[kMostDescriptors / kBits] = {};
    words[fd / kBits] = 1UL << fd % kBits;
    auto *const in = reinterpret_cast<fd_set *>(words);
    const timespec limit = {patience::seconds(), 0};
    timeval limit_too = {patience::seconds(), 0};
    switch (call % 4) {
    case 0:
        return ::poll(&p, 1, patience::milliseconds()) == 1 && p.revents == POLLIN;
    case 1:
        return ::ppoll(&p, 1, &limit, nullptr) == 1 && p.revents == POLLIN;
    case 2:
        return ::select(fd + 1, in, nullptr, nullptr, &limit_too) == 1 && words[fd / kBits] == 1UL << fd % kBits;
    default:
        return ::pselect(fd + 1, in, nullptr, nullptr, &limit, nullptr) == 1 && words[fd / kBits] == 1UL << fd % kBits;
    }
}

bool set_says(int set, int fd)
{
    epoll_event event = {};
    return ::epoll_wait(set, &event, 1, patience::milliseconds()) == 1 && event.data.fd == fd;
}

// Echoes one message, by different calls in turn.
bool serve(const Sockets &s, int fd, unsigned round)
{
    char message[kLength];
    if (round % 4 == 2 && !poll_says(fd, round / 4))
        return false;
    if (round % 4 == 3 && !set_says(s.set, fd))
        return false;
    const bool by_read = round % 4 == 1;
    if (!receive_exactly(fd, message, by_read))
        return false;
    return (by_read ? ::write(fd, message, kLength) : ::send(fd, message, kLength, MSG_NOSIGNAL)) == kLength;
}

bool serve_datagram(int fd)
{
    char message[kLength];
    sockaddr_in from = {};
    socklen_t length = sizeof from;
    const ssize_t n = ::recvfrom(fd, message, sizeof message, 0, reinterpret_cast<sockaddr *>(&from), &length);
    return n > 0 &&
           ::sendto(fd, message, static_cast<std::size_t>(n), 0, reinterpret_cast<sockaddr *>(&from), length) == n;
}

unsigned serve_all(const Sockets &s, bool all_calls)
{
    for (unsigned round = 0; round < kRounds; ++round) {
        if (!serve(s, s.first, all_calls ? round : 1))
            return round;
        if (!all_calls)
            continue;
        if (round == kSecondAt && (!set_says(s.set, s.second) || !serve(s, s.second, 0)))
            return round;
        if (round % kDatagramEach == 0 && !serve_datagram(s.datagrams))
            return round;
    }
    char byte = 0;
    if (::read(s.first, &byte, 1) != 0)
        return 0;
    if (all_calls)
        for (const int fd : {s.first, s.second, s.datagrams, s.set})
            must(::close(fd), "close");
    return kRounds;
}

struct Work {
    const Plan &plan;
    Sockets sockets;
    bool restricts;
    bool serves;
};

void report(unsigned served)
{
    char text[64];
    snprintf(text, sizeof text, "%u of %u served\n", served, kRounds);
    say(text);
}

void *work(void *given)
{
    const Work &w = *static_cast<Work *>(given);
    if (w.restricts)
        restrict_self(w.plan);
    if (w.serves)
        report(serve_all(w.sockets, w.plan.how != "strict"));
    return nullptr;
}

void in_thread(Work w)
{
    pthread_t thread;
    must(-::pthread_create(&thread, nullptr, work, &w), "pthread_create");
    must(-::pthread_join(thread, nullptr), "pthread_join");
}

// `thread`: it serves, and is the only one under the filter. `tsync`: it sets it for all, and the first serves.
// `other`: for itself, and the first, which is under none, serves.
void restrict_and_serve(const Plan &plan, const Sockets &s)
{
    if (plan.how == "thread")
        return in_thread({plan, s, true, true});
    if (plan.how == "tsync" || plan.how == "other")
        in_thread({plan, s, true, false});
    Work w = {plan, s, plan.how != "tsync" && plan.how != "other", true};
    work(&w);
    if (plan.how == "strict")
        ::syscall(SYS_exit, 0); // exit_group() is one call too many
}

void in_child(const Plan &plan, const Sockets &s)
{
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        restrict_and_serve(plan, s);
        ::_exit(0);
    }
    for (const int fd : {s.first, s.second, s.datagrams, s.set})
        must(::close(fd), "close");
    int status = 0;
    must(::waitpid(child, &status, 0), "waitpid");
    char text[64];
    snprintf(text, sizeof text, "child: %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    say(text);
}

// ---- both sides

sockaddr_in loopback(std::uint16_t port)
{
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int datagram_socket(const Peer &peer)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    const timeval limit = {patience::seconds(), 0};
    must(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto *const any = reinterpret_cast<sockaddr *>(&address);
    if (peer.server) {
        must(::bind(fd, any, sizeof address), "bind");
        must(::getsockname(fd, any, &length), "getsockname");
        peer.tell(ntohs(address.sin_port));
    } else {
        address = loopback(static_cast<std::uint16_t>(peer.hear()));
        must(::connect(fd, any, sizeof address), "connect");
    }
    return fd;
}

int connection(const Peer &peer)
{
    if (peer.server)
        return must(::accept(peer.listener, nullptr, nullptr), "accept");
    const int fd = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    const sockaddr_in address = loopback(peer.port);
    must(::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address), "connect");
    return fd;
}

void offload_all(const Peer &peer, const Sockets &s)
{
    peer.offload(s.first);
    peer.offload(s.second);
    char byte = 'd';
    for (unsigned i = 0; i < 100; ++i)
        if (peer.server ? !serve_datagram(s.datagrams)
                        : ::send(s.datagrams, &byte, 1, 0) != 1 || ::recv(s.datagrams, &byte, 1, 0) != 1)
            die("a datagram was lost");
}

void watch(const Sockets &s)
{
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = s.first;
    must(::epoll_ctl(s.set, EPOLL_CTL_ADD, s.first, &event), "EPOLL_CTL_ADD");
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.fd = s.second;
    must(::epoll_ctl(s.set, EPOLL_CTL_ADD, s.second, &event), "EPOLL_CTL_ADD");
}

// The next ones have numbers beyond those of an fd_set's type, as sets of select() may have.
void open_many_descriptors()
{
    rlimit limit = {};
    must(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, kMostDescriptors));
    must(::setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    while (must(::dup(STDERR_FILENO), "dup") < FD_SETSIZE)
        ;
}

// The peer resets the first connection, of which something is unread, and whoever waits for more gets the error behind
// that by the next call. The second one says when.
void receive_before_reset(const Plan &plan, const Sockets &s)
{
    char message[2 * kLength];
    must(static_cast<int>(::read(s.second, message, 1)), "read");
    restrict_self(plan);
    must(static_cast<int>(::write(s.second, "f", 1)), "write");
    must(static_cast<int>(::read(s.second, message, 1)), "read");
    const ssize_t first = ::recv(s.first, message, sizeof message, MSG_WAITALL);
    const ssize_t second = ::recv(s.first, message, sizeof message, 0);
    const int error = second < 0 ? errno : 0;
    const ssize_t third = ::recv(s.first, message, sizeof message, 0);
    char text[64];
    snprintf(text, sizeof text, "%zd, then %zd with %d, then %zd\n", first, second, error, third);
    say(text);
}

void reset(const Sockets &s)
{
    char byte = 0;
    const char message[kLength] = {};
    const linger at_once = {1, 0};
    const int on = 1;
    send_all(s.first, message, sizeof message);
    // Only the kernel does that: what was sent before stays in the receiver's memory, and is not sent again.
    must(::setsockopt(s.first, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on), "SO_TIMESTAMP");
    send_all(s.second, &byte, 1);
    receive_all(s.second, &byte, 1);
    must(::setsockopt(s.first, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), "SO_LINGER");
    must(::close(s.first), "close");
    send_all(s.second, &byte, 1);
}

void serve_by(Peer &peer, const Plan &plan)
{
    open_many_descriptors();
    Sockets s;
    s.datagrams = datagram_socket(peer);
    s.set = must(::epoll_create1(0), "epoll_create1");
    if (plan.when == "first")
        restrict_self(plan);
    s.first = connection(peer);
    s.second = connection(peer);
    watch(s);
    if (plan.when == "running" || plan.when == "reset")
        offload_all(peer, s);
    if (plan.when == "reset")
        receive_before_reset(plan, s);
    else if (plan.when == "first" || plan.how == "never")
        report(serve_all(s, true));
    else if (plan.how == "child")
        in_child(plan, s);
    else
        restrict_and_serve(plan, s);
}

void echo(int fd, unsigned round)
{
    char sent[kLength];
    char got[kLength];
    memset(sent, static_cast<int>('a' + round % 26), sizeof sent);
    send_all(fd, sent, sizeof sent);
    receive_all(fd, got, sizeof got);
    if (memcmp(sent, got, sizeof sent) != 0)
        die("round %u: not what was sent", round);
}

void ask(Peer &peer, const Plan &plan)
{
    Sockets s;
    s.datagrams = datagram_socket(peer);
    s.first = connection(peer);
    s.second = connection(peer);
    if (plan.when == "running" || plan.when == "reset")
        offload_all(peer, s);
    if (plan.when == "reset")
        return reset(s);
    const bool all_calls = plan.how != "strict";
    for (unsigned round = 0; round < kRounds; ++round) {
        echo(s.first, round);
        if (all_calls && round == kSecondAt)
            echo(s.second, round);
        char byte = 'd';
        if (all_calls && round % kDatagramEach == 0 &&
            (::send(s.datagrams, &byte, 1, 0) != 1 || ::recv(s.datagrams, &byte, 1, 0) != 1))
            die("round %u: a datagram was lost", round);
    }
    must(::close(s.first), "close");
    say("all came back\n");
}

} // namespace

int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    if (argc != 4)
        die("usage: sandbox server|client --control FD WHEN HOW ACTION");
    const Plan plan = {argv[1], argv[2], argv[3]};
    peer.open_listener();
    if (peer.server)
        serve_by(peer, plan);
    else
        ask(peer, plan);
    return 0;
}
