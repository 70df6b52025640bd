// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/sockets/programs/bad_pointers/contents.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <cstdint>
#include <cstring>

#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

namespace {

constexpr std::size_t kBytes = 8;
constexpr std::uint64_t kMask = 0; // the kernel's, of no signal
char g_bytes[2][kBytes] = {"1234567", "abcdefg"};
iovec g_parts[2] = {{g_bytes[0], kBytes}, {g_bytes[1], kBytes}};
const void *g_masked[2] = {&kMask, reinterpret_cast<const void *>(kBytes)};
char g_true[] = "true";
char *g_arguments[2] = {g_true, nullptr};

template <typename T> std::string as_bytes(const T &thing)
{
    return {reinterpret_cast<const char *>(&thing), sizeof thing};
}

std::string text(const char *words)
{
    return {words, std::strlen(words) + 1};
}

msghdr message()
{
    msghdr made = {};
    made.msg_iov = g_parts;
    made.msg_iovlen = 2;
    return made;
}

std::string address()
{
    sockaddr_in made = {};
    made.sin_family = AF_INET;
    made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    made.sin_port = htons(9); // nobody listens there
    return as_bytes(made);
}

std::string set_of(int fd)
{
    fd_set made;
    FD_ZERO(&made);
    if (fd >= 0 && fd < 64)
        FD_SET(fd, &made);
    return as_bytes(made).substr(0, kBytes); // 64 descriptors
}

std::string event_of(int fd)
{
    epoll_event made = {};
    made.events = EPOLLIN;
    made.data.fd = fd;
    return as_bytes(made);
}

std::string copying_process()
{
    clone_args made = {};
    made.flags = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_FS | CLONE_THREAD | CLONE_PARENT |
                 CLONE_NEWNS; // which the kernel refuses
    return as_bytes(made).substr(0, CLONE_ARGS_SIZE_VER0);
}

std::string lock()
{
    struct flock made = {};
    made.l_type = F_WRLCK;
    return as_bytes(made);
}

std::string of_waits(const std::string &name, const Descriptors &d)
{
    if (name == "pollfd")
        return as_bytes(pollfd{d.fd, POLLIN, 0});
    if (name == "fdset")
        return set_of(d.fd);
    if (name == "event")
        return event_of(d.fd);
    if (name == "timespec")
        return as_bytes(timespec{});
    if (name == "timeval")
        return as_bytes(timeval{});
    if (name == "mask")
        return as_bytes(kMask);
    if (name == "masked")
        return as_bytes(g_masked);
    if (name == "badly_masked")
        return as_bytes(std::uintptr_t{1}) + as_bytes(kBytes);
    die("no content %s", name.c_str());
}

std::string of_programs(const std::string &name, const Descriptors &d)
{
    if (name == "path")
        return text("/dev/null");
    if (name == "missing")
        return text("/none/there");
    if (name == "program")
        return text("/bin/true");
    if (name == "mode")
        return text("r");
    if (name == "argv")
        return as_bytes(g_arguments);
    if (name == "list")
        return as_bytes(std::uintptr_t{0});
    if (name == "arguments")
        return std::string(sizeof(va_list), 0);
    if (name == "clone_args")
        return copying_process();
    if (name == "action")
        return std::string(sizeof(struct sigaction), 0);
    return of_waits(name, d);
}

} // namespace

std::string content(const std::string &name, const Descriptors &d)
{
    if (name == "bytes")
        return as_bytes(g_bytes[0]);
    if (name == "iov")
        return as_bytes(g_parts);
    if (name == "msg")
        return as_bytes(message());
    if (name == "mmsg")
        return as_bytes(mmsghdr{message(), 0});
    if (name == "addr")
        return address();
    if (name == "len")
        return as_bytes(static_cast<socklen_t>(kBytes));
    if (name == "int")
        return as_bytes(0);
    if (name == "offset" || name == "pair")
        return as_bytes(std::uint64_t{0});
    if (name == "flock")
        return lock();
    if (name == "storage")
        return std::string(sizeof(sockaddr_storage), 0);
    return of_programs(name, d);
}

} // namespace fabtest
