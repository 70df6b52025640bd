// SPDX-License-Identifier: BSD-2-Clause
// message_cost server|client --control FD recv|poll|epoll CONNECTIONS MESSAGES: a server that answers small messages.
// The client has sent MESSAGES on each connection, in turn, before each round begins, so the server never waits, and
// what callgrind counts in answer_round() is the same however busy the machine is. The server prints how many messages
// that were.
#include <poll.h>
#include <sys/epoll.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kRounds = 40;
constexpr std::size_t kLength = 64;

struct Work {
    std::string call;
    int messages; // on each connection
    std::vector<int> fds;
    int set = -1;
};

void answer(int fd)
{
    char message[kLength];
    if (::recv(fd, message, sizeof message, 0) != kLength || ::send(fd, message, sizeof message, 0) != kLength)
        die("a message came in parts");
}

} // namespace

extern "C" [[gnu::noinline]] void answer_round(const Work &work)
{
    for (int left = work.messages * static_cast<int>(work.fds.size()); left > 0;) {
        if (work.call == "epoll") {
            epoll_event events[64];
            const int n = must(::epoll_wait(work.set, events, 64, -1), "epoll_wait");
            for (int i = 0; i < n; ++i, --left)
                answer(events[i].data.fd);
            continue;
        }
        pollfd one = {work.fds[0], POLLIN, 0};
        if (work.call == "poll")
            must(::poll(&one, 1, -1), "poll");
        answer(work.fds[0]);
        --left;
    }
}

namespace {

void serve(const Peer &peer, Work &work)
{
    work.set = must(::epoll_create1(0), "epoll_create1");
    for (const int fd : work.fds) {
        epoll_event event = {};
        event.events = EPOLLIN;
        event.data.fd = fd;
        must(::epoll_ctl(work.set, EPOLL_CTL_ADD, fd, &event), "EPOLL_CTL_ADD");
    }
    for (int round = 0; round < kRounds; ++round) {
        peer.step();
        answer_round(work);
    }
    std::printf("%d messages\n", kRounds * work.messages * static_cast<int>(work.fds.size()));
}

void ask(const Peer &peer, const Work &work)
{
    char bytes[kLength] = {};
    for (int round = 0; round < kRounds; ++round) {
        for (int message = 0; message < work.messages; ++message)
            for (const int fd : work.fds)
                send_all(fd, bytes, sizeof bytes);
        peer.step();
        for (int message = 0; message < work.messages; ++message)
            for (const int fd : work.fds)
                receive_all(fd, bytes, sizeof bytes);
    }
}

} // namespace

int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    if (argc != 4)
        die("usage: message_cost server|client --control FD recv|poll|epoll CONNECTIONS MESSAGES");
    Work work = {argv[1], std::atoi(argv[3]), {}};
    peer.open_listener();
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
        work.fds.push_back(peer.connect_plain());
        peer.offload(work.fds.back());
    }
    peer.server ? serve(peer, work) : ask(peer, work);
    return 0;
}
