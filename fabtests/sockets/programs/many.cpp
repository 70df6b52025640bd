// SPDX-License-Identifier: BSD-2-Clause
// Many connections at once: an epoll echo server and a client that talks on all of them in random order, closes some,
// opens others, and checks every answer.
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/pattern.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

void serve(const Peer &peer, std::size_t connections)
{
    const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    epoll_event event{EPOLLIN, {.fd = peer.listener}};
    must(::epoll_ctl(set, EPOLL_CTL_ADD, peer.listener, &event), "epoll_ctl");
    std::size_t accepted = 0, open = 0;
    char block[65536];
    while (accepted < connections || open > 0) {
        epoll_event events[64];
        const int n = must(::epoll_wait(set, events, 64, patience::milliseconds()), "epoll_wait");
        if (n == 0)
            die("nothing more comes: %zu accepted, %zu open", accepted, open);
        for (int i = 0; i < n; ++i) {
            const int fd = events[i].data.fd;
            if (fd == peer.listener) {
                event.events = EPOLLIN;
                event.data.fd = must(::accept4(peer.listener, nullptr, nullptr, SOCK_CLOEXEC), "accept4");
                must(::epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event), "epoll_ctl");
                ++accepted;
                ++open;
                continue;
            }
            const ssize_t got = ::recv(fd, block, sizeof block, 0);
            if (got < 0)
                die("recv: %s", strerrorname_np(errno));
            if (got == 0) {
                must(::close(fd), "close");
                --open;
            } else {
                send_all(fd, block, static_cast<std::size_t>(got));
            }
        }
    }
    std::printf("served %zu connections\n", accepted);
}

void talk(Peer &peer, std::size_t connections, std::size_t exchanges, std::uint64_t seed)
{
    Random random(seed);
    std::vector<int> fds;
    std::vector<std::uint64_t> positions(connections);
    const std::size_t at_once = connections - connections / 10; // the rest comes when others have gone
    for (std::size_t i = 0; i < at_once; ++i)
        fds.push_back(peer.connect_plain());
    std::size_t made = at_once;
    char out[20000], in[20000];
    for (std::size_t round = 0; round < exchanges; ++round) {
        const std::size_t i = random.below(fds.size());
        if (made < connections && random.below(10) == 0) {
            must(::close(fds[i]), "close");
            fds[i] = peer.connect_plain();
            positions[i] = 0;
            ++made;
        }
        const std::size_t len = random.size(14);
        const Pattern pattern(seed + i);
        pattern.fill(positions[i], out, len);
        send_all(fds[i], out, len);
        receive_all(fds[i], in, len);
        if (pattern.check(positions[i], in, len) != len)
            die("wrong answer on connection %zu in round %zu", i, round);
        positions[i] += len;
    }
    for (; made < connections; ++made)
        fds.push_back(peer.connect_plain());
    for (const int fd : fds)
        must(::close(fd), "close");
    std::printf("%zu exchanges on %zu connections\n", exchanges, made);
}

} // namespace

// many server|client --control FD CONNECTIONS EXCHANGES SEED
int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    if (argc != 4)
        die("usage: many server|client --control FD CONNECTIONS EXCHANGES SEED");
    const std::size_t connections = std::strtoull(argv[1], nullptr, 0);
    peer.open_listener();
    if (peer.server)
        serve(peer, connections);
    else
        talk(peer, connections, std::strtoull(argv[2], nullptr, 0), std::strtoull(argv[3], nullptr, 0));
    return 0;
}
