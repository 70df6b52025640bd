// SPDX-License-Identifier: BSD-2-Clause
// What rings are for: threads that poll each for connections of their own (VMA_RING_ALLOCATION_LOGIC_RX=20 against 0).
//   two_threads across MS TURNS   one connection between two threads: round trips of 64 bytes a second
//   two_threads apart MS TURNS    two threads, each talks to a process of its own: the same, of both together
//   two_threads alone MS TURNS    each of two threads talks to itself over a connection: likewise, without waiting for anybody
// One line a turn. Which ring is whose, the caller's environment says; compare runs in turn.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;

constexpr std::size_t kMessage = 64;
constexpr int kWarmUp = 2000;

using Message = std::array<char, kMessage>;

int listening(sockaddr_in &at)
{
    socklen_t size = sizeof at;
    const int fd = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::listen(fd, 4));
    must(::getsockname(fd, generic(at), &size));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd;
}

int connected(sockaddr_in &to)
{
    const int fd = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::connect(fd, generic(to), sizeof to));
    return eager(fd);
}

bool receive(int fd, Message &message)
{
    for (std::size_t done = 0; done < kMessage;) {
        const ssize_t n = ::recv(fd, message.data() + done, kMessage - done, 0);
        if (n <= 0)
            return false;
        done += static_cast<std::size_t>(n);
    }
    return true;
}

void send(int fd, const Message &message)
{
    if (::send(fd, message.data(), kMessage, MSG_NOSIGNAL) != static_cast<ssize_t>(kMessage))
        std::exit(1);
}

void echo(int fd)
{
    Message message{};
    while (receive(fd, message))
        send(fd, message);
    ::close(fd);
}

// Round trips until `stop`; `answer` is the other end if this thread has to see to it too.
std::uint64_t trips(int fd, int answer, const std::atomic<bool> &stop)
{
    Message message{};
    std::uint64_t count = 0;
    for (; !stop.load(std::memory_order_relaxed) || count < kWarmUp; ++count) {
        send(fd, message);
        if (answer >= 0) {
            receive(answer, message);
            send(answer, message);
        }
        receive(fd, message);
    }
    return count;
}

void warm_up(int fd, int answer)
{
    const std::atomic<bool> stop{true};
    trips(fd, answer, stop);
}

void sleep_ms(int milliseconds)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

void print_rate(std::uint64_t count, std::chrono::steady_clock::time_point since)
{
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
    std::printf("%.0f\n", static_cast<double>(count) / took.count());
    std::fflush(stdout);
}

// Each of two threads with its ends; a turn counts what both did.
void measure(const std::array<int, 2> &fds, const std::array<int, 2> &answers, int threads, int milliseconds, int turns)
{
    for (int turn = 0; turn < turns; ++turn) {
        std::atomic<bool> stop{false};
        std::atomic<int> warm{0};
        std::atomic<std::uint64_t> count{0};
        std::array<std::thread, 2> runners;
        for (int i = 0; i < threads; ++i) {
            const auto at = static_cast<std::size_t>(i);
            runners.at(at) = std::thread([&, at] {
                warm_up(fds.at(at), answers.at(at));
                warm.fetch_add(1);
                while (warm.load() < threads)
                    std::this_thread::yield();
                count.fetch_add(trips(fds.at(at), answers.at(at), stop));
            });
        }
        while (warm.load() < threads)
            sleep_ms(1);
        const auto since = std::chrono::steady_clock::now();
        sleep_ms(milliseconds);
        stop.store(true);
        for (int i = 0; i < threads; ++i)
            runners.at(static_cast<std::size_t>(i)).join();
        print_rate(count.load(), since);
    }
}

void across(int milliseconds, int turns)
{
    sockaddr_in at{};
    const int listener = listening(at);
    const int fd = connected(at);
    const int other = eager(::accept(listener, nullptr, nullptr));
    std::thread answers(echo, other);
    measure({fd, -1}, {-1, -1}, 1, milliseconds, turns);
    ::shutdown(fd, SHUT_RDWR);
    answers.join();
}

void apart(int milliseconds, int turns)
{
    std::array<int, 2> fds{};
    for (int &fd : fds) {
        sockaddr_in at{};
        const int listener = listening(at);
        if (must(::fork()) == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            echo(eager(::accept(listener, nullptr, nullptr)));
            _exit(0);
        }
        ::close(listener);
        fd = -static_cast<int>(ntohs(at.sin_port));
    }
    for (int &fd : fds) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<std::uint16_t>(-fd));
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fd = connected(at);
    }
    measure(fds, {-1, -1}, 2, milliseconds, turns);
}

void alone(int milliseconds, int turns)
{
    sockaddr_in at{};
    const int listener = listening(at);
    std::array<int, 2> fds{};
    std::array<int, 2> answers{};
    for (std::size_t i = 0; i < fds.size(); ++i) {
        fds.at(i) = connected(at);
        answers.at(i) = eager(::accept(listener, nullptr, nullptr));
    }
    measure(fds, answers, 2, milliseconds, turns);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const std::string what = argv[1];
    const int milliseconds = std::atoi(argv[2]);
    const int turns = std::atoi(argv[3]);
    if (what == "across")
        across(milliseconds, turns);
    else if (what == "apart")
        apart(milliseconds, turns);
    else if (what == "alone")
        alone(milliseconds, turns);
    else
        return 2;
    return 0;
}
