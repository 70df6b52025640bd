// SPDX-License-Identifier: BSD-2-Clause
// See peer.hpp.
#include "fabtests/sockets/programs/peer.hpp"
#include "fabtests/patience.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fabtest {

void die(const char *format, ...)
{
    std::va_list args;
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
    std::fputc('\n', stderr);
    _exit(3);
}

int must(int result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, strerrorname_np(errno));
    return result;
}

bool offload_expected()
{
    const char *wanted = std::getenv("FABTEST_LIFT");
    return wanted != nullptr && std::strcmp(wanted, "1") == 0;
}

void Peer::tell(std::uint64_t value) const
{
    if (::send(control, &value, sizeof value, MSG_NOSIGNAL) != sizeof value)
        die("the other side is gone (tell: %s)", strerrorname_np(errno));
}

std::uint64_t Peer::hear() const
{
    std::uint64_t value = 0;
    ssize_t n;
    do
        n = ::recv(control, &value, sizeof value, 0);
    while (n < 0 && errno == EINTR);
    if (n != sizeof value)
        die("the other side is gone (hear: %s)", n == 0 ? "EOF" : strerrorname_np(errno));
    return value;
}

bool Peer::heard(std::uint64_t *value) const
{
    char byte;
    if (::recv(control, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
        return false;
    *value = hear();
    return true;
}

bool Peer::both(bool here) const
{
    tell(here ? 1 : 0);
    return hear() != 0 && here;
}

void Peer::step() const
{
    tell(0);
    hear();
}

sockaddr_storage Peer::address(socklen_t *len) const
{
    sockaddr_storage all{};
    if (family == Family::kInet4) {
        auto *in = reinterpret_cast<sockaddr_in *>(&all);
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (at != nullptr && inet_pton(AF_INET, at, &in->sin_addr) != 1)
            die("--at %s: no IPv4 address", at);
        in->sin_port = htons(port);
        *len = sizeof *in;
    } else {
        auto *in6 = reinterpret_cast<sockaddr_in6 *>(&all);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        *len = sizeof *in6;
        if (at != nullptr && inet_pton(AF_INET6, at, &in6->sin6_addr) != 1)
            die("--at %s: no IPv6 address", at);
        if (at != nullptr)
            return all;
        if (family == Family::kInet6)
            in6->sin6_addr = in6addr_loopback;
        else if (!server)
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &in6->sin6_addr);
    }
    return all;
}

void Peer::open_listener()
{
    if (!server) {
        port = static_cast<std::uint16_t>(hear());
        return;
    }
    listener = must(::socket(family == Family::kInet4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    socklen_t len;
    sockaddr_storage addr = address(&len);
    must(::bind(listener, reinterpret_cast<sockaddr *>(&addr), len), "bind");
    must(::listen(listener, 4096), "listen");
    must(::getsockname(listener, reinterpret_cast<sockaddr *>(&addr), &len), "getsockname");
    port = ntohs(reinterpret_cast<sockaddr_in *>(&addr)->sin_port);
    tell(port);
}

int Peer::connect_plain()
{
    int fd;
    if (server) {
        fd = must(::accept(listener, nullptr, nullptr), "accept");
    } else {
        fd = must(::socket(family == Family::kInet4 ? AF_INET : AF_INET6, SOCK_STREAM, 0), "socket");
        socklen_t len;
        const sockaddr_storage addr = address(&len);
        must(::connect(fd, reinterpret_cast<const sockaddr *>(&addr), len), "connect");
    }
    const int on = 1;
    must(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    return fd;
}

namespace {

// True when this process's debug log has a line about the descriptor, and the port if it tells addresses, that says
// "accelerated" but not "not accelerated".
bool log_says_accelerated(int socket, unsigned port)
{
    const char *pattern = std::getenv("VMA_LOG_FILE");
    if (pattern == nullptr)
        die("FABTEST_LIFT without VMA_LOG_FILE");
    std::string path = pattern;
    if (const auto at = path.find("%d"); at != std::string::npos)
        path.replace(at, 2, std::to_string(::getpid()));
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    std::string text;
    char chunk[16384];
    for (ssize_t n; (n = ::read(fd, chunk, sizeof chunk)) > 0;)
        text.append(chunk, static_cast<std::size_t>(n));
    ::close(fd);

    const std::string descriptor = "fd=" + std::to_string(socket), end_point = ":" + std::to_string(port);
    const auto names = [](const std::string &line, const std::string &number) {
        const std::size_t at = line.find(number);
        return at != std::string::npos && (line[at + number.size()] < '0' || line[at + number.size()] > '9');
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos)
            break;
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.find("accelerated") == std::string::npos || line.find("not accelerated") != std::string::npos)
            continue;
        if (names(line, descriptor) && (line.find("->") == std::string::npos || names(line, end_point)))
            return true;
    }
    return false;
}

} // namespace

bool Peer::is_offloaded(int fd) const
{
    if (!offload_expected())
        return true;
    sockaddr_storage addr{};
    socklen_t len = sizeof addr;
    must(server ? ::getpeername(fd, reinterpret_cast<sockaddr *>(&addr), &len)
                : ::getsockname(fd, reinterpret_cast<sockaddr *>(&addr), &len),
         "address of the client");
    return log_says_accelerated(fd, ntohs(reinterpret_cast<sockaddr_in *>(&addr)->sin_port));
}

void Peer::offload(int fd) const
{
    constexpr char kMore = 'm', kEnd = 'e', kYes = 'y', kNo = 'n';
    bool seen = false;
    unsigned after = 0; // exchanges since both sides saw it
    timespec start{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        char byte = 0;
        seen = seen || is_offloaded(fd);
        if (server) {
            receive_all(fd, &byte, 1);
            const char answer = seen ? kYes : kNo;
            send_all(fd, &answer, 1);
            if (byte == kEnd)
                return;
            continue;
        }
        const char question = after >= 40 ? kEnd : kMore;
        send_all(fd, &question, 1);
        receive_all(fd, &byte, 1);
        if (question == kEnd)
            return;
        if (seen && byte == kYes)
            ++after;
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > patience::seconds())
            die("not accelerated: client says %s, server says %s", seen ? "yes" : "no", byte == kYes ? "yes" : "no");
    }
}

Peer parse_peer(int *argc, char **argv)
{
    Peer peer;
    int kept = 1;
    for (int i = 1; i < *argc; ++i) {
        const std::string arg = argv[i];
        const std::string value = i + 1 < *argc ? argv[i + 1] : "";
        if (arg == "server" || arg == "client") {
            peer.server = arg == "server";
        } else if (arg == "--control") {
            peer.control = std::atoi(value.c_str());
            ++i;
        } else if (arg == "--family") {
            peer.family = value == "6" ? Family::kInet6 : value == "mapped" ? Family::kMapped : Family::kInet4;
            ++i;
        } else if (arg == "--at") {
            peer.at = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    const timeval limit{patience::seconds(), 0};
    must(::setsockopt(peer.control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "--control");
    return peer;
}

namespace {

struct Task {
    char state = '?';
    unsigned long ran = 0; // ticks
};

Task look_at(pid_t task)
{
    const std::string path = "/proc/self/task/" + std::to_string(task) + "/stat";
    std::FILE *const file = std::fopen(path.c_str(), "re");
    if (file == nullptr)
        die("%s can't be read", path.c_str());
    Task seen;
    unsigned long user = 0, system = 0;
    const int found = std::fscanf(file, "%*d (%*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &seen.state,
                                  &user, &system);
    std::fclose(file);
    if (found != 3)
        die("%s has another form", path.c_str());
    seen.ran = user + system;
    return seen;
}

} // namespace

void await_waiting(pid_t task)
{
    constexpr timespec kPause = {0, 1'000'000};
    constexpr unsigned kAsleep = 5;    // looks in a row: not for a lock, or a page
    constexpr unsigned long kLong = 2; // ticks: the second is a whole one
    const unsigned long before = look_at(task).ran;
    for (unsigned asleep = 0; asleep < kAsleep;) {
        const Task seen = look_at(task);
        if (seen.ran - before >= kLong)
            return;
        asleep = seen.state == 'S' ? asleep + 1 : 0;
        ::nanosleep(&kPause, nullptr);
    }
}

void send_all(int fd, const void *buf, std::size_t len)
{
    const char *at = static_cast<const char *>(buf);
    while (len > 0) {
        const ssize_t n = ::send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            die("send: %s", strerrorname_np(errno));
        }
        at += n;
        len -= static_cast<std::size_t>(n);
    }
}

void receive_all(int fd, void *buf, std::size_t len)
{
    char *at = static_cast<char *>(buf);
    while (len > 0) {
        const ssize_t n = ::recv(fd, at, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            die("recv: %s", strerrorname_np(errno));
        }
        if (n == 0)
            die("recv: end of the stream with %zu bytes missing", len);
        at += n;
        len -= static_cast<std::size_t>(n);
    }
}

namespace {

// One byte, with room for one descriptor.
struct Parcel {
    char byte = 'd';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};

    Parcel()
    {
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
    }
    Parcel(const Parcel &) = delete;
    Parcel &operator=(const Parcel &) = delete;
};

} // namespace

void give_descriptor(int over, int fd)
{
    Parcel parcel;
    cmsghdr *const header = CMSG_FIRSTHDR(&parcel.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    must(static_cast<int>(::sendmsg(over, &parcel.message, 0)), "SCM_RIGHTS");
}

int take_descriptor(int over)
{
    Parcel parcel;
    must(static_cast<int>(::recvmsg(over, &parcel.message, 0)), "SCM_RIGHTS");
    const cmsghdr *const header = CMSG_FIRSTHDR(&parcel.message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
        die("no descriptor came");
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

} // namespace fabtest
