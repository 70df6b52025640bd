// SPDX-License-Identifier: BSD-2-Clause
// Round trips of 12 bytes by UDP between two processes, by recvfrom() and by socketxtreme_poll(): percentiles of half a
// round trip. VMA_SOCKETXTREME=1 LD_PRELOAD=libvma.so xtreme_pingpong [ROUNDS [TURNS]]; turns alternate.
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mellanox/vma_extra.h>

#include "contrib/bench/sockets.hpp"

namespace {

using bench::generic;

constexpr std::size_t kBytes = 12;
vma_api_t *g_api = nullptr;

std::int64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int bound(sockaddr_in &here)
{
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t size = sizeof here;
    here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || ::bind(fd, generic(here), sizeof here) != 0 || ::getsockname(fd, generic(here), &size) != 0)
        std::abort();
    return fd;
}

// One datagram, and from whom. Its buffer is given back once the answer is out, as programs do.
void receive(int fd, int ring, bool xtreme, sockaddr_in &from, vma_completion_t &completion)
{
    char bytes[kBytes];
    socklen_t size = sizeof from;
    if (!xtreme) {
        while (::recvfrom(fd, bytes, sizeof bytes, 0, generic(from), &size) < 0) {
        }
        return;
    }
    while (g_api->socketxtreme_poll(ring, &completion, 1, 0) < 1 ||
           (completion.events & VMA_SOCKETXTREME_PACKET) == 0) {
    }
    from = completion.src;
}

void give_back(bool xtreme, vma_completion_t &completion)
{
    if (xtreme)
        g_api->socketxtreme_free_vma_packets(&completion.packet, 1);
}

int ring_of(int fd)
{
    int ring = -1;
    if (g_api->get_socket_rings_fds(fd, &ring, 1) != 1)
        std::abort();
    return ring;
}

[[noreturn]] void echo(int way, bool xtreme)
{
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sockaddr_in here = {};
    const int fd = bound(here);
    if (::write(way, &here, sizeof here) != sizeof here)
        std::_Exit(1);
    const char bytes[kBytes] = "echo";
    for (const int ring = ring_of(fd);;) {
        sockaddr_in from = {};
        vma_completion_t completion;
        receive(fd, ring, xtreme, from, completion);
        ::sendto(fd, bytes, sizeof bytes, 0, generic(from), sizeof from);
        give_back(xtreme, completion);
    }
}

struct Result {
    double p50, p99;
};

Result run(bool xtreme, unsigned rounds)
{
    int way[2];
    sockaddr_in to = {};
    if (::pipe(way) != 0)
        std::abort();
    const pid_t server = ::fork();
    if (server == 0)
        echo(way[1], xtreme);
    if (::read(way[0], &to, sizeof to) != sizeof to)
        std::abort();
    sockaddr_in here = {};
    const int fd = bound(here);
    const int ring = ring_of(fd);
    const char bytes[kBytes] = "ping";
    std::vector<std::int64_t> times;
    for (unsigned i = 0; i < rounds + 1000; ++i) {
        const std::int64_t begin = now_ns();
        ::sendto(fd, bytes, sizeof bytes, 0, generic(to), sizeof to);
        sockaddr_in from = {};
        vma_completion_t completion;
        receive(fd, ring, xtreme, from, completion);
        if (i >= 1000)
            times.push_back(now_ns() - begin);
        give_back(xtreme, completion);
    }
    ::close(fd);
    ::close(way[0]);
    ::close(way[1]);
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    std::sort(times.begin(), times.end());
    return {static_cast<double>(times[times.size() / 2]) / 2, static_cast<double>(times[times.size() * 99 / 100]) / 2};
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 100000;
    const int turns = argc > 2 ? std::atoi(argv[2]) : 5;
    g_api = vma_get_api();
    if (g_api == nullptr || (g_api->vma_extra_supported_mask & VMA_EXTRA_API_SOCKETXTREME_POLL) == 0) {
        std::fputs("run it with libvma.so and VMA_SOCKETXTREME=1\n", stderr);
        return 1;
    }
    for (int i = 0; i < 2 * turns; ++i) {
        const Result result = run(i % 2 != 0, rounds);
        std::printf("%-18s p50 %6.0f ns  p99 %6.0f ns\n", i % 2 != 0 ? "socketxtreme_poll" : "recvfrom", result.p50,
                    result.p99);
        std::fflush(stdout);
    }
    return 0;
}
