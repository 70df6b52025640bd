// SPDX-License-Identifier: BSD-2-Clause
// Round trips of several threads at a time, each with a socket of its own, to a server process with as many threads.
//   echo_load tcp|udp THREADS SECONDS
// Prints one line of JSON: the messages, and percentiles of the round trip in microseconds.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;
using Clock = std::chrono::steady_clock;
using Message = std::array<char, 64>;

constexpr int kPatienceMs = 200; // of who asks by UDP: a datagram may be lost

void echo(int fd)
{
    Message message;
    for (;;) {
        sockaddr_in from = {};
        socklen_t size = sizeof from;
        const ssize_t n = ::recvfrom(fd, message.data(), message.size(), 0, generic(from), &size);
        if (n <= 0)
            return;
        must(static_cast<int>(::sendto(fd, message.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL,
                                       size != 0 ? generic(from) : nullptr, size)));
    }
}

// Both ends of so many conversations: the server's are made before the fork, so that the client knows where they are.
struct Ends {
    std::vector<int> server;
    std::vector<sockaddr_in> at;
};

Ends open_ends(int type, int threads)
{
    Ends ends;
    for (int i = 0; i < threads; ++i) {
        sockaddr_in at = {};
        ends.server.push_back(bound(type, at));
        ends.at.push_back(at);
        if (type == SOCK_STREAM)
            must(::listen(ends.server.back(), 1));
    }
    return ends;
}

void serve(int type, const Ends &ends)
{
    std::vector<std::thread> all;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int fd : ends.server)
        all.emplace_back([fd, type] { echo(type == SOCK_STREAM ? eager(::accept(fd, nullptr, nullptr)) : fd); });
    for (std::thread &thread : all)
        thread.join();
}

// The times of its round trips, in nanoseconds.
std::vector<std::uint32_t> ask(int type, sockaddr_in at, Clock::time_point end)
{
    std::vector<std::uint32_t> times;
    Message message = {};
    const timeval patience = {0, kPatienceMs * 1000};
    const int fd = must(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
    if (type == SOCK_STREAM)
        eager(fd);
    else
        must(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    must(::connect(fd, generic(at), sizeof at));
    for (Clock::time_point now = Clock::now(); now < end;) {
        must(static_cast<int>(::send(fd, message.data(), message.size(), MSG_NOSIGNAL)));
        if (::recv(fd, message.data(), message.size(), type == SOCK_STREAM ? MSG_WAITALL : 0) < 0)
            continue;
        const Clock::time_point then = Clock::now();
        times.push_back(static_cast<std::uint32_t>(std::chrono::nanoseconds(then - now).count()));
        now = then;
    }
    if (type == SOCK_DGRAM)
        must(static_cast<int>(::send(fd, nullptr, 0, 0)));
    ::close(fd);
    return times;
}

double percentile(std::vector<std::uint32_t> &times, double share)
{
    constexpr double kNanoseconds = 1000;
    const auto at = times.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(times.size() - 1) * share);
    std::nth_element(times.begin(), at, times.end());
    return *at / kNanoseconds;
}

} // namespace

int main(int argc, char **argv)
{
    const bool tcp = argc == 4 && std::strcmp(argv[1], "tcp") == 0;
    const int threads = argc == 4 ? std::atoi(argv[2]) : 0;
    const int seconds = argc == 4 ? std::atoi(argv[3]) : 0;
    if (threads <= 0 || seconds <= 0 || (!tcp && std::strcmp(argv[1], "udp") != 0)) {
        std::fputs("usage: echo_load tcp|udp THREADS SECONDS\n", stderr);
        return 2;
    }
    const int type = tcp ? SOCK_STREAM : SOCK_DGRAM;
    const Ends ends = open_ends(type, threads);
    const pid_t server = must(::fork());
    if (server == 0) {
        serve(type, ends);
        std::exit(0);
    }
    for (const int fd : ends.server)
        ::close(fd);
    std::vector<std::vector<std::uint32_t>> parts(static_cast<std::size_t>(threads));
    std::vector<std::thread> all;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
    for (std::size_t i = 0; i < parts.size(); ++i)
        all.emplace_back([&parts, &ends, type, end, i] { parts[i] = ask(type, ends.at[i], end); });
    for (std::thread &thread : all)
        thread.join();
    must(::waitpid(server, nullptr, 0));
    std::vector<std::uint32_t> times;
    for (const auto &part : parts)
        times.insert(times.end(), part.begin(), part.end());
    if (times.empty()) {
        std::fputs("echo_load: no answer came\n", stderr);
        return 1;
    }
    std::printf("{\"messages\": %zu, \"p50\": %.3f, \"p99\": %.3f, \"p99.9\": %.3f}\n", times.size(),
                percentile(times, 0.5), percentile(times, 0.99), percentile(times, 0.999));
    return 0;
}
