// SPDX-License-Identifier: BSD-2-Clause
// What a connection costs that is made, carries some exchanges, and is closed: a server thread of another process, one
// client.
//   short_conn CONNECTIONS EXCHANGES...
// Prints one line of JSON: for each number of exchanges the microseconds a connection, the median of 20 parts of all
// connections.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "contrib/bench/sockets.hpp"

namespace {

using namespace bench;

constexpr std::size_t kMessage = 64;
constexpr std::size_t kParts = 20;

using Message = std::array<char, kMessage>;

[[noreturn]] void serve(int listener)
{
    Message message;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        const int fd = eager(::accept(listener, nullptr, nullptr));
        ssize_t n = 0;
        while ((n = ::recv(fd, message.data(), message.size(), 0)) > 0)
            must(static_cast<int>(::send(fd, message.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL)));
        ::close(fd);
    }
}

void connect_and_ask(sockaddr_in &at, int exchanges)
{
    Message message = {};
    const int fd = eager(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::connect(fd, generic(at), sizeof at));
    for (int i = 0; i < exchanges; ++i) {
        must(static_cast<int>(::send(fd, message.data(), message.size(), MSG_NOSIGNAL)));
        must(static_cast<int>(::recv(fd, message.data(), message.size(), MSG_WAITALL)));
    }
    ::close(fd);
}

double measure(sockaddr_in &at, int connections, int exchanges)
{
    std::array<double, kParts> parts;
    const int each = std::max(1, connections / static_cast<int>(kParts));
    for (double &part : parts) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < each; ++i)
            connect_and_ask(at, exchanges);
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        part = took.count() / each;
    }
    std::nth_element(parts.begin(), parts.begin() + kParts / 2, parts.end());
    return parts[kParts / 2];
}

} // namespace

int main(int argc, char **argv)
{
    const int connections = argc > 1 ? std::atoi(argv[1]) : 0;
    if (connections <= 0 || argc < 3) {
        std::fputs("usage: short_conn CONNECTIONS EXCHANGES...\n", stderr);
        return 2;
    }
    sockaddr_in at = {};
    socklen_t size = sizeof at;
    const int listener = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::listen(listener, SOMAXCONN));
    must(::getsockname(listener, generic(at), &size));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const pid_t server = must(::fork());
    if (server == 0)
        serve(listener);
    for (int i = 2; i < argc; ++i) {
        const int exchanges = std::max(0, std::atoi(argv[i]));
        std::printf("%s\"%d\": %.2f", i == 2 ? "{" : ", ", exchanges, measure(at, connections, exchanges));
    }
    std::puts("}");
    ::kill(server, SIGTERM);
    ::waitpid(server, nullptr, 0);
    return 0;
}
