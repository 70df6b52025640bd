// SPDX-License-Identifier: BSD-2-Clause
// How many datagrams a second a receiver takes from a sender that never pauses, by recvfrom() and by recvfrom_zcopy(),
// in turns on the same socket. LD_PRELOAD=libvma.so zcopy_receive [BYTES [TURNS [MILLISECONDS]]]; one line a turn, then
// the medians and their ratio. On a busy machine the receiver's own processor time tells more than the rate.
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <mellanox/vma_extra.h>

namespace {

constexpr std::size_t kMost = 65507;

std::int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC)
{
    timespec now = {};
    ::clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// `way`: where it reads the receiver's address. It is made before the receiver's socket, which is not to be its own,
// too.
[[noreturn]] void send_for_ever(std::size_t bytes, int way)
{
    static char buffer[kMost];
    sockaddr_in to = {};
    if (::read(way, &to, sizeof to) != sizeof to)
        ::_exit(1);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::connect(fd, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
        ::_exit(1);
    while (::getppid() != 1)
        ::send(fd, buffer, bytes, 0);
    ::_exit(0);
}

struct Turn {
    double rate;
    double lent; // share
    double cpu;  // ns of the receiver's a message
};

Turn receive(int fd, vma_api_t *api, bool zcopy, std::int64_t ns)
{
    static char buffer[kMost];
    sockaddr_in from = {};
    unsigned long count = 0;
    unsigned long lent = 0;
    const std::int64_t begin = now_ns();
    const std::int64_t used = now_ns(CLOCK_THREAD_CPUTIME_ID);
    std::int64_t now = begin;
    while (now - begin < ns) {
        for (int i = 0; i < 256; ++i) {
            socklen_t size = sizeof from;
            int flags = 0;
            const long n = zcopy ? api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags,
                                                       reinterpret_cast<sockaddr *>(&from), &size)
                                 : ::recvfrom(fd, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr *>(&from), &size);
            if (n < 0)
                continue;
            ++count;
            if ((flags & MSG_VMA_ZCOPY) == 0)
                continue;
            ++lent;
            auto *const packets = reinterpret_cast<vma_packets_t *>(buffer);
            if (api->free_packets(fd, packets->pkts, packets->n_packet_num) != 0)
                std::perror("free_packets");
        }
        now = now_ns();
    }
    return {static_cast<double>(count) * 1e9 / static_cast<double>(now - begin),
            static_cast<double>(lent) / static_cast<double>(count),
            static_cast<double>(now_ns(CLOCK_THREAD_CPUTIME_ID) - used) / static_cast<double>(count)};
}

double median(std::vector<double> &rates)
{
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
}

} // namespace

int main(int argc, char **argv)
{
    const std::size_t bytes = argc > 1 ? std::min<std::size_t>(std::strtoul(argv[1], nullptr, 10), kMost) : 1472;
    const int turns = argc > 2 ? std::atoi(argv[2]) : 10;
    const std::int64_t ns = (argc > 3 ? std::atoi(argv[3]) : 300) * INT64_C(1000000);
    const char *const only = argc > 4 ? argv[4] : "";
    vma_api_t *const api = vma_get_api();
    if (api == nullptr) {
        std::fputs("run it with libvma.so\n", stderr);
        return 1;
    }
    int way[2];
    if (::pipe(way) != 0)
        return 1;
    const pid_t sender = ::fork();
    if (sender == 0)
        send_for_ever(bytes, way[0]);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in here = {};
    socklen_t size = sizeof here;
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd, reinterpret_cast<sockaddr *>(&here), sizeof here) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr *>(&here), &size) != 0)
        return 1;
    if (::write(way[1], &here, sizeof here) != sizeof here)
        return 1;
    receive(fd, api, false, ns); // until both are accelerated
    std::vector<double> rates[2];
    std::vector<double> cpu[2];
    for (int i = 0; i < 2 * turns; ++i) {
        const bool zcopy = *only != '\0' ? *only == 'z' : i % 2 != 0;
        const Turn turn = receive(fd, api, zcopy, ns);
        std::printf("%-15s %10.0f messages/s, lent %5.1f %%, %6.1f ns of CPU a message\n",
                    zcopy ? "recvfrom_zcopy" : "recvfrom", turn.rate, turn.lent * 100, turn.cpu);
        rates[zcopy ? 1 : 0].push_back(turn.rate);
        cpu[zcopy ? 1 : 0].push_back(turn.cpu);
    }
    if (*only == '\0')
        std::printf("median %.0f and %.0f messages/s of %zu bytes: ratio %.2f; %.0f and %.0f ns of CPU: ratio %.2f\n",
                    median(rates[0]), median(rates[1]), bytes, median(rates[1]) / median(rates[0]), median(cpu[0]),
                    median(cpu[1]), median(cpu[0]) / median(cpu[1]));
    ::kill(sender, SIGKILL);
    ::waitpid(sender, nullptr, 0);
    return 0;
}
