// SPDX-License-Identifier: BSD-2-Clause
// One side sends for some time under SO_MAX_PACING_RATE, the other measures what arrives. The connection, or the pair
// of UDP sockets, is accelerated by then. Arguments: tcp|udp, blocking|poll|epoll|spin (a refused call is made again at
// once), bytes a second, milliseconds, bytes a call, and after how many bytes the receiver stops for 30 ms, again and
// again (0: never). The receiver prints bytes and ns from the first arrival, which doesn't count, to the last, and all
// bytes and when the last came; the sender what it sent, in how many calls, how often it was refused, its CPU time, and
// when it began.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr unsigned kWarmUp = 100; // round trips; more than enough with VMA_LIFT_AFTER as the harness sets it
constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint64_t now()
{
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * kSecond + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t cpu_time()
{
    rusage usage{};
    must(::getrusage(RUSAGE_SELF, &usage), "getrusage");
    const auto ns = [](const timeval &t) {
        return static_cast<std::uint64_t>(t.tv_sec) * kSecond + static_cast<std::uint64_t>(t.tv_usec) * 1000;
    };
    return ns(usage.ru_utime) + ns(usage.ru_stime);
}

int open_datagrams(Peer &me)
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    sockaddr_in address{};
    socklen_t length = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::bind(fd, reinterpret_cast<sockaddr *>(&address), length), "bind");
    must(::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length), "getsockname");
    me.tell(address.sin_port);
    address.sin_port = static_cast<in_port_t>(me.hear());
    must(::connect(fd, reinterpret_cast<sockaddr *>(&address), length), "connect");
    char byte = 0;
    // What is sent before the other end is known goes by the kernel, and isn't paced.
    bool both = false;
    for (unsigned turns = 2; turns != 0; turns -= both ? 1 : 0) {
        for (unsigned i = 0; i < kWarmUp; ++i) {
            if (!me.server)
                must(static_cast<int>(::send(fd, &byte, 1, 0)), "send");
            must(static_cast<int>(::recv(fd, &byte, 1, 0)), "recv");
            if (me.server)
                must(static_cast<int>(::send(fd, &byte, 1, 0)), "send");
        }
        both = me.both(me.is_offloaded(fd));
    }
    return fd;
}

void receive(int fd, std::uint64_t stops_after)
{
    constexpr timespec kStop = {0, 30'000'000};
    std::vector<char> buffer(1 << 20);
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t bytes = 0;
    std::uint64_t all = 0;
    std::uint64_t stopped_at = 0;
    for (ssize_t n; (n = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
        last = now();
        all += static_cast<std::uint64_t>(n);
        if (first == 0)
            first = last;
        else
            bytes += static_cast<std::uint64_t>(n);
        if (stops_after != 0 && bytes - stopped_at >= stops_after) {
            stopped_at = bytes;
            must(::nanosleep(&kStop, nullptr), "nanosleep");
        }
    }
    std::printf("received %llu bytes in %llu ns, all %llu at %llu ns\n", static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(last - first), static_cast<unsigned long long>(all),
                static_cast<unsigned long long>(last));
}

// Until the socket says that there is room.
void await_room(int fd, int epoll)
{
    epoll_event event{};
    pollfd one{fd, POLLOUT, 0};
    if (epoll >= 0)
        must(::epoll_wait(epoll, &event, 1, patience::milliseconds()) == 1 ? 0 : -1, "epoll_wait");
    else
        must(::poll(&one, 1, patience::milliseconds()) == 1 ? 0 : -1, "poll");
}

void transmit(int fd, const std::string &style, std::uint64_t nanoseconds, std::size_t chunk)
{
    const std::vector<char> buffer(chunk, 'x');
    int epoll = -1;
    if (style == "epoll") {
        epoll = must(::epoll_create1(0), "epoll_create1");
        epoll_event event{EPOLLOUT | EPOLLET, {}};
        must(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    if (style != "blocking")
        must(::fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
    const std::uint64_t start = now();
    const std::uint64_t busy = cpu_time();
    std::uint64_t bytes = 0;
    unsigned long calls = 0;
    unsigned long refused = 0;
    while (now() - start < nanoseconds) {
        const ssize_t n = ::send(fd, buffer.data(), chunk, 0);
        ++calls;
        if (n >= 0) {
            bytes += static_cast<std::uint64_t>(n);
        } else if (errno == EAGAIN) {
            ++refused;
            if (style != "spin")
                await_room(fd, epoll);
        } else {
            die("send: %s", std::strerror(errno));
        }
    }
    std::printf("sent %llu bytes, %lu calls, %lu refused, cpu %llu ns of %llu ns from %llu ns\n",
                static_cast<unsigned long long>(bytes), calls, refused,
                static_cast<unsigned long long>(cpu_time() - busy), static_cast<unsigned long long>(now() - start),
                static_cast<unsigned long long>(start));
}

// An empty one is the last. A full receiver drops it, so it goes until the other side has gone.
void end_datagrams(const Peer &me, int fd)
{
    pollfd other{me.control, 0, 0};
    do {
        if (::send(fd, nullptr, 0, 0) < 0 && errno != ECONNREFUSED)
            die("the last datagram: %s", std::strerror(errno));
    } while (::poll(&other, 1, 10) == 0);
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    if (argc != 7)
        die("expected tcp|udp blocking|poll|epoll|spin RATE MS BYTES STOPS_AFTER");
    const bool tcp = std::string(argv[1]) == "tcp";
    int fd = -1;
    if (tcp) {
        me.open_listener();
        fd = me.connect_plain();
        me.offload(fd);
    } else {
        fd = open_datagrams(me);
    }
    me.step();
    if (me.server) {
        receive(fd, std::strtoull(argv[6], nullptr, 0));
        return 0;
    }
    const std::uint64_t rate = std::strtoull(argv[3], nullptr, 0);
    must(::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate), "SO_MAX_PACING_RATE");
    transmit(fd, argv[2], std::strtoull(argv[4], nullptr, 0) * 1'000'000, std::strtoull(argv[5], nullptr, 0));
    if (tcp)
        must(::shutdown(fd, SHUT_WR), "shutdown");
    else
        end_datagrams(me, fd);
    return 0;
}
