// SPDX-License-Identifier: BSD-2-Clause
// Both ends of one connection in one process and thread: the shortest program that has everything at work. The harness
// starts it where "the next start" is meant.
#include <netinet/in.h>
#include <unistd.h>

#include "fabtests/sockets/programs/peer.hpp"

int main()
{
    using namespace fabtest;
    const int listener = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(::listen(listener, 1), "listen"); // binds to a free port of every address
    sockaddr_in in{};
    socklen_t len = sizeof in;
    must(::getsockname(listener, reinterpret_cast<sockaddr *>(&in), &len), "getsockname");
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int a = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(::connect(a, reinterpret_cast<sockaddr *>(&in), sizeof in), "connect");
    const int b = must(::accept(listener, nullptr, nullptr), "accept");
    char byte = 'x';
    for (int i = 0; i < 50; ++i) {
        send_all(a, &byte, 1);
        receive_all(b, &byte, 1);
        send_all(b, &byte, 1);
        receive_all(a, &byte, 1);
    }
    ::close(a);
    ::close(b);
    return 0;
}
