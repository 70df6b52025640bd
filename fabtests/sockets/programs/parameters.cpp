// SPDX-License-Identifier: BSD-2-Clause
// What VMA_* parameters change for a program, as it sees it itself: one command a run, one line a result. Both ends of
// its connections are in this process. test_parameter_effects.py starts it.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

std::atomic<unsigned> g_yields;

void show(const char *what, int result)
{
    const int error = errno;
    std::printf("%s %d %s\n", what, result, result < 0 ? ::strerrorname_np(error) : "-");
    std::fflush(stdout);
}

void call_option(char **argv)
{
    const Ends ends = accelerated();
    const int one = 1;
    show("setsockopt", ::setsockopt(ends.a, std::atoi(argv[0]), std::atoi(argv[1]), &one, sizeof one));
    talk(ends, 50);
    show("talk", 0);
}

void call_fcntl(char **argv)
{
    const Ends ends = accelerated();
    show("fcntl", ::fcntl(ends.a, std::atoi(argv[0]), std::atoi(argv[1])));
    talk(ends, 50);
    show("talk", 0);
}

void call_ioctl(char **argv)
{
    const Ends ends = accelerated();
    int value = 0;
    show("ioctl", ::ioctl(ends.a, std::strtoul(argv[0], nullptr, 0), &value));
    talk(ends, 50);
    show("talk", 0);
}

void datagram_option(char **argv)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    const int one = 1;
    show("setsockopt", ::setsockopt(fd, std::atoi(argv[0]), std::atoi(argv[1]), &one, sizeof one));
}

// Joins a group and tells whether at least so many milliseconds have passed.
void join(char **argv)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    ip_mreq group{};
    group.imr_multiaddr.s_addr = htonl(0xe8010203);
    group.imr_interface.s_addr = htonl(INADDR_LOOPBACK);
    timespec before{};
    timespec after{};
    ::clock_gettime(CLOCK_MONOTONIC, &before);
    must(::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group), "IP_ADD_MEMBERSHIP");
    ::clock_gettime(CLOCK_MONOTONIC, &after);
    const long ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    show("waited", ms >= std::atol(argv[0]) ? 1 : 0);
}

// IP_MULTICAST_LOOP as a new socket has it.
void loop(char **)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    int on = -1;
    socklen_t size = sizeof on;
    must(::getsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, &size), "IP_MULTICAST_LOOP");
    show("loop", on);
}

// A receive that nobody sends anything to.
void receive_nothing(char **)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in any{};
    any.sin_family = AF_INET;
    must(::bind(fd, reinterpret_cast<sockaddr *>(&any), sizeof any), "bind");
    show("waits", ::getpid());
    char byte;
    ::recv(fd, &byte, 1, 0);
}

// A UDP socket that answers, until it is told to be silent: from then on it reads nothing.
void answer(char **)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in own{};
    socklen_t length = sizeof own;
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::bind(fd, reinterpret_cast<sockaddr *>(&own), length), "bind");
    must(::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length), "getsockname");
    show("port", ntohs(own.sin_port));
    char byte = 0;
    while (byte != 's') {
        sockaddr_in peer{};
        length = sizeof peer;
        must(static_cast<int>(::recvfrom(fd, &byte, 1, 0, reinterpret_cast<sockaddr *>(&peer), &length)), "recvfrom");
        must(static_cast<int>(::sendto(fd, &byte, 1, 0, reinterpret_cast<sockaddr *>(&peer), length)), "sendto");
    }
    must(static_cast<int>(::read(STDIN_FILENO, &byte, 1)), "read");
}

// Sends to it: how many of more than any receiver has room for end with EAGAIN?
void flood(char **argv)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[0])));
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::connect(fd, reinterpret_cast<sockaddr *>(&peer), sizeof peer), "connect");
    char bytes[1000] = "x";
    for (int i = 0; i <= 3000; ++i) { // by then both directions have left the kernel
        bytes[0] = i == 3000 ? 's' : 'x';
        must(static_cast<int>(::send(fd, bytes, 1, 0)), "send");
        must(static_cast<int>(::recv(fd, bytes, 1, 0)), "recv");
    }
    int refused = 0;
    for (int i = 0; i < 20000; ++i)
        refused += ::send(fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno == EAGAIN ? 1 : 0;
    show("refused", refused);
}

constexpr int kWarm = 3000;

sockaddr_in group_address(std::uint16_t port)
{
    sockaddr_in group{};
    group.sin_family = AF_INET;
    group.sin_port = port;
    group.sin_addr.s_addr = htonl(0xeffe0103);
    return group;
}

// A member of the group in another process. It answers numbers up to kWarm; what follows it never reads, or counts what
// comes twice until it is asked by -1.
void be_member(int fd, bool reads)
{
    int last = -1;
    int twice = 0;
    for (;;) {
        int number = 0;
        sockaddr_in from{};
        socklen_t length = sizeof from;
        must(static_cast<int>(::recvfrom(fd, &number, sizeof number, 0, reinterpret_cast<sockaddr *>(&from), &length)),
             "recvfrom");
        if (number == kWarm && !reads)
            ::raise(SIGSTOP);
        twice += number > kWarm && number <= last ? 1 : 0;
        last = number;
        const int answer = number < 0 ? twice : number;
        if (number <= kWarm)
            must(static_cast<int>(::sendto(fd, &answer, sizeof answer, 0, reinterpret_cast<sockaddr *>(&from), length)),
                 "sendto");
    }
}

pid_t start_member(const sockaddr_in &group, bool reads)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    const int one = 1;
    const ip_mreq request{group.sin_addr, {htonl(INADDR_LOOPBACK)}};
    must(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "SO_REUSEADDR");
    must(::bind(fd, reinterpret_cast<const sockaddr *>(&group), sizeof group), "bind");
    must(::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request), "IP_ADD_MEMBERSHIP");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_member(fd, reads);
    }
    ::close(fd);
    return child;
}

// One of two members of a group stands still. Does the other one get twice what is sent again after EAGAIN?
void flood_group(char **)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in own{};
    socklen_t length = sizeof own;
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::bind(fd, reinterpret_cast<sockaddr *>(&own), length), "bind");
    must(::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length), "getsockname");
    must(::setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof own.sin_addr), "IP_MULTICAST_IF");
    const sockaddr_in group = group_address(own.sin_port);
    int words[250] = {};
    const auto send = [&](int number, int flags) {
        words[0] = number;
        return ::sendto(fd, words, sizeof words, flags, reinterpret_cast<const sockaddr *>(&group), sizeof group);
    };
    const pid_t members[] = {start_member(group, true), start_member(group, false)};
    int answer = 0;
    for (int number = 1; number <= kWarm; ++number) {
        must(static_cast<int>(send(number, 0)), "sendto");
        for (int i = number < kWarm ? 0 : 1; i < 2; ++i)
            must(static_cast<int>(::recv(fd, &answer, sizeof answer, 0)), "recv");
    }
    int status = 0;
    must(::waitpid(members[1], &status, WUNTRACED), "waitpid");
    int refused = 0;
    for (int number = kWarm + 1; number < kWarm + 20000; ++number)
        for (int tries = 0; tries < 3 && send(number, MSG_DONTWAIT) < 0 && errno == EAGAIN; ++tries)
            ++refused;
    show("refused", refused);
    const timeval while_it_catches_up{0, 100000};
    must(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &while_it_catches_up, sizeof while_it_catches_up), "SO_RCVTIMEO");
    do
        must(static_cast<int>(send(-1, 0)), "sendto");
    while (::recv(fd, &answer, sizeof answer, 0) < 0);
    show("twice", answer);
    for (const pid_t member : members)
        ::kill(member, SIGKILL);
}

// How often a receive that times out lets others run.
void yields(char **)
{
    const Ends ends = accelerated();
    const timeval soon = {0, 2000};
    must(::setsockopt(ends.a, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), "SO_RCVTIMEO");
    g_yields = 0;
    char byte;
    const ssize_t n = ::recv(ends.a, &byte, 1, 0);
    show("recv", static_cast<int>(n));
    show("yields", static_cast<int>(g_yields.load()));
}

void talk_much(char **)
{
    talk(accelerated(), 500);
    show("talk", 0);
}

// Accelerated, and then never in the library again until a byte comes on standard input.
void idle(char **)
{
    const Ends ends = accelerated();
    show("idle", ::getpid());
    char byte;
    must(static_cast<int>(::read(STDIN_FILENO, &byte, 1)), "read");
    talk(ends, 1);
}

// A message now and then, until a byte comes on standard input: the internal thread doesn't rest.
void chat(char **)
{
    constexpr int kPause = 100; // ms
    const Ends ends = accelerated();
    show("idle", ::getpid());
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    while (must(::poll(&input, 1, kPause), "poll") == 0)
        talk(ends, 1);
}

// ---- signals

std::atomic<bool> g_waiting;

void *receive_for_ever(void *argument)
{
    const Ends &ends = *static_cast<const Ends *>(argument);
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr); // the signal comes to another thread
    char byte;
    g_waiting = true;
    const ssize_t n = ::recv(ends.a, &byte, 1, 0);
    show("recv", static_cast<int>(n));
    return nullptr;
}

std::atomic<int> g_handled;

void handle(int)
{
    g_handled.fetch_add(1);
}

// A thread polls for ever; another gets SIGINT, until the first has ended or a byte has set it free.
void interrupt(char **argv)
{
    Ends ends = accelerated();
    struct sigaction action {
    };
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    must(::sigaction(SIGINT, &action, nullptr), "sigaction");
    pthread_t thread;
    must(-::pthread_create(&thread, nullptr, receive_for_ever, &ends), "pthread_create");
    while (!g_waiting)
        ::sched_yield();
    const bool ends_by_itself = std::atoi(argv[0]) != 0;
    for (int i = 0; i < 20 || ends_by_itself; ++i) {
        ::raise(SIGINT);
        const timespec moment = {0, 1000000};
        ::nanosleep(&moment, nullptr);
        if (ends_by_itself && ::pthread_tryjoin_np(thread, nullptr) == 0) {
            show("handled", g_handled > 0 ? 1 : 0);
            return;
        }
    }
    send_all(ends.b, "x", 1);
    ::pthread_join(thread, nullptr);
    show("handled", g_handled > 0 ? 1 : 0);
}

[[gnu::noinline]] void write_to(volatile int *place)
{
    *place = 1;               // NOLINT(clang-analyzer-core.NullDereference): that is its use
    std::puts("not reached"); // no tail call: the frame stays
}

void crash(char **argv)
{
    if (std::strcmp(argv[0], "sent") == 0)
        ::raise(SIGSEGV);
    else
        write_to(reinterpret_cast<volatile int *>(std::strtoul(argv[0], nullptr, 0))); // NOLINT
}

void catch_crash(int)
{
    static_cast<void>(!::write(STDOUT_FILENO, "caught\n", 7));
    ::_exit(0);
}

// The program's own handler; what it finds before is none.
void crash_handled(char **)
{
    struct sigaction before {
    };
    must(::sigaction(SIGSEGV, nullptr, &before), "sigaction");
    show("before", before.sa_handler == SIG_DFL ? 0 : 1);
    show("signal", ::signal(SIGSEGV, catch_crash) == SIG_DFL ? 0 : 1);
    write_to(nullptr);
}

// ---- the log

int g_lines[16];
char g_first[256];

void take_line(int level, const char *line)
{
    if (level >= 0 && level < 16)
        ++g_lines[level];
    if (g_first[0] == '\0')
        std::snprintf(g_first, sizeof g_first, "%s", line);
}

// Loads the library as sockperf does, with the log's lines for itself.
void callback(char **argv)
{
    char text[32];
    std::snprintf(text, sizeof text, "%p", reinterpret_cast<void *>(&take_line));
    ::setenv("VMA_LOG_CB_FUNC_PTR", std::strcmp(argv[1], "-") == 0 ? text : argv[1], 1);
    void *const library = ::dlopen(argv[0], RTLD_NOW);
    if (library == nullptr)
        die("%s", ::dlerror());
    auto *const make = reinterpret_cast<int (*)(int, int, int)>(::dlsym(library, "socket"));
    ::close(make(AF_INET, SOCK_STREAM, 0));
    std::printf("first %s", g_first[0] != '\0' ? g_first : "none\n");
    show("lines", g_lines[3]);
    show("variable", ::getenv("VMA_LOG_CB_FUNC_PTR") == nullptr ? 0 : 1);
}

struct Command {
    const char *name;
    int arguments;
    void (*run)(char **);
};

constexpr Command kCommands[] = {
    {"option", 2, call_option},
    {"fcntl", 2, call_fcntl},
    {"ioctl", 1, call_ioctl},
    {"datagram", 2, datagram_option},
    {"answer", 0, answer},
    {"flood", 1, flood},
    {"flood-group", 0, flood_group},
    {"join", 1, join},
    {"loop", 0, loop},
    {"receive", 0, receive_nothing},
    {"yields", 0, yields},
    {"talk", 0, talk_much},
    {"idle", 0, idle},
    {"chat", 0, chat},
    {"interrupt", 1, interrupt},
    {"crash", 1, crash},
    {"crash-handled", 0, crash_handled},
    {"callback", 2, callback},
};

} // namespace

// In place of libc's, for the library too.
extern "C" [[gnu::visibility("default")]] int sched_yield() noexcept
{
    g_yields.fetch_add(1, std::memory_order_relaxed);
    return static_cast<int>(::syscall(SYS_sched_yield));
}

int main(int argc, char **argv)
{
    for (const Command &command : kCommands)
        if (argc == command.arguments + 2 && std::strcmp(argv[1], command.name) == 0) {
            command.run(argv + 2);
            return 0;
        }
    die("unknown command");
}
