// SPDX-License-Identifier: BSD-2-Clause
// What many connections cost a process that makes others: it opens COUNT of them over loopback to a child, and then
// times fork(), fork() and exec, posix_spawn(), and what its end takes, each with all of them open. What accelerates
// them comes from outside.
//   many_conn COUNT plain      nothing is ever sent on them
//   many_conn COUNT busy KIB [SECONDS]   each has carried so much both ways, and is idle since then (5)
// Prints one JSON line: milliseconds (medians), KiB of shared memory and percent of a processor that both processes
// take while idle.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

extern char **environ;

namespace {

constexpr int kRounds = 5;
constexpr int kExchanges = 80; // enough for a connection to be lifted
constexpr std::size_t kMessage = 8;
constexpr std::size_t kPiece = 32768;
constexpr unsigned kSettle = 5; // seconds
constexpr unsigned kIdle = 4;

// What each connection carries before it is left alone, and for how long.
struct Load {
    std::size_t kib = 0;
    unsigned settle = kSettle;
};

[[noreturn]] void fail(const char *what)
{
    std::perror(what);
    std::exit(1);
}

double seconds(clockid_t clock)
{
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void move_all(int fd, bool sends, std::size_t bytes)
{
    static std::array<char, kPiece> buffer;
    while (bytes != 0) {
        const std::size_t piece = std::min(bytes, buffer.size());
        const ssize_t n = sends ? send(fd, buffer.data(), piece, MSG_NOSIGNAL) : recv(fd, buffer.data(), piece, 0);
        if (n <= 0)
            fail(sends ? "send" : "recv");
        bytes -= static_cast<std::size_t>(n);
    }
}

// Both sides walk over the connections in the same order; `first` sends.
void exchange(const std::vector<int> &sockets, bool first, std::size_t bytes, int times)
{
    for (const int fd : sockets)
        for (int i = 0; i < times; ++i) {
            move_all(fd, first, bytes);
            move_all(fd, !first, bytes);
        }
}

// The acceptor learns of a peer that can be attached when it calls again: hence twice.
void be_busy(const std::vector<int> &sockets, bool first, std::size_t kib)
{
    for (int round = 0; round < 2; ++round)
        exchange(sockets, first, kMessage, kExchanges);
    exchange(sockets, first, kPiece, static_cast<int>(kib * 1024 / kPiece));
}

int stream_socket()
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// What the processes tell each other past the connections: pages of both.
struct Shared {
    volatile double idle_share; // of a processor, the peer's
};

struct Pipe {
    int ends[2];
    Pipe()
    {
        if (pipe2(ends, O_CLOEXEC) != 0)
            fail("pipe");
    }
    void tell() const
    {
        if (write(ends[1], "x", 1) != 1)
            fail("write");
    }
    bool hear() const
    {
        char byte = 0;
        return read(ends[0], &byte, 1) == 1;
    }
};

double idle_share()
{
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    sleep(kIdle);
    return (seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / kIdle;
}

[[noreturn]] void be_peer(const sockaddr_in &to, std::size_t count, const Load &load, Shared &shared, const Pipe &ready,
                          const Pipe &go)
{
    close(go.ends[1]);
    std::vector<int> sockets;
    for (std::size_t i = 0; i < count; ++i) {
        sockets.push_back(stream_socket());
        if (connect(sockets.back(), reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
            fail("connect");
    }
    if (load.kib != 0) {
        be_busy(sockets, true, load.kib);
        sleep(load.settle);
        shared.idle_share = idle_share();
    }
    ready.tell();
    while (go.hear()) { // until the other one has ended
    }
    _exit(0);
}

long shared_kib()
{
    std::FILE *const file = std::fopen("/proc/meminfo", "re");
    std::array<char, 256> line{};
    long kib = 0;
    while (file != nullptr && std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr)
        std::sscanf(line.data(), "Shmem: %ld", &kib);
    if (file != nullptr)
        std::fclose(file);
    return kib;
}

void reap(pid_t child)
{
    int status = 0;
    if (child <= 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("child");
}

template <typename Work> double median_ms(Work work)
{
    std::array<double, kRounds> all{};
    for (double &one : all)
        one = work() * 1e3;
    std::sort(all.begin(), all.end());
    return all[kRounds / 2];
}

// Until it is back in the parent.
double time_fork()
{
    const double from = seconds(CLOCK_MONOTONIC);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    const double took = seconds(CLOCK_MONOTONIC) - from;
    reap(child);
    return took;
}

// Until the child, which has all of them too, has ended.
double time_exit()
{
    const double from = seconds(CLOCK_MONOTONIC);
    const pid_t child = fork();
    if (child == 0)
        std::exit(0);
    reap(child);
    return seconds(CLOCK_MONOTONIC) - from;
}

std::vector<char *> g_plain_environment; // the started program is nobody's measurement

const char *const kProgram = "/bin/true";

double time_exec()
{
    const double from = seconds(CLOCK_MONOTONIC);
    const pid_t child = fork();
    if (child == 0) {
        execle(kProgram, kProgram, static_cast<char *>(nullptr), g_plain_environment.data());
        _exit(1);
    }
    reap(child);
    return seconds(CLOCK_MONOTONIC) - from;
}

double time_spawn()
{
    std::array<char *, 2> arguments = {const_cast<char *>(kProgram), nullptr};
    pid_t child = -1;
    const double from = seconds(CLOCK_MONOTONIC);
    if (posix_spawn(&child, kProgram, nullptr, nullptr, arguments.data(), g_plain_environment.data()) != 0)
        fail("posix_spawn");
    reap(child);
    return seconds(CLOCK_MONOTONIC) - from;
}

void forget_preload()
{
    for (char **one = environ; *one != nullptr; ++one)
        if (std::strncmp(*one, "LD_PRELOAD=", 11) != 0)
            g_plain_environment.push_back(*one);
    g_plain_environment.push_back(nullptr);
}

void allow_descriptors(std::size_t count)
{
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + 2000);
    if (limit.rlim_cur < count + 100 || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        fail("RLIMIT_NOFILE is too low");
}

int run(std::size_t count, const Load &load)
{
    allow_descriptors(count);
    forget_preload();
    auto *const shared =
        static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int listener = stream_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (shared == MAP_FAILED || bind(listener, reinterpret_cast<sockaddr *>(&address), size) != 0 ||
        listen(listener, SOMAXCONN) != 0 || getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) != 0)
        fail("listen");
    const Pipe ready;
    const Pipe go;
    const long before = shared_kib();
    const pid_t peer = fork();
    if (peer == 0)
        be_peer(address, count, load, *shared, ready, go);
    close(go.ends[0]);
    std::vector<int> sockets;
    for (std::size_t i = 0; i < count; ++i)
        sockets.push_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    double own_share = 0;
    if (load.kib != 0) {
        be_busy(sockets, false, load.kib);
        sleep(load.settle);
        own_share = idle_share();
    }
    ready.hear();
    const long memory = shared_kib() - before;
    const double first = time_fork() * 1e3; // what was accelerated goes back to the kernel here
    const double fork_ms = median_ms(time_fork);
    const double exec_ms = median_ms(time_exec);
    const double spawn_ms = median_ms(time_spawn);
    const double exit_ms = median_ms(time_exit);
    std::printf(
        "{\"first_fork_ms\": %.3f, \"fork_ms\": %.3f, \"exec_ms\": %.3f, \"spawn_ms\": %.3f, \"exit_ms\": %.3f, "
        "\"shared_kib\": %.1f, \"cpu_percent\": %.2f}\n",
        first, fork_ms, exec_ms, spawn_ms, exit_ms, static_cast<double>(memory) / static_cast<double>(count),
        100 * (own_share + shared->idle_share));
    close(go.ends[1]);
    reap(peer);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const auto number = [&](int i) { return static_cast<unsigned>(argc > i ? std::max(std::atoi(argv[i]), 0) : 0); };
    const std::size_t count = number(1);
    if (count != 0 && argc == 3 && std::strcmp(argv[2], "plain") == 0)
        return run(count, {});
    if (count != 0 && argc >= 4 && argc <= 5 && std::strcmp(argv[2], "busy") == 0 && number(3) != 0)
        return run(count, {number(3), argc == 5 ? number(4) : kSettle});
    std::fprintf(stderr, "usage: many_conn COUNT plain | many_conn COUNT busy KIB [SECONDS]\n");
    return 2;
}
