// SPDX-License-Identifier: BSD-2-Clause
// What common calls cost on descriptors that are no TCP sockets: run with and without a preload library, the difference
// is what the library adds to them. Each figure is the median of many short rounds, so that an interruption spoils one
// of them. Usage: call_cost; prints one JSON line, nanoseconds a call.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace {

constexpr std::size_t kRounds = 201;
constexpr int kCalls = 1000; // a round

struct Descriptors {
    int null = -1;     // /dev/null
    int zero = -1;     // /dev/zero
    int local[2] = {}; // a pair of UNIX stream sockets, nothing to read
    int udp = -1;      // nothing to read
    int pipe[2] = {};  // nothing to read
    int set = -1;      // an epoll set of pipe[0]
};

using Call = void (*)(const Descriptors &);

struct Measured {
    const char *name;
    Call call;
};

char g_byte;

const Measured kMeasured[] = {
    {"write_null_ns", [](const Descriptors &d) { static_cast<void>(!write(d.null, &g_byte, 1)); }},
    {"read_zero_ns", [](const Descriptors &d) { static_cast<void>(!read(d.zero, &g_byte, 1)); }},
    {"recv_unix_ns", [](const Descriptors &d) { recv(d.local[0], &g_byte, 1, MSG_DONTWAIT); }},
    {"recv_udp_ns", [](const Descriptors &d) { recv(d.udp, &g_byte, 1, MSG_DONTWAIT); }},
    {"getfl_pipe_ns", [](const Descriptors &d) { fcntl(d.pipe[0], F_GETFL); }},
    {"poll_pipe_ns",
     [](const Descriptors &d) {
         pollfd entry{d.pipe[0], POLLIN, 0};
         poll(&entry, 1, 0);
     }},
    {"epoll_pipe_ns",
     [](const Descriptors &d) {
         epoll_event event{};
         epoll_wait(d.set, &event, 1, 0);
     }},
};

void check(bool ok, const char *what)
{
    if (!ok) {
        std::perror(what);
        std::exit(1);
    }
}

Descriptors open_all()
{
    Descriptors d;
    d.null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    d.zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    d.udp = socket(AF_INET, SOCK_DGRAM, 0);
    d.set = epoll_create1(EPOLL_CLOEXEC);
    check(d.null >= 0 && d.zero >= 0 && d.udp >= 0 && d.set >= 0, "call_cost: open");
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, d.local) == 0, "call_cost: socketpair");
    check(pipe2(d.pipe, O_CLOEXEC) == 0, "call_cost: pipe");
    epoll_event event{};
    event.events = EPOLLIN;
    check(epoll_ctl(d.set, EPOLL_CTL_ADD, d.pipe[0], &event) == 0, "call_cost: epoll_ctl");
    return d;
}

double now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

} // namespace

int main()
{
    const Descriptors d = open_all();
    constexpr std::size_t count = std::size(kMeasured);
    std::array<std::array<double, kRounds>, count> times{};
    for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < count; ++i) {
            const double start = now_ns();
            for (int n = 0; n < kCalls; ++n)
                kMeasured[i].call(d);
            times[i][round] = (now_ns() - start) / kCalls;
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        std::ranges::sort(times[i]);
        std::printf("%s\"%s\": %.2f", i == 0 ? "{" : ", ", kMeasured[i].name, times[i][kRounds / 2]);
    }
    std::printf("}\n");
    return 0;
}
