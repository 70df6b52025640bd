// SPDX-License-Identifier: BSD-2-Clause
// What stands unread in a ring when the reader gives its socket back to the kernel (fork, an option that only the
// kernel has, a ring that is full for long) has to be sent again, and the kernel has no room for it. Then the sender
// ends: shut down, closed, exited, killed.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "fabtests/sockets/programs/conserve/conserve.hpp"
#include "fabtests/sockets/programs/pattern.hpp"

namespace conserve {

using fabtest::die;
using fabtest::must;
using fabtest::Peer;

namespace {

constexpr std::size_t kMost = 4 << 20; // where nothing else is the limit
constexpr std::size_t kPiece = 16384;
constexpr double kPaced = 2;        // seconds
constexpr timeval kAsks{0, 400000}; // a send waits as long

struct Case {
    std::string back; // fork, pin, ask: why the reader gives the socket back
    std::string end;  // shutdown, close, exit, kill, stop-kill, stop-continue
    int send_buffer, receive_buffer;
    std::uint64_t pace; // bytes a second; 0: no limit

    bool stops() const { return end.rfind("stop", 0) == 0; }
    bool kills() const { return end == "kill" || end == "stop-kill"; }
};

const fabtest::Pattern kBytes(18);

double now()
{
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void set_buffer(int fd, int name, int bytes)
{
    if (bytes != 0)
        must(::setsockopt(fd, SOL_SOCKET, name, &bytes, sizeof bytes), "buffer");
}

ssize_t send_piece(int fd, std::uint64_t position, int flags)
{
    static char bytes[kPiece];
    kBytes.fill(position, bytes, sizeof bytes);
    return ::send(fd, bytes, sizeof bytes, flags | MSG_NOSIGNAL);
}

// All that goes without waiting; a limited rate makes it wait all the same.
std::uint64_t fill(int fd, std::uint64_t pace)
{
    const double until = now() + kPaced;
    for (std::uint64_t sent = 0;;) {
        const ssize_t n = send_piece(fd, sent, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            die("send: %s", strerrorname_np(errno));
        if (n > 0)
            sent += static_cast<std::uint64_t>(n);
        if (sent >= kMost || (n < 0 && (pace == 0 || now() > until)))
            return sent;
        if (n < 0)
            ::usleep(1000);
    }
}

void wait_until_stopped(pid_t pid)
{
    for (std::string text; text != "T";) {
        std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
        std::string skipped;
        if (!(file >> skipped >> skipped >> text))
            die("the sender has gone");
    }
}

// Tells how much it has sent, then ends: what it is told by must come before.
int sender(Peer &me, const Case &c)
{
    const int fd = me.connect_plain();
    set_buffer(fd, SO_SNDBUF, c.send_buffer);
    me.offload(fd);
    if (c.pace != 0)
        must(::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &c.pace, sizeof c.pace), "SO_MAX_PACING_RATE");
    std::uint64_t sent = fill(fd, c.pace);
    me.tell(static_cast<std::uint64_t>(::getpid()));
    if (c.back == "ask") { // nobody reads
        must(::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kAsks, sizeof kAsks), "SO_SNDTIMEO");
        const ssize_t n = send_piece(fd, sent, 0);
        sent += n > 0 ? static_cast<std::uint64_t>(n) : 0;
    }
    me.tell(sent);
    if (c.stops())
        ::raise(SIGSTOP);
    else
        me.step(); // the reader has given the socket back, or is about to
    if (c.end == "kill")
        ::raise(SIGKILL);
    if (c.end == "exit")
        ::_exit(0);
    if (c.end == "shutdown")
        must(::shutdown(fd, SHUT_WR), "shutdown");
    else
        must(::close(fd), "close");
    me.tell(0);
    me.hear(); // the reader is through
    return 0;
}

void give_back(int fd, const std::string &how)
{
    if (how == "pin") {
        const int one = 1;
        must(::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one), "SO_RCVLOWAT");
    } else if (how == "fork") {
        const pid_t child = must(::fork(), "fork");
        if (child == 0)
            ::_exit(0);
        must(::waitpid(child, nullptr, 0), "waitpid");
    }
}

void judge(const Case &c, std::uint64_t sent, std::uint64_t received, ssize_t end, int error)
{
    const char *const name = end == 0 ? "EOF" : strerrorname_np(error);
    std::printf("sent %llu, received %llu, then %s\n", static_cast<unsigned long long>(sent),
                static_cast<unsigned long long>(received), name);
    if (received > sent && !c.kills())
        die("more than was sent");
    if (end == 0 && received < sent)
        die("a clean end after %llu of %llu bytes", static_cast<unsigned long long>(received),
            static_cast<unsigned long long>(sent));
    if (end < 0 && !c.kills())
        die("%s, and nobody was killed", name);
}

int reader(Peer &me, const Case &c)
{
    const int fd = me.connect_plain();
    set_buffer(fd, SO_RCVBUF, c.receive_buffer);
    me.offload(fd);
    const auto other = static_cast<pid_t>(me.hear());
    const std::uint64_t sent = me.hear();
    if (c.stops())
        wait_until_stopped(other);
    give_back(fd, c.back);
    if (c.stops())
        ::kill(other, c.kills() ? SIGKILL : SIGCONT);
    else
        me.step();
    if (!c.kills() && c.end != "exit")
        me.hear(); // it has ended
    else
        ::usleep(100000); // so that its last bytes come before this side reads, or while it does
    std::uint64_t received = 0;
    static char bytes[kPiece];
    ssize_t n;
    while ((n = ::recv(fd, bytes, sizeof bytes, 0)) > 0) {
        const auto len = static_cast<std::size_t>(n);
        if (const std::size_t good = kBytes.check(received, bytes, len); good != len)
            die("wrong byte at %llu, of which the place is %lld", static_cast<unsigned long long>(received) + good,
                static_cast<long long>(kBytes.find(bytes + good, len - good, sent)));
        received += len;
    }
    judge(c, sent, received, n, errno);
    if (!c.kills() && c.end != "exit")
        me.tell(0);
    return 0;
}

} // namespace

int unread(Peer &me, char **argv)
{
    const Case c{argv[0], argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10)};
    me.open_listener();
    return me.server ? reader(me, c) : sender(me, c);
}

} // namespace conserve
