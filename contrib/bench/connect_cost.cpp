// SPDX-License-Identifier: BSD-2-Clause
// What connect() costs a program: the first one in the process, which may have to set things up, and later ones; and
// the time until the first reply has come, so that work put off until the first message is seen too. The server is
// `idle_conn server`. Usage: connect_cost PORT [COUNT]; prints one JSON line, microseconds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t kMessage = 64;
constexpr int kMoreExchanges = 64; // after the first: the connection may move while it is used

struct Cost {
    double connected; // socket() and connect()
    double replied;   // and one message there and back
    double settled;   // and kMoreExchanges more
};

[[noreturn]] void fail(const char *what)
{
    std::perror(what);
    std::exit(1);
}

double now_us()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

void exchange(int fd)
{
    std::array<char, kMessage> message{};
    if (send(fd, message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size()) ||
        recv(fd, message.data(), message.size(), MSG_WAITALL) != static_cast<ssize_t>(message.size()))
        fail("exchange");
}

Cost open_one(const sockaddr_in &address)
{
    Cost cost{};
    const double start = now_us();
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket");
    if (connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        fail("connect");
    cost.connected = now_us() - start;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    exchange(fd);
    cost.replied = now_us() - start;
    for (int i = 0; i < kMoreExchanges; ++i)
        exchange(fd);
    cost.settled = now_us() - start;
    close(fd);
    return cost;
}

double median(const std::vector<Cost> &costs, double Cost::*what)
{
    std::vector<double> values;
    values.reserve(costs.size());
    for (const Cost &cost : costs)
        values.push_back(cost.*what);
    std::ranges::sort(values);
    return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: connect_cost PORT [COUNT]\n");
        return 2;
    }
    const int count = argc == 3 ? std::max(1, std::atoi(argv[2])) : 200;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[1])));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    const Cost first = open_one(address);
    std::vector<Cost> later;
    later.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
        later.push_back(open_one(address));
    std::printf("{\"first_connect_us\": %.1f, \"first_reply_us\": %.1f, \"first_settled_us\": %.1f, "
                "\"later_connect_us\": %.1f, \"later_reply_us\": %.1f, \"later_settled_us\": %.1f}\n",
                first.connected, first.replied, first.settled, median(later, &Cost::connected),
                median(later, &Cost::replied), median(later, &Cost::settled));
    return 0;
}
