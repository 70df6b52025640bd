// SPDX-License-Identifier: BSD-2-Clause
// An echo server and a client that opens connections, uses each for a moment and then leaves them idle, in steps that
// the caller paces, so that it can look at both processes' memory in between. Plain sockets: what accelerates them
// comes from outside.
//   idle_conn server PORT                    echoes until it is ended
//   idle_conn client PORT COUNT [EXCHANGES]  says "open 0", "open 1", "open COUNT+1"; goes on at each line it reads
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kMessage = 64;

[[noreturn]] void fail(const char *what)
{
    std::perror(what);
    std::exit(1);
}

sockaddr_in loopback(const char *port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int stream_socket()
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket");
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void watch(int set, int fd)
{
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll_ctl");
}

void echo_once(int fd)
{
    std::array<char, 4096> buffer;
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0 || send(fd, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got)
        close(fd);
}

void serve(const char *port)
{
    const int listener = stream_socket();
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = loopback(port);
    if (bind(listener, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        fail("bind");
    if (listen(listener, SOMAXCONN) != 0)
        fail("listen");
    const int set = epoll_create1(0);
    if (set < 0)
        fail("epoll_create1");
    watch(set, listener);

    std::array<epoll_event, 64> events;
    for (;;) {
        const int count = epoll_wait(set, events.data(), static_cast<int>(events.size()), -1);
        for (int i = 0; i < count; ++i) {
            const int fd = events[static_cast<std::size_t>(i)].data.fd;
            if (fd != listener) {
                echo_once(fd);
            } else if (const int peer = accept(listener, nullptr, nullptr); peer >= 0) {
                setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                watch(set, peer);
            }
        }
    }
}

void open_one(const char *port, int exchanges)
{
    const int fd = stream_socket();
    const sockaddr_in address = loopback(port);
    if (connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        fail("connect");
    std::array<char, kMessage> message{};
    for (int i = 0; i < exchanges; ++i) {
        if (send(fd, message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size()) ||
            recv(fd, message.data(), message.size(), MSG_WAITALL) != static_cast<ssize_t>(message.size()))
            fail("exchange");
    }
}

void report_and_wait(int open)
{
    std::printf("open %d\n", open);
    std::fflush(stdout);
    if (std::getchar() == EOF)
        std::exit(0);
}

void allow_many_descriptors()
{
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

} // namespace

int main(int argc, char **argv)
{
    allow_many_descriptors();
    if (argc == 3 && std::strcmp(argv[1], "server") == 0)
        serve(argv[2]);
    if ((argc == 4 || argc == 5) && std::strcmp(argv[1], "client") == 0) {
        const int count = std::atoi(argv[3]);
        const int exchanges = argc == 5 ? std::atoi(argv[4]) : 100;
        report_and_wait(0);
        open_one(argv[2], exchanges);
        report_and_wait(1);
        for (int i = 0; i < count; ++i)
            open_one(argv[2], exchanges);
        report_and_wait(count + 1);
        return 0;
    }
    std::fprintf(stderr, "usage: idle_conn server PORT | idle_conn client PORT COUNT [EXCHANGES]\n");
    return 2;
}
