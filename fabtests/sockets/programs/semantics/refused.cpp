// SPDX-License-Identifier: BSD-2-Clause
// What is refused, and with which error: each call on each kind of descriptor with each kind of wrong argument, a table
// that is made by loops. Nothing of it may reach the peer, or take what came from it.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>

#include <climits>
#include <map>
#include <vector>

#include "fabtests/sockets/programs/semantics/refused.hpp"

namespace {

using namespace fabtest;

template <typename T> T *null() // which the compiler can't see
{
    static void *volatile nowhere = nullptr;
    return static_cast<T *>(nowhere);
}

struct Fixture {
    char buffer[4096] = {};
    iovec parts[IOV_MAX + 1] = {};
    sockaddr_storage name = {};
    Fixture()
    {
        for (iovec &part : parts)
            part = {buffer, 1};
    }
};
Fixture g_have;

msghdr message(iovec *parts, std::size_t count)
{
    msghdr made = {};
    made.msg_iov = parts;
    made.msg_iovlen = count;
    return made;
}

// Each result with the descriptors that give it: short, and every one is compared.
void show_table(const Side &me, const std::vector<Row> &rows,
                const std::vector<std::pair<std::string, int>> &descriptors)
{
    for (const Row &row : rows) {
        std::map<std::string, std::string> by_result;
        for (const auto &[kind, fd] : descriptors) {
            errno = 0;
            const long result = row.call(fd);
            const std::string text = result < 0 ? strerrorname_np(errno) : std::to_string(result);
            by_result[text].append(" ").append(kind);
        }
        std::string line = row.name + ":";
        for (const auto &[result, kinds] : by_result)
            line.append(" [").append(result).append(kinds).append("]");
        me.say("%s", line.c_str());
    }
}

constexpr int kUnknownFlags = 0x00800000;

void add_vectors(std::vector<Row> &rows)
{
    for (const int count : {-1, 0, 1024, 1025, INT_MAX, INT_MIN}) {
        const std::string tail = " of " + std::to_string(count) + " parts";
        if (count != 1024) {
            rows.push_back({"writev" + tail, [=](int fd) { return ::writev(fd, g_have.parts, count); }});
            rows.push_back({"pwritev2" + tail, [=](int fd) { return ::pwritev2(fd, g_have.parts, count, -1, 0); }});
        }
        rows.push_back({"readv" + tail, [=](int fd) { return ::readv(fd, g_have.parts, count); }});
        rows.push_back({"preadv2" + tail, [=](int fd) { return ::preadv2(fd, g_have.parts, count, -1, 0); }});
    }
    for (const std::size_t count : {std::size_t{1025}, std::size_t{SIZE_MAX}}) {
        const std::string tail = " of " + std::to_string(count) + " parts";
        rows.push_back({"sendmsg" + tail, [=](int fd) {
                            const msghdr m = message(g_have.parts, count);
                            return ::sendmsg(fd, &m, 0);
                        }});
        rows.push_back({"recvmsg" + tail, [=](int fd) {
                            msghdr m = message(g_have.parts, count);
                            return ::recvmsg(fd, &m, MSG_DONTWAIT);
                        }});
    }
    for (const std::size_t size : {std::size_t{SSIZE_MAX}, std::size_t{SSIZE_MAX} + 1, std::size_t{SIZE_MAX}}) {
        const std::string tail = " with a part of " + std::to_string(size);
        rows.push_back({"writev" + tail, [=](int fd) {
                            const iovec two[] = {{g_have.buffer, 1}, {g_have.buffer, size}};
                            return ::writev(fd, two, 2);
                        }});
        rows.push_back({"readv" + tail, [=](int fd) {
                            const iovec two[] = {{g_have.buffer, 1}, {g_have.buffer, size}};
                            return ::readv(fd, two, 2);
                        }});
        rows.push_back({"sendmsg" + tail, [=](int fd) {
                            iovec two[] = {{g_have.buffer, 1}, {g_have.buffer, size}};
                            const msghdr m = message(two, 2);
                            return ::sendmsg(fd, &m, 0);
                        }});
        rows.push_back({"recvmsg" + tail, [=](int fd) {
                            iovec two[] = {{g_have.buffer, 1}, {g_have.buffer, size}};
                            msghdr m = message(two, 2);
                            return ::recvmsg(fd, &m, MSG_DONTWAIT);
                        }});
    }
}

void add_nowhere(std::vector<Row> &rows)
{
    for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{INT_MAX}, std::size_t{SIZE_MAX}}) {
        const std::string tail = " of " + std::to_string(size) + " at nullptr";
        rows.push_back({"read" + tail, [=](int fd) { return ::read(fd, null<char>(), size); }});
        rows.push_back({"recv" + tail, [=](int fd) { return ::recv(fd, null<char>(), size, MSG_DONTWAIT); }});
        rows.push_back(
            {"recv PEEK" + tail, [=](int fd) { return ::recv(fd, null<char>(), size, MSG_DONTWAIT | MSG_PEEK); }});
        rows.push_back({"write" + tail, [=](int fd) { return size == 0 ? 0 : ::write(fd, null<char>(), size); }});
        rows.push_back(
            {"send" + tail, [=](int fd) { return size == 0 ? 0 : ::send(fd, null<char>(), size, MSG_DONTWAIT); }});
        rows.push_back({"writev" + tail, [=](int fd) {
                            const iovec one = {null<char>(), size};
                            return ::writev(fd, &one, 1);
                        }});
        rows.push_back({"readv" + tail, [=](int fd) {
                            const iovec one = {null<char>(), size};
                            return ::readv(fd, &one, 1);
                        }});
    }
    rows.push_back({"writev nullptr", [](int fd) { return ::writev(fd, null<iovec>(), 1); }});
    rows.push_back({"readv nullptr", [](int fd) { return ::readv(fd, null<iovec>(), 1); }});
    rows.push_back({"sendmsg nullptr", [](int fd) { return ::sendmsg(fd, null<msghdr>(), 0); }});
    rows.push_back({"recvmsg nullptr", [](int fd) { return ::recvmsg(fd, null<msghdr>(), MSG_DONTWAIT); }});
    rows.push_back({"sendmmsg nullptr", [](int fd) { return ::sendmmsg(fd, null<mmsghdr>(), 1, 0); }});
    rows.push_back(
        {"recvmmsg nullptr", [](int fd) { return ::recvmmsg(fd, null<mmsghdr>(), 1, MSG_DONTWAIT, nullptr); }});
    rows.push_back({"sendmmsg of none", [](int fd) { return ::sendmmsg(fd, null<mmsghdr>(), 0, 0); }});
    rows.push_back(
        {"recvmmsg of none", [](int fd) { return ::recvmmsg(fd, null<mmsghdr>(), 0, MSG_DONTWAIT, nullptr); }});
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        const std::string tail = " with " + std::to_string(count) + " parts at nullptr";
        rows.push_back({"recvmsg" + tail, [=](int fd) {
                            msghdr m = message(null<iovec>(), count);
                            return ::recvmsg(fd, &m, MSG_DONTWAIT);
                        }});
        if (count != 0)
            rows.push_back({"sendmsg" + tail, [=](int fd) {
                                const msghdr m = message(null<iovec>(), count);
                                return ::sendmsg(fd, &m, 0);
                            }});
    }
    rows.push_back({"connect nullptr", [](int fd) { return ::connect(fd, null<sockaddr>(), sizeof(sockaddr_in)); }});
#ifndef __SANITIZE_ADDRESS__ // whose own wrappers of these two read the length
    rows.push_back(
        {"getsockname nullptr", [](int fd) { return ::getsockname(fd, null<sockaddr>(), null<socklen_t>()); }});
    rows.push_back(
        {"getpeername nullptr", [](int fd) { return ::getpeername(fd, null<sockaddr>(), null<socklen_t>()); }});
#endif
    rows.push_back({"ioctl FIONREAD nullptr", [](int fd) { return ::ioctl(fd, FIONREAD, nullptr); }});
    rows.push_back({"ioctl FIONBIO nullptr", [](int fd) { return ::ioctl(fd, FIONBIO, nullptr); }});
    rows.push_back({"sendfile from nowhere", [](int fd) { return ::sendfile(fd, -1, nullptr, 10); }});
    rows.push_back(
        {"splice to nowhere", [](int fd) { return ::splice(fd, nullptr, -1, nullptr, 10, SPLICE_F_NONBLOCK); }});
    rows.push_back(
        {"splice from nowhere", [](int fd) { return ::splice(-1, nullptr, fd, nullptr, 10, SPLICE_F_NONBLOCK); }});
}

void add_lengths(std::vector<Row> &rows)
{
    static sockaddr_storage from = {};
    g_have.name.ss_family = AF_INET;
    auto *const name = reinterpret_cast<sockaddr *>(&g_have.name);
    auto *const into = reinterpret_cast<sockaddr *>(&from);
    for (const int length : {-1, 0, 1, 2, 15, 129, INT_MAX}) {
        const auto size = static_cast<socklen_t>(length);
        const std::string tail = " with a name of " + std::to_string(length);
        if (length != 0) // 0 would send
            rows.push_back({"sendto nothing" + tail,
                            [=](int fd) { return ::sendto(fd, g_have.buffer, 0, MSG_DONTWAIT, name, size); }});
        rows.push_back({"connect" + tail,
                        [=](int fd) { return ::connect(fd, name, length == 2 ? 1 : size); }}); // AF_UNSPEC dissolves
        rows.push_back({"recvfrom" + tail, [=](int fd) {
                            socklen_t room = size;
                            return ::recvfrom(fd, g_have.buffer, 1, MSG_DONTWAIT | MSG_PEEK, into, &room);
                        }});
        rows.push_back({"recvmsg" + tail, [=](int fd) {
                            msghdr m = message(g_have.parts, 1);
                            m.msg_name = into;
                            m.msg_namelen = size;
                            return ::recvmsg(fd, &m, MSG_DONTWAIT | MSG_PEEK);
                        }});
        rows.push_back({"getsockopt with a value of " + std::to_string(length), [=](int fd) {
                            socklen_t room = size;
                            return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, g_have.buffer, &room);
                        }});
        rows.push_back({"setsockopt with a value of " + std::to_string(length),
                        [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, g_have.buffer, size); }});
    }
}

void add_options(std::vector<Row> &rows)
{
    for (const int level : {-1, SOL_SOCKET, static_cast<int>(IPPROTO_IP), static_cast<int>(IPPROTO_TCP),
                            static_cast<int>(IPPROTO_UDP), 4711})
        for (const int option : {-1, 9999}) {
            const std::string tail = " " + std::to_string(level) + " " + std::to_string(option);
            rows.push_back({"getsockopt" + tail, [=](int fd) {
                                socklen_t room = 4;
                                return ::getsockopt(fd, level, option, g_have.buffer, &room);
                            }});
            rows.push_back({"getsockopt" + tail + " nullptr",
                            [=](int fd) { return ::getsockopt(fd, level, option, null<char>(), null<socklen_t>()); }});
            rows.push_back(
                {"setsockopt" + tail, [=](int fd) { return ::setsockopt(fd, level, option, g_have.buffer, 4); }});
            rows.push_back({"setsockopt" + tail + " nullptr",
                            [=](int fd) { return ::setsockopt(fd, level, option, null<char>(), 4); }});
        }
    for (const int option :
         {SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT, SO_LINGER, SO_RCVBUF, SO_TYPE, SO_MAX_PACING_RATE}) {
        const std::string tail = " " + std::to_string(option);
        rows.push_back({"setsockopt SOL_SOCKET" + tail + " nullptr",
                        [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, option, null<char>(), 16); }});
        rows.push_back({"setsockopt SOL_SOCKET" + tail + " of 3",
                        [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, option, g_have.buffer, 3); }});
        rows.push_back({"getsockopt SOL_SOCKET" + tail + " nullptr", [=](int fd) {
                            socklen_t room = 16;
                            return ::getsockopt(fd, SOL_SOCKET, option, null<char>(), &room);
                        }});
        rows.push_back({"getsockopt SOL_SOCKET" + tail + " no length", [=](int fd) {
                            return ::getsockopt(fd, SOL_SOCKET, option, g_have.buffer, null<socklen_t>());
                        }});
    }
    for (const int command : {-1, 99, F_GETLK})
        rows.push_back({"fcntl " + std::to_string(command), [=](int fd) { return ::fcntl(fd, command, nullptr); }});
    for (const int how : {-1, 3, 7})
        rows.push_back({"shutdown " + std::to_string(how), [=](int fd) { return ::shutdown(fd, how); }});
    rows.push_back({"dup2 to -1", [](int fd) { return ::dup2(fd, -1); }});
    rows.push_back({"dup3 with flags", [](int fd) { return ::dup3(fd, 200, 1); }});
    rows.push_back({"dup3 to itself", [](int fd) { return ::dup3(fd, fd, 0); }});
    rows.push_back({"close_range backwards", [](int) { return ::close_range(300, 200, 0); }});
    rows.push_back({"accept4 with flags", [](int fd) { return ::accept4(fd, nullptr, nullptr, 1); }});
}

void add_flags(std::vector<Row> &rows)
{
    for (const int flags :
         std::initializer_list<int>{MSG_ERRQUEUE, MSG_OOB, MSG_ERRQUEUE | MSG_OOB, MSG_PEEK | kUnknownFlags,
                                    MSG_PEEK | MSG_TRUNC, MSG_PEEK | MSG_WAITALL})
        rows.push_back({"recv with flags " + std::to_string(flags),
                        [=](int fd) { return ::recv(fd, g_have.buffer, 1, flags | MSG_DONTWAIT); }});
    for (const int flags : {1 << 30, RWF_HIPRI, RWF_APPEND, RWF_DSYNC | (1 << 20)}) {
        rows.push_back({"preadv2 with flags " + std::to_string(flags),
                        [=](int fd) { return ::preadv2(fd, g_have.parts, 0, -1, flags); }});
        rows.push_back({"preadv2 at 0 with flags " + std::to_string(flags),
                        [=](int fd) { return ::preadv2(fd, g_have.parts, 1, 0, flags); }});
        rows.push_back({"pwritev2 at -2 with flags " + std::to_string(flags),
                        [=](int fd) { return ::pwritev2(fd, g_have.parts, 1, -2, flags); }});
    }
}

constexpr std::size_t kControlSize = 80;

void add_control(std::vector<Row> &rows)
{
    alignas(cmsghdr) static char garbage[kControlSize];
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{1}, sizeof(cmsghdr) - 1, kControlSize + 1, std::size_t{SIZE_MAX}})
        for (const int level : {SOL_SOCKET, static_cast<int>(IPPROTO_IP), 4711}) {
            rows.push_back(
                {"sendmsg with control of " + std::to_string(length) + " at " + std::to_string(level), [=](int fd) {
                     const cmsghdr header = {length, level, 99};
                     std::memcpy(garbage, &header, sizeof header);
                     msghdr m = message(g_have.parts, 1);
                     m.msg_control = garbage;
                     m.msg_controllen = sizeof garbage;
                     return ::sendmsg(fd, &m, MSG_DONTWAIT | (level == 4711 ? MSG_MORE : 0)) > 0 ? 1L : -1L;
                 }});
        }
    rows.push_back({"sendmsg with control at nullptr", [](int fd) {
                        msghdr m = message(g_have.parts, 1);
                        m.msg_control = null<char>();
                        m.msg_controllen = 32;
                        return ::sendmsg(fd, &m, MSG_DONTWAIT) > 0 ? 1L : -1L;
                    }});
    rows.push_back({"sendmsg with much control", [](int fd) {
                        msghdr m = message(g_have.parts, 1);
                        m.msg_control = g_have.buffer;
                        m.msg_controllen = std::size_t{INT_MAX} + 1;
                        return ::sendmsg(fd, &m, MSG_DONTWAIT) > 0 ? 1L : -1L;
                    }});
}

void add_waits(std::vector<Row> &rows)
{
    static epoll_event event = {EPOLLIN, {}};
    rows.push_back({"poll of too many at nullptr", [](int) { return ::poll(null<pollfd>(), nfds_t{1} << 30, 0); }});
    rows.push_back({"poll of 1 at nullptr", [](int) { return ::poll(null<pollfd>(), 1, 0); }});
    rows.push_back({"poll", [](int fd) {
                        pollfd p = {fd, static_cast<short>(0x4000), 0};
                        return ::poll(&p, 1, 0) < 0 ? -1L : static_cast<long>(p.revents);
                    }});
    for (const timespec wrong : {timespec{-1, 0}, timespec{0, -1}, timespec{0, 1000000000}}) {
        const std::string tail = " for " + std::to_string(wrong.tv_sec) + " " + std::to_string(wrong.tv_nsec);
        rows.push_back({"ppoll" + tail, [=](int fd) {
                            pollfd p = {fd, POLLIN, 0};
                            return ::ppoll(&p, 1, &wrong, nullptr);
                        }});
        rows.push_back({"pselect" + tail, [=](int fd) {
                            fd_set set;
                            FD_ZERO(&set);
                            if (fd >= 0 && fd < FD_SETSIZE)
                                FD_SET(fd, &set);
                            return ::pselect(FD_SETSIZE, &set, nullptr, nullptr, &wrong, nullptr);
                        }});
    }
    for (const int count : {-1, INT_MIN})
        rows.push_back({"select of " + std::to_string(count),
                        [=](int) { return ::select(count, nullptr, nullptr, nullptr, nullptr); }});
    for (const int operation : {0, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, 4}) {
        rows.push_back({"epoll_ctl on it, " + std::to_string(operation),
                        [=](int fd) { return ::epoll_ctl(fd, operation, STDIN_FILENO, &event); }});
        rows.push_back({"epoll_ctl of it nullptr, " + std::to_string(operation), [=](int fd) {
                            const int set = ::epoll_create1(0);
                            const long result = ::epoll_ctl(set, operation, fd, null<epoll_event>());
                            const int saved = errno;
                            ::close(set);
                            errno = saved;
                            return result;
                        }});
        rows.push_back({"epoll_ctl of it, " + std::to_string(operation), [=](int fd) {
                            const int set = ::epoll_create1(0);
                            const long result = ::epoll_ctl(set, operation, fd, &event);
                            const int saved = errno;
                            ::close(set);
                            errno = saved;
                            return result;
                        }});
    }
    for (const int most : {-1, 0, INT_MAX})
        rows.push_back({"epoll_wait on a set with it, for " + std::to_string(most), [=](int fd) {
                            const int set = ::epoll_create1(0);
                            event = {EPOLLPRI, {}};
                            ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
                            const long result = ::epoll_wait(set, null<epoll_event>(), most, 0);
                            const int saved = errno;
                            ::close(set);
                            event = {EPOLLIN, {}};
                            errno = saved;
                            return result;
                        }});
    rows.push_back({"epoll_wait on it", [](int fd) { return ::epoll_wait(fd, &event, 1, 0); }});
}

// A UDP socket that is connected to another one of this process, in use for long enough to be accelerated.
int connected_flow()
{
    int ends[2] = {};
    sockaddr_in names[2] = {};
    for (int i = 0; i < 2; ++i) {
        socklen_t length = sizeof names[i];
        names[i].sin_family = AF_INET;
        names[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ends[i] = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
        must(::bind(ends[i], reinterpret_cast<sockaddr *>(&names[i]), sizeof names[i]), "bind");
        must(::getsockname(ends[i], reinterpret_cast<sockaddr *>(&names[i]), &length), "getsockname");
    }
    for (int i = 0; i < 2; ++i)
        must(::connect(ends[i], reinterpret_cast<sockaddr *>(&names[1 - i]), sizeof names[i]), "connect");
    char byte = 0;
    for (int i = 0; i < 200; ++i) {
        must(static_cast<int>(::send(ends[i % 2], "x", 1, 0)), "send");
        must(static_cast<int>(::recv(ends[1 - i % 2], &byte, 1, 0)), "recv");
    }
    set_nonblocking(ends[0], true);
    return ends[0];
}

std::vector<std::pair<std::string, int>> descriptors(const Side &me)
{
    static int pipe_ends[2];
    must(::pipe2(pipe_ends, O_NONBLOCK), "pipe2");
    ::signal(SIGPIPE, SIG_IGN);
    const int one = must(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), "socket");
    const int flow = connected_flow();
    const int other = must(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
    const int closed = must(::fcntl(one, F_DUPFD, 900), "F_DUPFD");
    ::close(closed);
    return {{"tcp", me.fd},         {"udp", one}, {"flow", flow},     {"unconnected", other},
            {"pipe", pipe_ends[0]}, {"-1", -1},   {"closed", closed}, {"huge", INT_MAX}};
}

} // namespace

void fabtest::compare(const Side &me, void (*add)(std::vector<Row> &))
{
    set_nonblocking(me.fd, true);
    if (!me.server) {
        std::vector<Row> rows;
        add(rows);
        show_table(me, rows, descriptors(me));
    }
    me.step();
    set_nonblocking(me.fd, false);
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
    me.say("came: %zu", drain(me.fd));
}

void fabtest::compare_with_bytes_there(const Side &me, void (*add)(std::vector<Row> &))
{
    if (me.server)
        send_text(me.fd, "0123456789");
    else
        await_readable(me.fd, 10);
    compare(me, add);
}

SCENARIO(refused_vectors)
{
    compare(me, add_vectors);
}

SCENARIO(refused_pointers)
{
    compare(me, add_nowhere);
}

SCENARIO(refused_pointers_with_bytes_there)
{
    compare_with_bytes_there(me, add_nowhere);
}

SCENARIO(refused_lengths)
{
    compare(me, add_lengths);
}

SCENARIO(refused_options)
{
    compare(me, add_options);
}

SCENARIO(refused_flags)
{
    compare(me, add_flags);
}

SCENARIO(refused_control)
{
    compare(me, add_control);
}

SCENARIO(refused_waits)
{
    compare(me, add_waits);
}
