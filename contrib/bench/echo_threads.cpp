// SPDX-License-Identifier: BSD-2-Clause
// A server of many threads that wait each for a socket of its own, and a client that asks one after the other. What comes for one thread is to wake
// no other: with their number a round trip must not get longer.
//   echo_threads ROUNDS THREADS LOOPS   THREADS in recv() and in poll(), LOOPS in epoll_wait()
// Prints one line of JSON: of each way the time of a round trip, and of the server's processor time a message, in microseconds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;

constexpr int kWarmUp = 100; // of each connection
constexpr std::size_t kMessage = 64;

enum class Way { kReceive, kPoll, kEpoll };

struct Figures {
    double round_trip_us = 0;
    double processor_us = 0;
};

double processor_us()
{
    constexpr double kMicro = 1e6;
    rusage used = {};
    must(::getrusage(RUSAGE_SELF, &used));
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * kMicro +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void echo(int fd, int set, Way way)
{
    std::array<char, kMessage> block;
    pollfd one = {fd, POLLIN, 0};
    epoll_event event = {};
    for (;;) {
        if (way == Way::kPoll)
            must(::poll(&one, 1, -1));
        else if (way == Way::kEpoll)
            must(::epoll_wait(set, &event, 1, -1));
        const ssize_t n = ::recv(fd, block.data(), block.size(), 0);
        if (n <= 0 || ::send(fd, block.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
            return;
    }
}

// Tells its processor time between two bytes of `control`.
void serve(int listener, int control, int threads, Way way)
{
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
        const int fd = eager(::accept(listener, nullptr, nullptr));
        const int set = must(::epoll_create1(EPOLL_CLOEXEC));
        epoll_event event = {};
        event.events = EPOLLIN;
        if (way == Way::kEpoll)
            must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
        all.emplace_back(echo, fd, set, way);
    }
    char byte = 0;
    double used = 0;
    must(static_cast<int>(::read(control, &byte, 1)));
    const double before = processor_us();
    must(static_cast<int>(::write(control, &byte, 1)));
    must(static_cast<int>(::read(control, &byte, 1)));
    used = processor_us() - before;
    must(static_cast<int>(::write(control, &used, sizeof used)));
    for (std::thread &thread : all)
        thread.join();
}

void ask(int fd)
{
    std::array<char, kMessage> block = {};
    if (::send(fd, block.data(), block.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(block.size()) ||
        ::recv(fd, block.data(), block.size(), MSG_WAITALL) != static_cast<ssize_t>(block.size())) {
        std::fputs("echo_threads: the server is gone\n", stderr);
        std::exit(1);
    }
}

Figures talk(sockaddr_in at, int control, int threads, int rounds)
{
    std::vector<int> fds;
    for (int i = 0; i < threads; ++i) {
        fds.push_back(eager(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
        must(::connect(fds.back(), generic(at), sizeof at));
    }
    for (const int fd : fds)
        for (int i = 0; i < kWarmUp; ++i)
            ask(fd);
    Figures figures;
    char byte = 'x';
    must(static_cast<int>(::write(control, &byte, 1)));
    must(static_cast<int>(::read(control, &byte, 1)));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i)
        ask(fds[static_cast<std::size_t>(i) % fds.size()]);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    must(static_cast<int>(::write(control, &byte, 1)));
    must(static_cast<int>(::read(control, &figures.processor_us, sizeof figures.processor_us)));
    for (const int fd : fds)
        ::close(fd);
    figures.round_trip_us = took.count() / rounds;
    figures.processor_us /= rounds;
    return figures;
}

Figures measure(Way way, int threads, int rounds)
{
    sockaddr_in at = {};
    socklen_t size = sizeof at;
    int control[2];
    const int listener = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::listen(listener, threads));
    must(::getsockname(listener, generic(at), &size));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control));
    const pid_t child = must(::fork());
    if (child == 0) {
        ::close(control[0]);
        serve(listener, control[1], threads, way);
        std::exit(0); // as a program ends that the library has something to say of
    }
    ::close(listener);
    ::close(control[1]);
    const Figures figures = talk(at, control[0], threads, rounds);
    ::close(control[0]);
    int status = 0;
    must(::waitpid(child, &status, 0));
    return figures;
}

} // namespace

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 10'000;
    const int threads = argc > 2 ? std::atoi(argv[2]) : 50;
    const int loops = argc > 3 ? std::atoi(argv[3]) : 8;
    if (rounds <= 0 || threads <= 0 || loops <= 0) {
        std::fputs("usage: echo_threads [ROUNDS [THREADS [LOOPS]]]\n", stderr);
        return 2;
    }
    const Figures receive = measure(Way::kReceive, threads, rounds);
    const Figures poll = measure(Way::kPoll, threads, rounds);
    const Figures epoll = measure(Way::kEpoll, loops, rounds);
    std::printf(
        "{\"recv_us\": %.2f, \"recv_cpu_us\": %.2f, \"poll_us\": %.2f, \"poll_cpu_us\": %.2f, \"epoll_us\": %.2f, "
        "\"epoll_cpu_us\": %.2f}\n",
        receive.round_trip_us, receive.processor_us, poll.round_trip_us, poll.processor_us, epoll.round_trip_us,
        epoll.processor_us);
    return 0;
}
