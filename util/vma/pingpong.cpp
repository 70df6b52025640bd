// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/pingpong.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "util/vma_lat/measure/statistics.hpp"

namespace vma::command {

namespace {

constexpr std::uint64_t kMillisecond = 1000000;       // ns
constexpr std::uint64_t kWarmUp = 100 * kMillisecond; // at least
constexpr unsigned kLookEvery = 16;                   // messages
constexpr std::size_t kRoom = 1 << 20;

std::uint64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 * kMillisecond + static_cast<std::uint64_t>(now.tv_nsec);
}

int fail(const char *what)
{
    fprintf(stderr, "vma demo: %s: %s\n", what, strerror(errno));
    return 1;
}

sockaddr_in loopback(std::uint16_t port)
{
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

void send_at_once(int fd)
{
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool receive(int fd, std::vector<char> &message, bool spins)
{
    std::size_t got = 0;
    while (got < message.size()) {
        const ssize_t n = ::recv(fd, message.data() + got, message.size() - got, spins ? MSG_DONTWAIT : 0);
        if (n > 0)
            got += static_cast<std::size_t>(n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
    }
    return true;
}

bool send(int fd, const std::vector<char> &message)
{
    return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

bool input_has_come()
{
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) != 0;
}

bool ask_once(int fd, std::vector<char> &message, bool spins)
{
    return send(fd, message) && receive(fd, message, spins);
}

// Until it is told to begin.
bool warm_up(int fd, std::vector<char> &message, bool spins)
{
    const std::uint64_t end = now_ns() + kWarmUp;
    do {
        for (unsigned i = 0; i < kLookEvery; ++i)
            if (!ask_once(fd, message, spins))
                return false;
    } while (now_ns() < end || !input_has_come());
    char byte = 0;
    return ::read(STDIN_FILENO, &byte, 1) == 1;
}

} // namespace

int serve_demo(bool spins, std::size_t size)
{
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
        ::listen(listener, 1) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) != 0)
        return fail("the server can't listen at 127.0.0.1");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
        return fail("the server can't accept");
    send_at_once(fd);
    std::vector<char> message(size);
    while (receive(fd, message, spins) && send(fd, message)) {
    }
    ::close(fd);
    ::close(listener);
    return 0;
}

int ask_demo(std::uint16_t port, bool spins, std::size_t size, unsigned milliseconds)
{
    const sockaddr_in address = loopback(port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        return fail("the client can't connect");
    send_at_once(fd);
    lat::Samples samples(kRoom);
    std::vector<char> message(size, 'x');
    if (!warm_up(fd, message, spins))
        return fail("the connection ended");
    const std::uint64_t begin = now_ns();
    const std::uint64_t end = begin + milliseconds * kMillisecond;
    std::uint64_t last = begin;
    while (last < end) {
        const std::uint64_t sent = last;
        if (!ask_once(fd, message, spins))
            return fail("the connection ended");
        last = now_ns();
        samples.record(0, samples.histogram().total(), sent - begin, last - sent);
    }
    const lat::Summary summary = samples.summary();
    printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(summary.count),
           static_cast<unsigned long long>(summary.percentiles[0]),
           static_cast<unsigned long long>(summary.percentiles[2]), static_cast<unsigned long long>(last - begin));
    fflush(stdout);
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ::close(fd);
    return 0;
}

} // namespace vma::command
