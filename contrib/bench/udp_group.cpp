// SPDX-License-Identifier: BSD-2-Clause
// A sender and receivers of a multicast group that count exactly: of all that was sent before a receiver's last message
// it either got each or can say why not, by gaps in the sequence and by what the socket says was dropped (SO_RXQ_OVFL).
// Plain sockets: what accelerates them comes from outside. Interface is that of the loopback address.
//   udp_group receive GROUP PORT               says "ready", and what it counted when the sender has ended
//   udp_group send GROUP PORT SIZE SECONDS     as much as goes in that time, or what RATE a second makes in it, for
//             [RATE]                           which it may take twice as long; says what it sent, and tells the group
//                                              that it has ended, again and again until its standard input ends
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kReceiveBuffer = 4 << 20; // asked for, as who reads market data does
constexpr std::size_t kLongest = 65507;

struct Header {
    std::uint64_t sequence = 0;
    std::uint32_t ended = 0; // nothing more comes that counts
};

[[noreturn]] void fail(const char *what)
{
    std::fprintf(stderr, "udp_group: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

void check(bool ok, const char *what)
{
    if (!ok)
        fail(what);
}

double now()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

sockaddr_in group_address(const char *group, const char *port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (inet_pton(AF_INET, group, &address.sin_addr) != 1) {
        errno = EINVAL;
        fail(group);
    }
    return address;
}

void set(int fd, int level, int option, int value, const char *what)
{
    check(setsockopt(fd, level, option, &value, sizeof value) == 0, what);
}

int open_receiver(const sockaddr_in &group)
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "socket");
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    set(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer, "SO_RCVBUF");
    set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1, "SO_RXQ_OVFL");
    check(bind(fd, reinterpret_cast<const sockaddr *>(&group), sizeof group) == 0, "bind");
    ip_mreq membership{};
    membership.imr_multiaddr = group.sin_addr;
    membership.imr_interface.s_addr = htonl(INADDR_LOOPBACK);
    check(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0, "IP_ADD_MEMBERSHIP");
    return fd;
}

int open_sender(const sockaddr_in &group)
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd >= 0, "socket");
    in_addr interface {
    };
    interface.s_addr = htonl(INADDR_LOOPBACK);
    check(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) == 0, "IP_MULTICAST_IF");
    check(connect(fd, reinterpret_cast<const sockaddr *>(&group), sizeof group) == 0, "connect");
    return fd;
}

struct Counts {
    std::uint64_t received = 0;
    std::uint64_t missing = 0;   // gaps in the sequence
    std::uint64_t misplaced = 0; // twice, or behind a later one
    std::uint64_t next = 0;      // of the sequence
};

// What the socket says it has dropped before the message; the kernel says nothing while that is none.
std::uint32_t dropped(msghdr &message)
{
    for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            std::uint32_t count = 0;
            std::memcpy(&count, CMSG_DATA(c), sizeof count);
            return count;
        }
    }
    return 0;
}

void note(Counts &counts, std::uint64_t sequence)
{
    if (sequence < counts.next) {
        ++counts.misplaced;
        return;
    }
    counts.missing += sequence - counts.next;
    counts.next = sequence + 1;
}

int receive(const sockaddr_in &group)
{
    const int fd = open_receiver(group);
    std::printf("ready\n");
    std::fflush(stdout);

    std::vector<char> buffer(kLongest);
    alignas(cmsghdr) std::array<char, 256> control;
    Counts counts;
    for (;;) {
        iovec piece{buffer.data(), buffer.size()};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t got = recvmsg(fd, &message, 0);
        if (got < 0 && errno == EINTR)
            continue;
        check(got >= static_cast<ssize_t>(sizeof(Header)), "recvmsg");
        Header header;
        std::memcpy(&header, buffer.data(), sizeof header);
        note(counts, header.sequence);
        if (header.ended != 0) {
            std::printf(
                "{\"before\": %llu, \"received\": %llu, \"missing\": %llu, \"misplaced\": %llu, \"dropped\": %lu}\n",
                static_cast<unsigned long long>(header.sequence), static_cast<unsigned long long>(counts.received),
                static_cast<unsigned long long>(counts.missing), static_cast<unsigned long long>(counts.misplaced),
                static_cast<unsigned long>(dropped(message)));
            return 0;
        }
        ++counts.received;
    }
}

void send_one(int fd, std::vector<char> &message, const Header &header)
{
    std::memcpy(message.data(), &header, sizeof header);
    while (send(fd, message.data(), message.size(), 0) < 0) {
        if (errno != EINTR && errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED)
            fail("send");
    }
}

// The number of messages.
std::uint64_t send_paced(int fd, std::vector<char> &message, double seconds, double rate)
{
    const auto count = static_cast<std::uint64_t>(seconds * rate);
    const double start = now();
    Header header;
    for (; header.sequence < count; ++header.sequence) {
        const double due = start + static_cast<double>(header.sequence) / rate;
        double time = now();
        if (time > start + 2 * seconds)
            break;
        while (time < due)
            time = now();
        send_one(fd, message, header);
    }
    return header.sequence;
}

std::uint64_t send_at_full_speed(int fd, std::vector<char> &message, double seconds)
{
    const double end = now() + seconds;
    Header header;
    do {
        for (int i = 0; i < 64; ++i, ++header.sequence)
            send_one(fd, message, header);
    } while (now() < end);
    return header.sequence;
}

int send_all(const sockaddr_in &group, std::size_t size, double seconds, double rate)
{
    if (size < sizeof(Header) || size > kLongest) {
        errno = EINVAL;
        fail("SIZE");
    }
    const int fd = open_sender(group);
    std::vector<char> message(size);
    const double start = now();
    Header header;
    header.sequence = rate > 0 ? send_paced(fd, message, seconds, rate) : send_at_full_speed(fd, message, seconds);
    std::printf("{\"sent\": %llu, \"seconds\": %.6f}\n", static_cast<unsigned long long>(header.sequence),
                now() - start);
    std::fflush(stdout);

    // Where a receiver's queue is full this is dropped and counted like all else: it comes again until all have it.
    header.ended = 1;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    do {
        send_one(fd, message, header);
        ++header.sequence;
    } while (poll(&input, 1, 1) == 0);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 4 && std::strcmp(argv[1], "receive") == 0)
        return receive(group_address(argv[2], argv[3]));
    if ((argc == 6 || argc == 7) && std::strcmp(argv[1], "send") == 0)
        return send_all(group_address(argv[2], argv[3]), static_cast<std::size_t>(std::atol(argv[4])),
                        std::atof(argv[5]), argc == 7 ? std::atof(argv[6]) : 0);
    std::fprintf(stderr, "usage: udp_group receive GROUP PORT | udp_group send GROUP PORT SIZE SECONDS [RATE]\n");
    return 2;
}
