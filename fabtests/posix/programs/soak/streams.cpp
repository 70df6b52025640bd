// SPDX-License-Identifier: BSD-2-Clause
// A soak's streams: connecting, accepting, sending, receiving in every form, ending. Each byte is checked where it
// stands; an end or an error has to have a reason that stands in the ledger.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/patience.hpp"
#include "fabtests/posix/programs/soak/calls.hpp"
#include "fabtests/posix/programs/soak/worker.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

using fabtest::Pattern;
using fabtest::Random;

namespace {

constexpr std::size_t kSmall = 64 << 10; // that much finds room with the kernel, whoever reads or not
constexpr std::size_t kMost = 1 << 20;
constexpr timeval kLittle{0, 20000};
constexpr std::size_t kHeldMost = 48; // descriptors of a process

Pattern pattern(unsigned stream, unsigned side)
{
    return Pattern((g_ledger->seed * kStreams + stream) * 2 + side);
}

char *buffer()
{
    static thread_local char bytes[kMost];
    return bytes;
}

int error_or(ssize_t result)
{
    return result < 0 ? -errno : static_cast<int>(result);
}

// An error of a call on `h` is one that its other end may have caused.
void check_error(const Held &h, const char *call, int error)
{
    if (error == EAGAIN || error == EINTR)
        return;
    if (error == ECONNREFUSED && !g_ledger->streams[h.stream].accepted)
        error = ECONNRESET; // of a connection that was made with its first bytes
    if (error != ECONNRESET && error != EPIPE)
        fail(h.stream, "%s on side %u: %s", call, h.side, strerrorname_np(error));
    if (g_ledger->streams[h.stream].accepted && !h.theirs().leaving)
        fail(h.stream, "%s on side %u: %s, and nobody has closed side %u", call, h.side, strerrorname_np(error),
             1 - h.side);
    h.mine().error_seen = true;
    ++g_ledger->totals.resets;
}

// What the kernel has of the connection: bytes in its queues, and timers.
void show_kernel(int fd)
{
    sockaddr_storage address{};
    socklen_t len = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &len) != 0)
        return;
    const std::string port =
        std::to_string(ntohs(reinterpret_cast<const sockaddr_in *>(&address)->sin_port)); // at one place in both
    show_sockets("'sport = :" + port + " or dport = :" + port + "'");
}

// The stream ended for its reader after `position` bytes.
void check_end(const Held &h, std::uint64_t position)
{
    const Flow &flow = h.in();
    if (!flow.shut && !h.theirs().leaving && g_ledger->streams[h.stream].accepted)
        fail(h.stream, "side %u read the end at %llu, and nobody has shut or closed side %u", h.side,
             static_cast<unsigned long long>(position), 1 - h.side);
    if (position > flow.intended)
        fail(h.stream, "side %u read %llu bytes of %llu", h.side, static_cast<unsigned long long>(position),
             static_cast<unsigned long long>(flow.intended.load()));
    // A reset takes bytes away; who has read its error sees an end next. Another process may be about to write that
    // down.
    const std::uint64_t until = since_start_us() + static_cast<std::uint64_t>(patience::nanoseconds()) / 1000;
    while (position < flow.sent && !h.mine().error_seen) {
        if (since_start_us() > until)
            fail(h.stream, "side %u read the end at %llu of %llu bytes, without an error", h.side,
                 static_cast<unsigned long long>(position), static_cast<unsigned long long>(flow.sent.load()));
        if (h.out().writer != 0 && is_dead(h.out().writer))
            return; // killed in a send that may have had the error
        ::usleep(1000);
    }
    ++g_ledger->totals.ends;
}

unsigned long long in_hex(const char (&bytes)[8])
{
    std::uint64_t value = 0;
    for (const char byte : bytes)
        value = value << 8 | static_cast<unsigned char>(byte);
    return value;
}

void check_bytes(const Held &h, const char *bytes, std::size_t len, std::uint64_t position)
{
    const Pattern want = pattern(h.stream, 1 - h.side);
    const std::size_t good = want.check(position, bytes, len);
    if (good == len && position + len <= h.in().intended)
        return;
    if (good == len)
        fail(h.stream, "side %u got %zu bytes at %llu, more than were sent", h.side, len,
             static_cast<unsigned long long>(position));
    const std::uint64_t wrong = position + good;
    char wanted[8];
    want.fill(wrong, wanted, sizeof wanted);
    char got[8] = {};
    std::memcpy(got, bytes + good, std::min(sizeof got, len - good));
    fail(h.stream, "side %u expected %016llx at byte %llu (byte %zu of %zu) and got %016llx, which stands at %lld",
         h.side, in_hex(wanted), static_cast<unsigned long long>(wrong), good, len, in_hex(got),
         static_cast<long long>(want.find(bytes + good, len - good, h.in().intended + 64)));
}

int listener(unsigned family)
{
    for (;;) { // no port is used twice in a run: what connects to one finds who it looked for, or nobody
        const int fd = fabtest::must(::socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
        socklen_t len = 0;
        const sockaddr_storage address =
            loopback(family, static_cast<std::uint16_t>(10000 + g_ledger->next_port++), &len);
        if (::bind(fd, reinterpret_cast<const sockaddr *>(&address), len) == 0 && ::listen(fd, 1024) == 0)
            return fd;
        ::close(fd);
    }
}

void add(Worker &w, int fd, unsigned stream, unsigned side, bool nonblocking)
{
    const Held h{fd, stream, side, false};
    h.mine().nonblocking = nonblocking;
    hold(h.mine());
    w.held.push_back(h);
}

// True: connected. A connection that comes to nothing is nobody's fault: its listener may have been killed.
bool connect_to(Worker &w, int fd, const sockaddr_storage &address, socklen_t len, bool wait)
{
    doing(w, wait ? "connect" : "connect, not waiting");
    int error = ::connect(fd, reinterpret_cast<const sockaddr *>(&address), len) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        pollfd one{fd, POLLOUT, 0};
        if (::poll(&one, 1, kPatience) != 1)
            fail(-1, "connect: neither made nor refused");
        socklen_t size = sizeof error;
        fabtest::must(::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), "SO_ERROR");
    }
    if (error != 0 && error != ECONNREFUSED && error != ECONNRESET)
        fail(-1, "connect: %s", strerrorname_np(error));
    return error == 0;
}

// As send() after connect(), in one call: with the SYN, where the kernel has a cookie.
bool connect_with_first_bytes(Worker &w, int fd, const sockaddr_storage &address, socklen_t len, std::uint64_t name)
{
    doing(w, "fast open");
    ++g_ledger->totals.fast_opens;
    const ssize_t n = ::sendto(fd, &name, sizeof name, MSG_FASTOPEN | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr *>(&address), len);
    if (n < 0 && errno != ECONNREFUSED && errno != ECONNRESET && errno != EPIPE)
        fail(-1, "sendto(MSG_FASTOPEN): %s", strerrorname_np(errno));
    return n == static_cast<ssize_t>(sizeof name);
}

// False: another one is sending.
bool shut(const Held &h)
{
    Flow &flow = h.out();
    const Claim claim(flow.writer);
    if (!claim)
        return false;
    if (flow.shut)
        return true;
    flow.shut = true;
    const int result = ::shutdown(h.fd, SHUT_WR) == 0 ? 0 : -errno;
    h.mine().history.add("shutdown", flow.sent, 0, result);
    if (result != 0 && result != -ENOTCONN)
        fail(h.stream, "shutdown: %s", strerrorname_np(-result));
    return true;
}

} // namespace

Held *Worker::any()
{
    return held.empty() ? nullptr : &held[below(held.size())];
}

bool Worker::is_left_in_epoll(const Held &h) const
{
    return std::any_of(left_in_epoll.begin(), left_in_epoll.end(),
                       [&h](const Held &left) { return left.same_entry(h); });
}

void open_sockets(Worker &w)
{
    for (unsigned family = 0; family < 2; ++family) {
        w.listeners[family] = listener(family);
        sockaddr_storage address;
        socklen_t len = sizeof address;
        fabtest::must(::getsockname(w.listeners[family], reinterpret_cast<sockaddr *>(&address), &len), "getsockname");
        g_ledger->workers[w.index].tcp_port[family] = ntohs(reinterpret_cast<sockaddr_in *>(&address)->sin_port);
    }
}

// The first bytes of side 0 are the stream's number; the pattern starts after them.
void connect_stream(Worker &w)
{
    const auto family = static_cast<unsigned>(w.below(2));
    const std::uint16_t port = g_ledger->workers[w.below(kWorkers)].tcp_port[family];
    if (port == 0 || w.held.size() >= kHeldMost || g_ledger->phase != kGoing)
        return;
    const bool nonblocking = w.one_in(3);
    const int fd = fabtest::must(
        ::socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | (nonblocking ? SOCK_NONBLOCK : 0), 0), "socket");
    socklen_t len = 0;
    const sockaddr_storage address = loopback(family, port, &len);
    const unsigned number = g_ledger->next_stream < kStreams ? g_ledger->next_stream++ : kStreams;
    const bool fast = !nonblocking && w.one_in(4) && !left_out("fast open");
    const std::uint64_t name = number;
    if (number >= kStreams || (!fast && !connect_to(w, fd, address, len, !nonblocking))) {
        ::close(fd);
        return;
    }
    add(w, fd, number, 0, nonblocking); // before the other side learns its name: this process may be killed at any time
    if (fast) {
        if (!connect_with_first_bytes(w, fd, address, len, name))
            close_held(w, w.held.size() - 1);
        return;
    }
    if (::send(fd, &name, sizeof name, MSG_NOSIGNAL) != sizeof name) // the listener has gone meanwhile
        close_held(w, w.held.size() - 1);
}

void accept_stream(Worker &w)
{
    const int socket = w.listeners[w.below(2)];
    if (socket < 0 || w.held.size() >= kHeldMost)
        return;
    const bool nonblocking = w.one_in(3);
    doing(w, "accept");
    const int fd = ::accept4(socket, nullptr, nullptr, nonblocking ? SOCK_NONBLOCK : 0);
    if (fd < 0) {
        if (errno != EAGAIN && errno != ECONNABORTED)
            fail(-1, "accept4: %s", strerrorname_np(errno));
        return;
    }
    doing(w, "name of the stream");
    std::uint64_t name = 0;
    pollfd one{fd, POLLIN, 0};
    if (::poll(&one, 1, kPatience) != 1)
        fail(-1, "an accepted connection says nothing");
    const ssize_t n = ::recv(fd, &name, sizeof name, MSG_WAITALL);
    if (n <= 0) { // killed just then
        ::close(fd);
        return;
    }
    if (n != sizeof name || name >= kStreams)
        fail(-1, "accepted stream %llu by %zd bytes", static_cast<unsigned long long>(name), n);
    add(w, fd, static_cast<unsigned>(name), 1, nonblocking);
    g_ledger->streams[name].accepted = true;
}

void set_send_timeout(int fd, const timeval &time)
{
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

void send_on(Worker &w, Random &random, const Held &h, std::size_t len, Wait wait)
{
    Flow &flow = h.out();
    const Claim claim(flow.writer);
    if (!claim || flow.shut || h.mine().error_seen)
        return;
    const std::uint64_t position = flow.sent;
    if (wait == Wait::kUntilSent && (h.mine().shrunk || h.theirs().shrunk))
        wait = Wait::kLimited;
    if (wait == Wait::kUntilSent && position - flow.read + len > kSmall)
        wait = Wait::kNot; // it might wait for ever
    const bool breaks = len > 100 && position > 1000 && g_ledger->breaks > 0 && g_ledger->breaks-- > 0;
    pattern(h.stream, h.side).fill(position + (breaks ? 1 : 0), buffer(), len);
    flow.intended = position + len;
    doing(w, "send", h.stream);
    const char *call = "";
    const bool limited = wait == Wait::kLimited;
    if (limited) // claimed: nobody else who holds the socket takes the limit away meanwhile
        set_send_timeout(h.fd, kLittle);
    int behind = 0;
    const ssize_t n =
        send_form(random, h.fd, buffer(), len, wait != Wait::kNot && !h.mine().nonblocking, &call, &behind);
    const int result = error_or(n);
    if (limited)
        set_send_timeout(h.fd, timeval{});
    h.mine().history.add(call, position, static_cast<std::uint32_t>(len), result);
    flow.sent = position + static_cast<std::uint64_t>(std::max(n, ssize_t{0}));
    flow.intended = flow.sent.load();
    if (result < 0 || behind != 0)
        check_error(h, call, result < 0 ? -result : behind);
}

void receive_on(Random &random, const Held &h, std::size_t len, Must must)
{
    Flow &flow = h.in();
    const Claim claim(flow.reader);
    if (!claim || flow.ended)
        return;
    const std::uint64_t position = flow.read;
    const bool due = flow.sent > position;
    if (must == Must::kWait && !due)
        return;
    const char *call = "";
    if (must == Must::kWait && (h.mine().nonblocking || random.below(2)) && !wait_readable(random, h.fd, &call)) {
        show_kernel(h.fd);
        fail(h.stream, "side %u: %s says for %d ms that there is nothing at %llu, but %llu bytes were sent", h.side,
             call, kPatience, static_cast<unsigned long long>(position),
             static_cast<unsigned long long>(flow.sent.load()));
    }
    const ssize_t n = receive_form(random, h.fd, buffer(), len, must == Must::kWait && !h.mine().nonblocking, &call);
    const int result = error_or(n);
    h.mine().history.add(call, position, static_cast<std::uint32_t>(len), result);
    if (n < 0)
        check_error(h, call, -result);
    if (n > 0)
        check_bytes(h, buffer(), static_cast<std::size_t>(n), position);
    if (n == 0)
        check_end(h, position);
    flow.read = position + static_cast<std::uint64_t>(std::max(n, ssize_t{0}));
    g_ledger->totals.bytes += static_cast<std::uint64_t>(std::max(n, ssize_t{0}));
    if (n == 0 || (n < 0 && result != -EAGAIN && result != -EINTR))
        flow.ended = true;
}

void send_some(Worker &w)
{
    if (const Held *const h = w.any()) {
        const std::size_t times = w.random.size(5);
        for (std::size_t i = 0; i < times; ++i)
            send_on(w, w.random, *h, std::min(w.random.size(14), kSmall), w.one_in(2) ? Wait::kUntilSent : Wait::kNot);
    }
}

// More than there is room for: a blocking call that waits for a while, or what fits.
void send_much(Worker &w)
{
    const Held *const h = w.any();
    if (h == nullptr)
        return;
    send_on(w, w.random, *h, kMost / 4 + w.below(kMost * 3 / 4), Wait::kLimited);
}

void receive_some(Worker &w)
{
    if (const Held *const h = w.any()) {
        doing(w, "receive", h->stream);
        receive_on(w.random, *h, w.random.size(18) + 1, Must::kMay);
    }
}

void receive_when_ready(Worker &w)
{
    if (const Held *const h = w.any()) {
        doing(w, "wait for bytes", h->stream);
        for (std::size_t i = w.random.size(5); i > 0; --i)
            receive_on(w.random, *h, w.random.size(19) + 1, Must::kWait);
    }
}

// A set of the process's own, in which its sockets stay.
void look_at_epoll(Worker &w)
{
    if (w.epoll < 0)
        w.epoll = fabtest::must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    for (Held &h : w.held) {
        if (h.watched || !w.one_in(3))
            continue;
        epoll_event event{};
        event.events = EPOLLIN | EPOLLRDHUP;
        event.data.u64 = static_cast<std::uint64_t>(h.fd);
        if (::epoll_ctl(w.epoll, EPOLL_CTL_ADD, h.fd, &event) != 0 && !(errno == EEXIST && w.is_left_in_epoll(h)))
            fail(h.stream, "EPOLL_CTL_ADD: %s", strerrorname_np(errno));
        h.watched = true;
    }
    doing(w, "epoll_wait");
    epoll_event events[16];
    const int n = ::epoll_wait(w.epoll, events, 16, w.one_in(2) ? 0 : 2);
    for (int i = 0; i < n; ++i)
        for (const Held &h : w.held)
            if (h.watched && static_cast<std::uint64_t>(h.fd) == events[i].data.u64)
                receive_on(w.random, h, w.random.size(18) + 1, Must::kMay);
}

void close_held(Worker &w, std::size_t number)
{
    const Held h = w.held[number];
    doing(w, "close", h.stream);
    if (h.watched && ::epoll_ctl(w.epoll, EPOLL_CTL_DEL, h.fd, nullptr) != 0)
        fail(h.stream, "EPOLL_CTL_DEL: %s", strerrorname_np(errno));
    let_go(h.mine());
    h.mine().history.add("close", 0, 0, ::close(h.fd) == 0 ? 0 : -errno);
    w.held.erase(w.held.begin() + static_cast<std::ptrdiff_t>(number));
}

void close_one(Worker &w)
{
    if (!w.held.empty())
        close_held(w, w.below(w.held.size()));
}

void close_all(Worker &w)
{
    while (!w.held.empty())
        close_held(w, w.held.size() - 1);
}

void shut_one(Worker &w)
{
    if (const Held *const h = w.any()) {
        doing(w, "shutdown", h->stream);
        shut(*h);
    }
}

void finish_sending(Worker &w, const Held &h)
{
    doing(w, "last shutdown", h.stream);
    while (!shut(h)) {
        if (is_dead(h.out().writer)) { // killed in a send: nobody knows how far it came
            h.mine().leaving = true;
            ::shutdown(h.fd, SHUT_WR);
            return;
        }
        ::usleep(1000);
    }
}

void read_to_end(Worker &w, const Held &h)
{
    doing(w, "end of the stream", h.stream);
    while (!h.in().ended) {
        if (h.in().reader != 0 && is_dead(h.in().reader))
            return; // killed in a receive: nobody knows what comes next
        pollfd one{h.fd, POLLIN, 0};
        if (::poll(&one, 1, 20) > 0)
            receive_on(w.random, h, kMost, Must::kMay);
    }
}

} // namespace soak
