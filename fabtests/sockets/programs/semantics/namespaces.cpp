// SPDX-License-Identifier: BSD-2-Clause
// Sockets that are not where their program is, or are taken by another one: namespaces of the network that are left,
// and pidfd_getfd().
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/syscall.h>

#include <utility>
#include <vector>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

extern "C" {
#include <sys/pidfd.h> // glibc 2.36's does not say that it is C
}

namespace {

using namespace fabtest;

constexpr int kLines = 300;

void echo(int fd, int lines)
{
    char block[64];
    for (int i = 0; i < lines; ++i) {
        receive_all(fd, block, 8);
        send_all(fd, block, 8);
    }
}

void ask(const Side &me, const char *what, int fd, int lines)
{
    char line[16];
    for (int i = 0; i < lines; ++i) {
        char back[8];
        std::snprintf(line, sizeof line, "%8d", i);
        send_all(fd, line, 8);
        receive_all(fd, back, 8);
        if (std::memcmp(line, back, 8) != 0)
            die("%s: wrong answer to %d", what, i);
    }
    me.say("%s: %d lines", what, lines);
}

void enter_new_network()
{
    must(::unshare(CLONE_NEWNET), "unshare");
    ifreq request = {};
    std::strcpy(request.ifr_name, "lo");
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    must(::ioctl(fd, SIOCGIFFLAGS, &request), "SIOCGIFFLAGS");
    request.ifr_flags |= IFF_UP;
    must(::ioctl(fd, SIOCSIFFLAGS, &request), "SIOCSIFFLAGS");
    ::close(fd);
}

sockaddr_in name_at(std::uint16_t port)
{
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(port);
    return name;
}

// Both ends of a connection in this process, whose ports are given: {who connected, who accepted}.
std::pair<int, int> pair_at(std::uint16_t from, std::uint16_t to)
{
    const sockaddr_in near = name_at(from);
    const sockaddr_in far = name_at(to);
    const int one = 1;
    const int listener = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    const int connector = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    for (const int fd : {listener, connector})
        must(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "SO_REUSEADDR");
    must(::bind(listener, reinterpret_cast<const sockaddr *>(&far), sizeof far), "bind");
    must(::listen(listener, 1), "listen");
    must(::bind(connector, reinterpret_cast<const sockaddr *>(&near), sizeof near), "bind");
    must(::connect(connector, reinterpret_cast<const sockaddr *>(&far), sizeof far), "connect");
    const int accepted = must(::accept(listener, nullptr, nullptr), "accept");
    ::close(listener);
    return {connector, accepted};
}

void exchange(const Side &me, const char *what, const std::vector<std::pair<int, int>> &pairs)
{
    for (int i = 0; i < kLines; ++i)
        for (std::size_t which = 0; which < pairs.size(); ++which) {
            const int sent = i * 10 + static_cast<int>(which);
            int got = -1;
            send_all(pairs[which].first, &sent, sizeof sent);
            receive_all(pairs[which].second, &got, sizeof got);
            if (got == sent)
                send_all(pairs[which].second, &sent, sizeof sent);
            if (got == sent)
                receive_all(pairs[which].first, &got, sizeof got);
            if (got != sent)
                die("%s: %d came on connection %zu instead of %d", what, got, which, sent);
        }
    me.say("%s: %zu connections", what, pairs.size());
}

constexpr std::uint16_t kNear = 21017;
constexpr std::uint16_t kFar = 21018;

// Connections with the same four numbers in networks that the program has left again, as programs do that have a foot
// in several.
std::vector<std::pair<int, int>> in_three_networks()
{
    const int home = must(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), "open");
    std::vector<std::pair<int, int>> pairs;
    for (int i = 0; i < 3; ++i) {
        enter_new_network();
        pairs.push_back(pair_at(kNear, kFar));
        must(::setns(home, CLONE_NEWNET), "setns");
    }
    ::close(home);
    return pairs;
}

} // namespace

// A connection stays where it was made; what is made later is elsewhere.
SCENARIO(network_left)
{
    if (me.server)
        return echo(me.fd, 2 * kLines);
    ask(me, "before", me.fd, kLines);
    enter_new_network();
    ask(me, "behind", me.fd, kLines);
    exchange(me, "in the new one", {pair_at(kNear, kFar)});
}

SCENARIO(same_addresses_in_three_networks)
{
    if (me.server)
        return;
    const std::vector<std::pair<int, int>> pairs = in_three_networks();
    exchange(me, "in turn", pairs);
    for (const auto &pair : pairs)
        ::close(pair.first);
    for (const auto &pair : pairs) {
        char byte = 0;
        me.show("at the end", ::recv(pair.second, &byte, 1, 0));
    }
}

// All that connected offer before the first that was accepted looks for an offer: it must not find that of the last.
SCENARIO(same_addresses_in_three_networks_at_once)
{
    if (me.server)
        return;
    const std::vector<std::pair<int, int>> pairs = in_three_networks();
    for (int turn = 0; turn < kLines; ++turn) {
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            const int sent = turn * 10 + static_cast<int>(i);
            send_all(pairs[i].first, &sent, sizeof sent);
        }
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            int got = -1;
            receive_all(pairs[i].second, &got, sizeof got);
            if (got != turn * 10 + static_cast<int>(i))
                die("%d came on connection %zu in turn %d", got, i, turn);
            send_all(pairs[i].second, &got, sizeof got);
        }
        for (const auto &pair : pairs) {
            int got = -1;
            receive_all(pair.first, &got, sizeof got);
        }
    }
    me.say("all came where they belong");
}

// A descriptor of a process that knows nothing of it: taken, asked and closed. Its connection goes on.
SCENARIO(taken_from_another_process)
{
    if (me.server) {
        const int numbers[] = {static_cast<int>(::getpid()), me.fd};
        send_all(me.fd, numbers, sizeof numbers);
        me.step();
        echo(me.fd, 2 * kLines);
        me.step();
        return;
    }
    int numbers[2] = {};
    receive_all(me.fd, numbers, sizeof numbers);
    me.step();
    ask(me, "before", me.fd, kLines);
    const int process = must(::pidfd_open(numbers[0], 0), "pidfd_open");
    for (const bool bare : {false, true}) {
        const int taken =
            must(bare ? static_cast<int>(::syscall(SYS_pidfd_getfd, process, numbers[1], 0)) // past libc's function
                      : ::pidfd_getfd(process, numbers[1], 0),
                 "pidfd_getfd");
        sockaddr_in theirs = {};
        sockaddr_in mine = {};
        socklen_t size = sizeof theirs;
        must(::getpeername(taken, reinterpret_cast<sockaddr *>(&theirs), &size), "getpeername");
        must(::getsockname(me.fd, reinterpret_cast<sockaddr *>(&mine), &size), "getsockname");
        me.say("its peer is me: %d", theirs.sin_port == mine.sin_port);
        me.show("close", ::close(taken));
    }
    ask(me, "after", me.fd, kLines);
    me.step();
}

// One that listens is as good in another process.
SCENARIO(listener_taken_from_another_process)
{
    if (me.server) {
        const int listener = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
        must(::listen(listener, 5), "listen");
        const int numbers[] = {static_cast<int>(::getpid()), listener};
        send_all(me.fd, numbers, sizeof numbers);
        return me.step();
    }
    int numbers[2] = {};
    receive_all(me.fd, numbers, sizeof numbers);
    const int process = must(::pidfd_open(numbers[0], 0), "pidfd_open");
    const int listener = must(::pidfd_getfd(process, numbers[1], 0), "pidfd_getfd");
    sockaddr_in name = {};
    socklen_t size = sizeof name;
    must(::getsockname(listener, reinterpret_cast<sockaddr *>(&name), &size), "getsockname");
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int connector = must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(::connect(connector, reinterpret_cast<sockaddr *>(&name), sizeof name), "connect");
    exchange(me, "by the listener of another", {{connector, must(::accept(listener, nullptr, nullptr), "accept")}});
    me.step();
}

// All but what it needs is closed as daemons do it.
SCENARIO(closed_from_here_on)
{
    if (me.server)
        return echo(me.fd, 2 * kLines);
    const int high = must(::fcntl(me.fd, F_DUPFD, 100), "F_DUPFD");
    ask(me, "before", high, kLines);
    me.show("close_range", ::close_range(200, ~0U, 0));
    ::closefrom(101);
    me.show("F_GETFD", ::fcntl(high, F_GETFD));
    ask(me, "after", high, kLines);
}
