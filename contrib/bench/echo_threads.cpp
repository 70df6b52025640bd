// SPDX-License-Identifier: BSD-2-Clause
// A server of many threads that wait each for a socket of its own, and a client that asks one after the other. What
// comes for one thread is to wake no other: with their number a round trip must not get longer.
//   echo_threads ROUNDS THREADS LOOPS [WAY]   THREADS in recv() and in poll(), LOOPS in epoll_wait() and in poll() of two sockets each
// Prints one line of JSON: of each way the time of a round trip, and of the server's processor time a message, in
// microseconds.
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
#include <cstring>
#include <thread>
#include <vector>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;

constexpr int kWarmUp = 100; // of each connection
constexpr std::size_t kMessage = 64;

enum class Way { kReceive, kPoll, kPollTwo, kEpoll };

struct Setting {
    int type; // SOCK_STREAM or SOCK_DGRAM
    Way way;
    int threads;
};

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

// Until an empty message comes. `idle` is a socket that nothing comes for.
void echo(int fd, int set, int idle, Way way)
{
    std::array<char, kMessage> block;
    std::array<pollfd, 2> polled = {{{fd, POLLIN, 0}, {idle, POLLIN, 0}}};
    epoll_event event = {};
    for (;;) {
        if (way == Way::kPoll || way == Way::kPollTwo)
            must(::poll(polled.data(), way == Way::kPoll ? 1 : 2, -1));
        else if (way == Way::kEpoll)
            must(::epoll_wait(set, &event, 1, -1));
        sockaddr_in from = {};
        socklen_t size = sizeof from;
        const ssize_t n = ::recvfrom(fd, block.data(), block.size(), 0, generic(from), &size);
        if (n <= 0 || ::sendto(fd, block.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL,
                               size != 0 ? generic(from) : nullptr, size) != n)
            return;
    }
}

// One connection, or a socket of whose address the client is told.
int next_of(int listener, int type, int control)
{
    if (type == SOCK_STREAM)
        return eager(::accept(listener, nullptr, nullptr));
    sockaddr_in at = {};
    const int fd = bound(type, at);
    must(static_cast<int>(::write(control, &at, sizeof at)));
    return fd;
}

// Tells its processor time between two bytes of `control`.
void serve(int listener, int control, const Setting &setting)
{
    std::vector<std::thread> all;
    for (int i = 0; i < setting.threads; ++i) {
        sockaddr_in unused = {};
        const int fd = next_of(listener, setting.type, control);
        const int set = must(::epoll_create1(EPOLL_CLOEXEC));
        epoll_event event = {};
        event.events = EPOLLIN;
        if (setting.way == Way::kEpoll)
            must(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
        all.emplace_back(echo, fd, set, bound(SOCK_DGRAM, unused), setting.way);
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

int connected(sockaddr_in at, int type, int control)
{
    if (type == SOCK_DGRAM)
        must(static_cast<int>(::read(control, &at, sizeof at)));
    const int fd = must(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
    if (type == SOCK_STREAM)
        eager(fd);
    must(::connect(fd, generic(at), sizeof at));
    return fd;
}

Figures talk(sockaddr_in at, int control, const Setting &setting, int rounds)
{
    std::vector<int> fds;
    for (int i = 0; i < setting.threads; ++i)
        fds.push_back(connected(at, setting.type, control));
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
    for (const int fd : fds) {
        if (setting.type == SOCK_DGRAM)
            must(static_cast<int>(::send(fd, &byte, 0, 0)));
        ::close(fd);
    }
    figures.round_trip_us = took.count() / rounds;
    figures.processor_us /= rounds;
    return figures;
}

Figures measure(const Setting &setting, int rounds)
{
    sockaddr_in at = {};
    int control[2];
    const int listener = bound(SOCK_STREAM, at);
    must(::listen(listener, setting.threads));
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control));
    const pid_t child = must(::fork());
    if (child == 0) {
        ::close(control[0]);
        serve(listener, control[1], setting);
        std::exit(0); // as a program ends that the library has something to say of
    }
    ::close(listener);
    ::close(control[1]);
    const Figures figures = talk(at, control[0], setting, rounds);
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
        std::fputs("usage: echo_threads [ROUNDS [THREADS [LOOPS [WAY]]]]\n", stderr);
        return 2;
    }
    const struct {
        const char *name;
        Setting setting;
    } all[] = {
        {"recv", {SOCK_STREAM, Way::kReceive, threads}},      {"poll", {SOCK_STREAM, Way::kPoll, threads}},
        {"poll_two", {SOCK_STREAM, Way::kPollTwo, loops}},    {"epoll", {SOCK_STREAM, Way::kEpoll, loops}},
        {"udp_recv", {SOCK_DGRAM, Way::kReceive, threads}},   {"udp_poll", {SOCK_DGRAM, Way::kPoll, threads}},
        {"udp_poll_two", {SOCK_DGRAM, Way::kPollTwo, loops}}, {"udp_epoll", {SOCK_DGRAM, Way::kEpoll, loops}},
    };
    const char *between = "{";
    for (const auto &one : all) {
        if (argc > 4 && std::strcmp(argv[4], one.name) != 0)
            continue;
        const Figures figures = measure(one.setting, rounds);
        std::printf("%s\"%s_us\": %.2f, \"%s_cpu_us\": %.2f", between, one.name, figures.round_trip_us, one.name,
                    figures.processor_us);
        std::fflush(stdout); // before the next fork()
        between = ", ";
    }
    std::puts("}");
    return 0;
}
