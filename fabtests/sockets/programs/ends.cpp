// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/sockets/programs/ends.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

void exchange(int from, int to, unsigned number)
{
    unsigned got = 0;
    send_all(from, &number, sizeof number);
    receive_all(to, &got, sizeof got);
    if (got != number)
        die("%u came instead of %u", got, number);
}

Ends connected()
{
    const int listener = must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(::listen(listener, 1), "listen"); // binds to a free port of every address
    sockaddr_in in{};
    socklen_t len = sizeof in;
    must(::getsockname(listener, reinterpret_cast<sockaddr *>(&in), &len), "getsockname");
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const Ends ends{must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"), -1};
    must(::connect(ends.a, reinterpret_cast<sockaddr *>(&in), sizeof in), "connect");
    const int b = must(::accept(listener, nullptr, nullptr), "accept");
    ::close(listener);
    const int on = 1;
    for (const int fd : {ends.a, b})
        must(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    return {ends.a, b};
}

void talk(const Ends &ends, int times)
{
    for (int i = 0; i < times; ++i) {
        exchange(ends.a, ends.b, static_cast<unsigned>(i));
        exchange(ends.b, ends.a, ~static_cast<unsigned>(i));
    }
}

void accelerate(const Ends &ends)
{
    const Peer client;
    const ::time_t until = ::time(nullptr) + patience::seconds();
    do
        talk(ends, 50);
    while (!(client.is_offloaded(ends.a) && client.is_offloaded(ends.b)) && ::time(nullptr) < until);
    talk(ends, 50);
}

Ends accelerated()
{
    const Ends ends = connected();
    accelerate(ends);
    return ends;
}

} // namespace fabtest
