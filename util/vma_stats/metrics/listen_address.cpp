// SPDX-License-Identifier: BSD-2-Clause
// Loopback unless it is said otherwise: who reads the page sees which programs run.
#include "util/vma_stats/metrics/listen_address.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace vma_stats {

namespace {

constexpr int kBacklog = 64;

bool read_port(const std::string &text, std::uint16_t &port)
{
    char *end = nullptr;
    errno = 0;
    const long number = strtol(text.c_str(), &end, 10);
    if (text.empty() || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number > 65535)
        return false;
    port = static_cast<std::uint16_t>(number);
    return true;
}

template <typename Address> void put(const Address &address, ListenAddress &out)
{
    memcpy(&out.bytes, &address, sizeof address);
    out.length = sizeof address;
}

bool read_unix(const std::string &path, ListenAddress &out)
{
    sockaddr_un address = {};
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return false;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.c_str(), path.size());
    put(address, out);
    out.path = path;
    return true;
}

bool read_internet(const std::string &host, std::uint16_t port, ListenAddress &out)
{
    sockaddr_in v4 = {};
    sockaddr_in6 v6 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1)
        put(v4, out);
    else if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
             ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) == 1)
        put(v6, out);
    else
        return false;
    return true;
}

// Left by one that was killed: a socket, and nobody there.
void remove_dead(const ListenAddress &address)
{
    struct stat there = {};
    if (::lstat(address.path.c_str(), &there) != 0 || !S_ISSOCK(there.st_mode))
        return;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (::connect(fd, reinterpret_cast<const sockaddr *>(&address.bytes), address.length) != 0 && errno == ECONNREFUSED)
        ::unlink(address.path.c_str());
    ::close(fd);
}

} // namespace

bool read_listen_address(const std::string &word, ListenAddress &out)
{
    constexpr char kUnix[] = "unix:";
    if (word.compare(0, sizeof kUnix - 1, kUnix) == 0)
        return read_unix(word.substr(sizeof kUnix - 1), out);
    const std::size_t colon = word.rfind(':');
    const std::string host = colon == std::string::npos ? "localhost" : word.substr(0, colon);
    std::uint16_t port = 0;
    return read_port(colon == std::string::npos ? word : word.substr(colon + 1), port) &&
           read_internet(host == "localhost" ? "127.0.0.1" : host, port, out);
}

int open_listener(const ListenAddress &address)
{
    const int family = address.bytes.ss_family;
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const int on = 1;
    if (family == AF_UNIX)
        remove_dead(address);
    else
        ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, reinterpret_cast<const sockaddr *>(&address.bytes), address.length) == 0 &&
        ::listen(fd, kBacklog) == 0)
        return fd;
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
}

std::string describe_listener(int fd, const ListenAddress &address)
{
    if (!address.path.empty())
        return "unix:" + address.path;
    sockaddr_storage bound = address.bytes;
    socklen_t length = sizeof bound;
    ::getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length);
    char text[INET6_ADDRSTRLEN] = {};
    if (bound.ss_family == AF_INET) {
        const auto &v4 = reinterpret_cast<const sockaddr_in &>(bound);
        return std::string("http://") + ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text) + ":" +
               std::to_string(ntohs(v4.sin_port)) + "/metrics";
    }
    const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(bound);
    return std::string("http://[") + ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text) +
           "]:" + std::to_string(ntohs(v6.sin6_port)) + "/metrics";
}

} // namespace vma_stats
