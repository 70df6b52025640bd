// SPDX-License-Identifier: BSD-2-Clause
// Connections that end while they leave the kernel, or just before or behind: each carries some exchanges, and is
// closed at once.
//   short_connections ... [FEWEST MOST]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kConnections = 400;
// Exchanges: VMA_LIFT_AFTER is 32 calls.
struct Lengths {
    int fewest = 14;
    int most = 24;
};

void serve(int fd)
{
    char byte = 0;
    while (::recv(fd, &byte, 1, 0) == 1)
        send_all(fd, &byte, 1);
}

void ask(int fd, int exchanges)
{
    for (int i = 0; i < exchanges; ++i) {
        const char sent = static_cast<char>(i);
        char got = 0;
        send_all(fd, &sent, 1);
        receive_all(fd, &got, 1);
        if (got != sent)
            die("exchange %d: %d came instead of %d", i, got, sent);
    }
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    Lengths lengths;
    if (argc == 3)
        lengths = {std::atoi(argv[1]), std::atoi(argv[2])};
    me.open_listener();
    for (int i = 0; i < kConnections; ++i) {
        const int fd = me.connect_plain();
        if (me.server)
            serve(fd);
        else
            ask(fd, lengths.fewest + i % (lengths.most - lengths.fewest + 1));
        must(::close(fd), "close");
    }
    return 0;
}
