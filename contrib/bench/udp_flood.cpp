// SPDX-License-Identifier: BSD-2-Clause
// How many UDP datagrams of 64 bytes a receiver takes a second when more come: a sender that gives the kernel 40 of them in a call
// (UDP_SEGMENT), which is several times as fast as sending them one by one, and a receiver that counts recv().
//   udp_flood receive ADDRESS PORT SECONDS     "ready", then a line of JSON
//   udp_flood send ADDRESS PORT SECONDS
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSize = 64;
constexpr int kSegments = 40;
constexpr double kBegin = 0.3; // seconds of single datagrams before: by then it is decided how the socket receives
constexpr double kSettle = 0.3;

void check(bool ok, const char *what)
{
    if (!ok) {
        std::perror(what);
        std::exit(1);
    }
}

double now()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

int open_socket(const char *address, const char *port, sockaddr_in &name)
{
    name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    check(inet_pton(AF_INET, address, &name.sin_addr) == 1, "udp_flood: address");
    const int s = socket(AF_INET, SOCK_DGRAM, 0);
    check(s >= 0, "udp_flood: socket");
    return s;
}

int receive(const char *address, const char *port, double seconds)
{
    sockaddr_in name{};
    const int s = open_socket(address, port, name);
    const int room = 1 << 20;
    const timeval patience{20, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    check(bind(s, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0, "udp_flood: bind");
    std::puts("ready");
    std::fflush(stdout);
    std::array<char, 2048> buffer{};
    check(recv(s, buffer.data(), buffer.size(), 0) >= 0, "udp_flood: recv");
    const double from = now() + kBegin + kSettle;
    double until = from;
    std::uint64_t count = 0;
    for (std::uint64_t i = 1;; ++i) {
        check(recv(s, buffer.data(), buffer.size(), 0) >= 0, "udp_flood: recv");
        if (i % 64 != 0)
            continue;
        const double time = now();
        count += time >= from ? 64 : 0;
        until = time;
        if (time >= from + seconds)
            break;
    }
    std::printf("{\"received\": %.0f}\n", static_cast<double>(count) / (until - from));
    close(s);
    return 0;
}

int send(const char *address, const char *port, double seconds)
{
    sockaddr_in name{};
    const int s = open_socket(address, port, name);
    check(connect(s, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0, "udp_flood: connect");
    std::array<char, kSize * kSegments> bytes{};
    const timespec pause{0, 1'000'000};
    for (const double end = now() + kBegin; now() < end;) {
        check(::send(s, bytes.data(), kSize, 0) > 0, "udp_flood: send");
        nanosleep(&pause, nullptr);
    }
    const int segment = kSize;
    check(setsockopt(s, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0, "udp_flood: UDP_SEGMENT");
    for (const double end = now() + seconds + 2 * kSettle; now() < end;)
        static_cast<void>(::send(s, bytes.data(), bytes.size(), 0)); // the receiver may be gone
    close(s);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 5 && std::strcmp(argv[1], "receive") == 0)
        return receive(argv[2], argv[3], std::atof(argv[4]));
    if (argc == 5 && std::strcmp(argv[1], "send") == 0)
        return send(argv[2], argv[3], std::atof(argv[4]));
    std::fputs("usage: udp_flood receive|send ADDRESS PORT SECONDS\n", stderr);
    return 2;
}
