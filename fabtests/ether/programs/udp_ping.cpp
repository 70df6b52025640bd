// SPDX-License-Identifier: BSD-2-Clause
// Round trips over the kernel's UDP, one at a time, for comparison with frame_echo: prints half of one in microseconds.
//
//   udp_ping server PORT [spin]
//   udp_ping client ADDRESS PORT BYTES COUNT [spin]
#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "fabtests/patience.hpp"

namespace {

constexpr std::size_t kMaxBytes = 1472;
const double kPatience = patience::seconds() * 1e6; // us

double now_usec()
{
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

[[noreturn]] void die(const char *what)
{
    std::perror(what);
    std::exit(3);
}

int open_socket(const char *address, const char *port, sockaddr_in &name)
{
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (fd < 0 || ::inet_pton(AF_INET, address, &name.sin_addr) != 1)
        die("socket");
    return fd;
}

void serve(const char *port, int flags)
{
    sockaddr_in name{};
    const int fd = open_socket("0.0.0.0", port, name);
    if (::bind(fd, reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0)
        die("bind");
    char bytes[kMaxBytes];
    while (true) {
        sockaddr_in from{};
        socklen_t size = sizeof from;
        const ssize_t got = ::recvfrom(fd, bytes, sizeof bytes, flags, reinterpret_cast<sockaddr *>(&from), &size);
        if (got >= 0)
            (void)::sendto(fd, bytes, static_cast<std::size_t>(got), 0, reinterpret_cast<const sockaddr *>(&from),
                           size);
    }
}

void ping(char **argv, int flags)
{
    sockaddr_in name{};
    const int fd = open_socket(argv[2], argv[3], name);
    const auto size = std::min(static_cast<std::size_t>(std::atoi(argv[4])), kMaxBytes);
    const auto count = static_cast<std::uint32_t>(std::atoi(argv[5]));
    if (size < sizeof count || count == 0 || ::connect(fd, reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0)
        die("connect");
    const timeval patience{static_cast<time_t>(kPatience / 1e6), 0};
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::vector<double> halves;
    char out[kMaxBytes] = {};
    char in[kMaxBytes];
    for (std::uint32_t i = 0; i < count; ++i) {
        memcpy(out, &i, sizeof i);
        const double start = now_usec();
        if (::send(fd, out, size, 0) < 0)
            die("send");
        ssize_t got = 0;
        do
            got = ::recv(fd, in, sizeof in, flags);
        while (got < 0 && errno == EAGAIN && flags != 0 && now_usec() - start < kPatience);
        if (got != static_cast<ssize_t>(size) || memcmp(in, out, size) != 0)
            die("answer");
        halves.push_back((now_usec() - start) / 2);
    }
    std::sort(halves.begin(), halves.end());
    std::printf("half a round trip: p50 %.2f us, p99 %.2f us, least %.2f us, of %u\n", halves[halves.size() / 2],
                halves[halves.size() * 99 / 100], halves[0], count);
}

} // namespace

int main(int argc, char **argv)
{
    const int flags = std::string_view(argv[argc - 1]) == "spin" ? MSG_DONTWAIT : 0;
    if (argc >= 3 && std::string_view(argv[1]) == "server")
        serve(argv[2], flags);
    else if (argc >= 6 && std::string_view(argv[1]) == "client")
        ping(argv, flags);
    else
        return 3;
    return 0;
}
