// SPDX-License-Identifier: BSD-2-Clause
// The forms of a soak's calls: see calls.hpp.
#include "fabtests/posix/programs/soak/calls.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabtests/posix/programs/soak/worker.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

using fabtest::Random;

sockaddr_storage loopback(unsigned family, std::uint16_t port, socklen_t *len)
{
    sockaddr_storage address{};
    auto *const in = reinterpret_cast<sockaddr_in *>(&address);
    auto *const in6 = reinterpret_cast<sockaddr_in6 *>(&address);
    *len = family == 0 ? sizeof *in : sizeof *in6;
    address.ss_family = family == 0 ? AF_INET : AF_INET6;
    in->sin_port = htons(port); // stands at one place in both
    if (family == 0)
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        in6->sin6_addr = in6addr_loopback;
    return address;
}

namespace {

// Another library's calls: libc's own, which no preload library sees by their names. The result is as read()'s and
// write()'s.
template <typename Move> ssize_t by_stream(int fd, const char *mode, const Move &move, int *error)
{
    std::FILE *const file = ::fdopen(fabtest::must(::dup(fd), "dup"), mode);
    if (file == nullptr)
        return -1;
    std::setvbuf(file, nullptr, _IONBF, 0); // what was moved is what is returned
    errno = 0;
    const std::size_t n = move(file);
    *error = std::ferror(file) != 0 ? errno : 0;
    std::fclose(file);
    errno = *error;
    if (n != 0 || *error == 0)
        return static_cast<ssize_t>(n);
    *error = 0; // it is the result
    return -1;
}

constexpr std::size_t kStdio = 4; // its form, of those that may wait

std::size_t choose(Random &random, std::size_t forms, const char *stdio)
{
    const std::size_t form = random.below(forms);
    return form == kStdio && left_out(stdio) ? 0 : form;
}

} // namespace

ssize_t receive_form(Random &random, int fd, char *bytes, std::size_t len, bool wait, const char **call)
{
    int error = 0;
    const std::size_t half = len / 2;
    iovec parts[2] = {{bytes, half}, {bytes + half, len - half}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const int flags = wait ? 0 : MSG_DONTWAIT;
    switch (choose(random, wait ? 7 : 3, "fread")) {
    case 0:
        *call = "recv";
        return ::recv(fd, bytes, len, flags);
    case 1:
        *call = "recvmsg";
        return ::recvmsg(fd, &message, flags);
    case 2: {
        *call = "recv PEEK";
        const ssize_t n = ::recv(fd, bytes, len, flags | MSG_PEEK);
        if (n <= 0)
            return n;
        std::memset(bytes, 0, static_cast<std::size_t>(n));
        return ::recv(fd, bytes, static_cast<std::size_t>(n), MSG_DONTWAIT);
    }
    case 3:
        *call = "read";
        return ::read(fd, bytes, len);
    case 4:
        *call = "fread";
        return by_stream(
            fd, "r", [bytes](std::FILE *file) { return std::fread(bytes, 1, 1, file); }, &error);
    case 5:
        *call = "readv";
        return ::readv(fd, parts, 2);
    default:
        *call = "recvfrom";
        return ::recvfrom(fd, bytes, len, 0, nullptr, nullptr);
    }
}

ssize_t send_form(Random &random, int fd, char *bytes, std::size_t len, bool wait, const char **call, int *behind)
{
    *behind = 0;
    const std::size_t third = len / 3;
    iovec parts[2] = {{bytes, third}, {bytes + third, len - third}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
    switch (choose(random, wait ? 6 : 3, "fwrite")) {
    case 0:
        *call = "send";
        return ::send(fd, bytes, len, flags);
    case 1:
        *call = "sendmsg";
        return ::sendmsg(fd, &message, flags);
    case 2:
        *call = "sendto";
        return ::sendto(fd, bytes, len, flags, nullptr, 0);
    case 3:
        *call = "write"; // SIGPIPE is ignored
        return ::write(fd, bytes, len);
    case 4:
        *call = "fwrite";
        return by_stream(
            fd, "w", [bytes, len](std::FILE *file) { return std::fwrite(bytes, 1, len, file); }, behind);
    default:
        *call = "writev";
        return ::writev(fd, parts, 2);
    }
}

bool wait_readable(Random &random, int fd, const char **call)
{
    pollfd one{fd, POLLIN, 0};
    const timespec limit{kPatience / 1000, 0};
    timeval select_limit{kPatience / 1000, 0};
    fd_set set;
    FD_ZERO(&set);
    const std::size_t choice = random.below(fd < FD_SETSIZE ? 5 : 3);
    if (fd < FD_SETSIZE)
        FD_SET(fd, &set);
    switch (choice) {
    case 0:
        *call = "poll";
        return ::poll(&one, 1, kPatience) > 0;
    case 1:
        *call = "ppoll";
        return ::ppoll(&one, 1, &limit, nullptr) > 0;
    case 2: {
        *call = "epoll_wait";
        const int set_fd = fabtest::must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
        epoll_event event{};
        event.events = EPOLLIN | (random.below(2) ? static_cast<unsigned>(EPOLLET) : 0U);
        fabtest::must(::epoll_ctl(set_fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
        int n = 0;
        do // SIGCONT interrupts it, of all calls that are used here
            n = ::epoll_wait(set_fd, &event, 1, kPatience);
        while (n < 0 && errno == EINTR);
        ::close(set_fd);
        return n > 0;
    }
    case 3:
        *call = "select";
        return ::select(fd + 1, &set, nullptr, nullptr, &select_limit) > 0;
    default:
        *call = "pselect";
        return ::pselect(fd + 1, &set, nullptr, nullptr, &limit, nullptr) > 0;
    }
}

} // namespace soak
