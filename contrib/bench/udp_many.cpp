// SPDX-License-Identifier: BSD-2-Clause
// What many bound UDP sockets cost that nothing comes to: to open, in memory, and to ask whether something has come, by
// epoll_wait() over all and by recv() from ten of them in turn, and from each. Asked with 10, 1000 and 10,000 open, or
// as many as are named: what a call costs should not grow with what is open. From each in turn it does grow, with what
// of the sockets is not in the processor's cache. Each socket is used for a moment first, by a second process that
// sends to it: a library may leave alone what nobody uses. Plain sockets: what accelerates them comes from outside.
// Usage: udp_many [COUNT...], ascending; prints one JSON line. It starts itself as "udp_many feed".
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

namespace {

constexpr std::size_t kRounds = 15;  // the median of them counts
constexpr std::size_t kCalls = 1000; // a round, at least
constexpr double kKib = 1.0 / 1024;
constexpr int kMessages = 8;        // to each socket before it is left idle
constexpr std::size_t kChunk = 64;  // sockets that have a message under way: nobody's queue gets full
constexpr unsigned kTimeLimit = 60; // seconds; then SIGALRM ends us, as a message that gets lost is waited for

using Ports = std::array<std::uint16_t, kChunk>; // of the loopback address, network byte order; 0: none

void check(bool ok, const char *what)
{
    if (!ok) {
        std::perror(what);
        std::exit(1);
    }
}

double now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double resident_kib()
{
    std::FILE *file = std::fopen("/proc/self/statm", "re");
    check(file != nullptr, "udp_many: /proc/self/statm");
    long total = 0;
    long resident = 0;
    check(std::fscanf(file, "%ld %ld", &total, &resident) == 2, "udp_many: /proc/self/statm");
    std::fclose(file);
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) * kKib;
}

sockaddr_in loopback(std::uint16_t port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = port;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int open_one()
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "udp_many: socket");
    const sockaddr_in any = loopback(0);
    check(bind(fd, reinterpret_cast<const sockaddr *>(&any), sizeof any) == 0, "udp_many: bind");
    return fd;
}

// The second process: a message to each port that it is told, until nothing more comes.
int feed()
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "udp_many feed: socket");
    Ports ports;
    while (read(STDIN_FILENO, ports.data(), sizeof ports) == static_cast<ssize_t>(sizeof ports)) {
        for (const std::uint16_t port : ports) {
            const sockaddr_in to = loopback(port);
            if (port != 0)
                check(sendto(fd, "", 1, 0, reinterpret_cast<const sockaddr *>(&to), sizeof to) == 1,
                      "udp_many feed: sendto");
        }
    }
    return 0;
}

// The end of a pipe into a process that runs feed().
int start_feeder()
{
    std::array<int, 2> ends{};
    check(pipe2(ends.data(), O_CLOEXEC) == 0, "udp_many: pipe");
    const pid_t child = fork();
    check(child >= 0, "udp_many: fork");
    if (child == 0) {
        check(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO, "udp_many: dup2");
        execl("/proc/self/exe", "udp_many", "feed", nullptr);
        check(false, "udp_many: exec");
    }
    close(ends[0]);
    return ends[1];
}

void use_for_a_moment(int feeder, std::span<const int> sockets)
{
    while (!sockets.empty()) {
        const std::span<const int> some = sockets.first(std::min(sockets.size(), kChunk));
        sockets = sockets.subspan(some.size());
        Ports ports{};
        for (std::size_t i = 0; i < some.size(); ++i) {
            sockaddr_in own{};
            socklen_t size = sizeof own;
            check(getsockname(some[i], reinterpret_cast<sockaddr *>(&own), &size) == 0, "udp_many: getsockname");
            ports[i] = own.sin_port;
        }
        for (int message = 0; message < kMessages; ++message) {
            check(write(feeder, ports.data(), sizeof ports) == static_cast<ssize_t>(sizeof ports), "udp_many: write");
            char byte = 0;
            for (const int fd : some)
                check(recv(fd, &byte, 1, 0) == 1, "udp_many: recv of a message");
        }
    }
}

template <typename Call> double median_ns(std::size_t calls, Call call)
{
    std::array<double, kRounds> times{};
    for (double &time : times) {
        const double start = now_ns();
        call();
        time = (now_ns() - start) / static_cast<double>(calls);
    }
    std::ranges::sort(times);
    return times[kRounds / 2];
}

double epoll_ns(int set)
{
    return median_ns(kCalls, [set] {
        for (std::size_t i = 0; i < kCalls; ++i) {
            epoll_event event{};
            check(epoll_wait(set, &event, 1, 0) == 0, "udp_many: epoll_wait");
        }
    });
}

double recv_ns(const std::vector<int> &sockets)
{
    const std::size_t turns = std::max<std::size_t>(1, kCalls / sockets.size());
    return median_ns(turns * sockets.size(), [&sockets, turns] {
        char byte = 0;
        for (std::size_t turn = 0; turn < turns; ++turn) {
            for (const int fd : sockets)
                check(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "udp_many: recv");
        }
    });
}

std::vector<int> ten_of(const std::vector<int> &sockets)
{
    const std::size_t step = std::max<std::size_t>(1, sockets.size() / 10);
    std::vector<int> some;
    for (std::size_t i = 0; i < sockets.size() && some.size() < 10; i += step)
        some.push_back(sockets[i]);
    return some;
}

void allow_many_descriptors()
{
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::strcmp(argv[1], "feed") == 0)
        return feed();
    alarm(kTimeLimit);
    std::vector<std::size_t> steps{10, 1000, 10'000};
    if (argc > 1) {
        steps.clear();
        for (int i = 1; i < argc; ++i)
            steps.push_back(static_cast<std::size_t>(std::atol(argv[i])));
    }
    allow_many_descriptors();
    const int set = epoll_create1(EPOLL_CLOEXEC);
    check(set >= 0, "udp_many: epoll_create1");
    std::vector<int> sockets;
    sockets.reserve(steps.back());
    const int feeder = start_feeder();
    const double resident_before = resident_kib();
    double opening_ns = 0;
    std::printf("{");
    for (const std::size_t count : steps) {
        const std::size_t had = sockets.size();
        const double start = now_ns();
        while (sockets.size() < count)
            sockets.push_back(open_one());
        opening_ns += now_ns() - start;
        use_for_a_moment(feeder, std::span(sockets).subspan(had));
        for (std::size_t i = had; i < sockets.size(); ++i) {
            epoll_event event{};
            event.events = EPOLLIN;
            check(epoll_ctl(set, EPOLL_CTL_ADD, sockets[i], &event) == 0, "udp_many: epoll_ctl");
        }
        std::printf("\"epoll_%zu_ns\": %.1f, ", count, epoll_ns(set));
        std::printf("\"recv_%zu_ns\": %.1f, ", count, recv_ns(ten_of(sockets)));
        std::printf("\"recv_each_%zu_ns\": %.1f, ", count, recv_ns(sockets));
    }
    const auto all = static_cast<double>(sockets.size());
    std::printf("\"open_us\": %.3f, \"memory_kib\": %.3f}\n", opening_ns / 1e3 / all,
                (resident_kib() - resident_before) / all);
    return 0;
}
