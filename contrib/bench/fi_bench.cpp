// SPDX-License-Identifier: BSD-2-Clause
// Two processes of this host over libfabric: message ping-pong (8 B, 64 KiB), message rate (8 B) and RMA write
// bandwidth (64 KiB, 1 MiB), with any provider that has FI_EP_MSG, or FI_EP_RDM as `shm` has; and with datagrams, where
// it has FI_EP_DGRAM, ping-pong and rate of 8 B. An ordinary libfabric program: nothing in it knows ours. Usage:
// fi_bench --provider NAME [--cpus A,B]; prints one JSON line: microseconds of half a round trip, millions of messages
// a second, GB/s.
#include "contrib/bench/fi_pair.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

using namespace vma::bench;

namespace {

constexpr unsigned kTimeLimit = 60; // seconds; then SIGALRM ends us
constexpr int kRounds = 101;        // short ones: the median does not see the few that are interrupted
constexpr int kWindow = 64;         // RMA writes under way
constexpr int kOnTheWay = 128;      // messages: few enough that no datagram is lost, also in a socket's buffer
constexpr int kAnswer = 32;         // messages that one answers

double now_us()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

double median(std::array<double, kRounds> &values)
{
    std::ranges::sort(values);
    return values[kRounds / 2];
}

// Half a round trip in microseconds, at the client.
double ping_pong(Pair &pair, bool client, std::size_t size)
{
    const int turns = size > 4096 ? 200 : 1000; // a round
    std::array<double, kRounds> rounds{};
    pair.barrier();
    for (double &round : rounds) {
        const double start = now_us();
        for (int i = 0; i < turns; ++i) {
            if (client)
                pair.send(size);
            pair.receive();
            if (!client)
                pair.send(size);
        }
        round = (now_us() - start) / turns / 2;
    }
    pair.barrier();
    return median(rounds);
}

// Millions a second, of messages that have arrived: the client sends, and hears of each kAnswer of them.
double message_rate(Pair &pair, bool client, std::size_t size)
{
    constexpr int kMessages = 1024; // a round
    static_assert(kMessages % kAnswer == 0 && kOnTheWay % kAnswer == 0);
    std::array<double, kRounds> rounds{};
    pair.deepen(kOnTheWay - 1);
    pair.barrier();
    for (double &round : rounds) {
        const double start = now_us();
        for (int i = 0; i < kMessages; ++i) {
            if (client) {
                if (i >= kOnTheWay && i % kAnswer == 0)
                    pair.receive();
                pair.send(size);
            } else {
                pair.receive();
                if (i % kAnswer == kAnswer - 1)
                    pair.send(1);
            }
        }
        for (int i = 0; client && i < kOnTheWay / kAnswer; ++i)
            pair.receive();
        round = kMessages / (now_us() - start);
    }
    pair.barrier();
    return median(rounds);
}

// Gigabytes a second; the clock stops when the server has answered a message sent after the last write.
double write_bandwidth(Pair &pair, bool client, std::size_t size)
{
    const int writes = size > (1U << 17) ? 64 : 512; // a round
    std::array<double, kRounds> rounds{};
    pair.barrier();
    for (double &round : rounds) {
        const double start = now_us();
        if (client) {
            for (int i = 0; i < writes; ++i)
                pair.write(size, kWindow);
            pair.finish_writes();
            pair.send(1);
            pair.receive();
        } else {
            pair.receive();
            pair.send(1);
        }
        round = static_cast<double>(size) * writes / (now_us() - start) / 1e3;
    }
    pair.barrier();
    return median(rounds);
}

void run_messages(Pair &pair, bool client)
{
    const double small = ping_pong(pair, client, 8);
    const double large = ping_pong(pair, client, 65536);
    const double write_64k = write_bandwidth(pair, client, 65536);
    const double write_1m = write_bandwidth(pair, client, 1 << 20);
    const double rate = message_rate(pair, client, 8);
    if (client)
        std::printf("{\"pingpong_8_us\": %.4f, \"pingpong_65536_us\": %.3f, \"rma_write_65536_gbs\": %.2f, "
                    "\"rma_write_1048576_gbs\": %.2f, \"message_rate_8_mps\": %.3f",
                    small, large, write_64k, write_1m, rate);
}

void run_datagrams(Pair &pair, bool client)
{
    const double small = ping_pong(pair, client, 8);
    const double rate = message_rate(pair, client, 8);
    if (client)
        std::printf(", \"dgram_pingpong_8_us\": %.4f, \"dgram_message_rate_8_mps\": %.3f", small, rate);
}

void run(const std::string &provider, bool client, int channel)
{
    {
        Pair pair(provider, Pair::Kind::messages, client, channel);
        run_messages(pair, client);
    }
    if (Pair::has(provider, Pair::Kind::datagrams)) {
        Pair pair(provider, Pair::Kind::datagrams, client, channel);
        run_datagrams(pair, client);
    }
    if (client)
        std::printf("}\n");
}

int usage()
{
    std::fprintf(stderr, "usage: fi_bench --provider NAME [--cpus A,B]\n");
    return 2;
}

} // namespace

int main(int argc, char **argv)
{
    std::string provider;
    int cpus[2] = {-1, -1};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--provider") == 0)
            provider = argv[i + 1];
        else if (std::strcmp(argv[i], "--cpus") != 0 || std::sscanf(argv[i + 1], "%d,%d", &cpus[0], &cpus[1]) != 2)
            return usage();
    }
    if (provider.empty() || argc % 2 == 0)
        return usage();

    int channel[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) {
        std::perror("fi_bench: socketpair");
        return 1;
    }
    // Before the first call of libfabric: few providers outlive a fork.
    const pid_t parent = getpid();
    const pid_t server = fork();
    if (server < 0) {
        std::perror("fi_bench: fork");
        return 1;
    }
    alarm(kTimeLimit);
    const bool client = server != 0;
    if (!client) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    close(channel[client ? 0 : 1]);
    pin(cpus[client ? 1 : 0]);
    run(provider, client, channel[client ? 1 : 0]);
    if (!client)
        return 0;
    int status = 0;
    waitpid(server, &status, 0);
    return status == 0 ? 0 : 1;
}
