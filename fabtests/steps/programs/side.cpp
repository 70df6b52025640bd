// SPDX-License-Identifier: BSD-2-Clause
// One side of the stepped connection: see side.hpp.
#include "fabtests/steps/programs/side.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/sockets/programs/pattern.hpp"

namespace step {

namespace {

// The harness itself is looked at: a side that writes the wrong number down. STEP_BREAK=double: each message a byte
// short, so that the next one begins with the same byte; STEP_BREAK=lose: more than was sent, before the end.
bool breaks(const char *how)
{
    const char *const chosen = std::getenv("STEP_BREAK");
    return chosen != nullptr && std::strcmp(chosen, how) == 0;
}

const std::uint64_t g_short = breaks("double") ? 1 : 0, g_long = breaks("lose") ? 1 : 0;

constexpr std::size_t kMessage = 64;        // of a round trip
constexpr std::size_t kMost = 8192;         // of a call
constexpr unsigned kPlainRounds = 40;       // where nothing is offloaded
constexpr unsigned kHurries = 2000;         // round trips; then it lets others have the processor
constexpr unsigned kOffloadsWithin = 30000; // round trips

// What a role sends, and what its handlers send, differ in a bit of each byte: however the kernel or the library put
// one between the other, each has its own positions.
constexpr unsigned char kAside = 0x80;

void fill_in(const Flow &flow, const Board *board, std::uint64_t position, void *to, std::size_t len)
{
    const bool aside = &flow >= board->asides;
    const auto role = static_cast<unsigned>(&flow - (aside ? board->asides : board->flows));
    auto *const bytes = static_cast<unsigned char *>(to);
    fabtest::Pattern(role + 1).fill(position, bytes, len);
    for (std::size_t i = 0; i < len; ++i)
        bytes[i] = static_cast<unsigned char>(aside ? bytes[i] | kAside : bytes[i] & ~kAside);
}

bool is_next(const Flow &flow, const Board *board, std::uint64_t position, const char *bytes, std::size_t len)
{
    char want[kMost];
    fill_in(flow, board, position, want, len);
    return std::memcmp(bytes, want, len) == 0;
}

void note(Flow &flow, const Board *board, const char *bytes, std::size_t len)
{
    if (!is_next(flow, board, flow.read, bytes, len) && flow.wrong < 0)
        flow.wrong = static_cast<std::int64_t>(flow.read);
    flow.read += len;
}

// A handler's recv() in the midst of the program's: its bytes lie before, behind or between the others.
struct Aside {
    char bytes[kMessage];
    std::size_t len;
};
Aside g_aside;
volatile bool g_receiving, g_sending;

void note_around(Flow &flow, const Board *board, const char *bytes, std::size_t len)
{
    const std::uint64_t from = flow.read;
    const std::size_t between = g_aside.len;
    for (std::size_t before = 0; before <= len; ++before)
        if (is_next(flow, board, from, bytes, before) && is_next(flow, board, from + before, g_aside.bytes, between) &&
            is_next(flow, board, from + before + between, bytes + before, len - before)) {
            flow.read += len + between;
            g_aside.len = 0;
            return;
        }
    flow.wrong = static_cast<std::int64_t>(from);
    g_aside.len = 0;
}

void note_aside(Flow &flow, const Board *board)
{
    if (g_aside.len != 0)
        note(flow, board, g_aside.bytes, g_aside.len);
    g_aside.len = 0;
}

// Of one direction, what its program and what its handlers have sent.
void note_both(Flow &flow, Flow &aside, const Board *board, char *bytes, std::size_t len)
{
    char others[kMost];
    std::size_t mine = 0, theirs = 0;
    for (std::size_t i = 0; i < len; ++i)
        if ((static_cast<unsigned char>(bytes[i]) & kAside) != 0)
            others[theirs++] = bytes[i];
        else
            bytes[mine++] = bytes[i];
    note(flow, board, bytes, mine);
    note(aside, board, others, theirs);
}

// Where a survey stops when it has gone past a computation.
[[gnu::noinline]] void computed()
{
    asm volatile("");
}

class Computing
{
public:
    explicit Computing(const Side &side) : board_(side.is_victim() && !side.child ? side.board : nullptr)
    {
        if (board_ == nullptr)
            return;
        board_->computed_at = reinterpret_cast<std::uint64_t>(&computed);
        board_->computing = true;
    }
    ~Computing()
    {
        if (board_ == nullptr)
            return;
        board_->computing = false;
        computed();
    }
    Computing(const Computing &) = delete;
    Computing &operator=(const Computing &) = delete;

private:
    Board *board_;
};

// What the kernel has sent of this connection, by a call that the library doesn't see.
std::uint64_t sent_by_kernel(int fd)
{
    tcp_info info{};
    socklen_t len = sizeof info;
    ::syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    return info.tcpi_bytes_sent;
}

void set_buffers(const Board &board, int fd)
{
    const int size = board.buffer;
    if (size == 0)
        return;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

// A handler may take what its program waits for: that waits no longer than this.
void limit_receives(const Side &side)
{
    const timeval limit{0, 20000};
    if (side.is_victim() && side.board->handler == kReceives)
        ::setsockopt(side.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

sockaddr_in loopback(int port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
}

} // namespace

void fail(Board *board, const char *format, ...)
{
    if (!board->failed.exchange(true)) {
        std::va_list args;
        va_start(args, format);
        std::vsnprintf(board->why, sizeof board->why, format, args);
        va_end(args);
    }
    ::_exit(3);
}

void wait_for(const std::atomic<bool> &word)
{
    while (!word)
        ::usleep(100);
}

void Side::connect()
{
    while (board->port == 0)
        ::usleep(100);
    if (fd < 0)
        fd = ::socket(AF_INET, SOCK_STREAM, 0);
    set_buffers(*board, fd);
    const sockaddr_in address = loopback(board->port);
    if (::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 && errno != EISCONN)
        fail(board, "connect: %s", strerrorname_np(errno));
    connected = true;
    limit_receives(*this);
}

void Side::accept()
{
    if (board->port == 0)
        listen();
    fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0)
        fail(board, "accept: %s", strerrorname_np(errno));
    connected = true; // before a handler may jump out of the next call
    ::close(listener);
    limit_receives(*this);
}

void Side::listen()
{
    listener = ::socket(AF_INET, SOCK_STREAM, 0);
    set_buffers(*board, listener);
    sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    if (::bind(listener, reinterpret_cast<const sockaddr *>(&address), len) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr *>(&address), &len) != 0)
        fail(board, "listener: %s", strerrorname_np(errno));
    board->port = ntohs(address.sin_port);
}

void Side::talk() const
{
    const bool begins = role == kWriter;
    unsigned after = 0; // rounds since both directions are offloaded
    for (unsigned round = 0; board->rounds == 0 || round < board->rounds; ++round) {
        if (board->with_library && sent_by_kernel(fd) < out().accepted)
            board->offloaded[role] = true;
        after += board->with_library && !(board->offloaded[0] && board->offloaded[1]) ? 0 : 1;
        if (begins && after >= (board->with_library ? 4 : kPlainRounds))
            board->rounds = round + 1;
        if (begins && round > kOffloadsWithin)
            fail(board, "not offloaded after %u round trips", round);
        if (begins && round > kHurries)
            ::usleep(200);
        if (begins && !send_all(kMessage))
            return;
        for (const std::uint64_t to = std::uint64_t{round + 1} * kMessage; in().read < to;)
            if (!receive_some(to - in().read))
                return;
        if (!begins && !send_all(kMessage))
            return;
    }
}

ssize_t Side::send_some(std::size_t len, int flags) const
{
    static char bytes[kMost];
    Flow &flow = out();
    len = std::min(len, kMost);
    {
        const Computing past(*this);
        fill_in(flow, board, flow.accepted, bytes, len);
    }
    flow.begun = std::max<std::uint64_t>(flow.begun, flow.accepted + len);
    g_sending = true;
    const ssize_t n = ::send(fd, bytes, len, flags | MSG_NOSIGNAL);
    if (n > 0)
        flow.accepted += static_cast<std::uint64_t>(n) - g_short;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        flow.send_error = errno;
    g_sending = false;
    return n;
}

bool Side::send_all(std::size_t len) const
{
    while (len > 0) {
        const ssize_t n = send_some(len, 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        len -= static_cast<std::size_t>(std::max(n, ssize_t{0}));
    }
    return true;
}

void Side::fill(std::size_t most) const
{
    for (std::size_t done = 0; done < most;) {
        const ssize_t n = send_some(3000, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        done += static_cast<std::size_t>(n);
    }
}

bool Side::receive_some(std::size_t len) const
{
    static char bytes[kMost];
    Flow &flow = in();
    g_receiving = true;
    const ssize_t n = ::recv(fd, bytes, std::min(len, kMost), 0);
    const int error = errno;
    const bool again = n < 0 && (error == EINTR || error == EAGAIN);
    if (n > 0) {
        const Computing past(*this);
        const auto got = static_cast<std::size_t>(n);
        if (g_aside.len != 0)
            note_around(flow, board, bytes, got);
        else
            note_both(flow, board->asides[1 - role], board, bytes, got);
    }
    g_receiving = false;
    note_aside(flow, board);
    if (n <= 0 && !again)
        flow.end = n == 0 ? 0 : error;
    return n > 0 || again;
}

void Side::read_to_end() const
{
    while (receive_some(3000))
        ;
}

void Side::read_unchecked() const
{
    char bytes[kMost];
    for (ssize_t n = 1; n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));)
        n = ::recv(fd, bytes, sizeof bytes, 0);
}

void Side::send_aside() const
{
    Flow &flow = board->asides[role];
    char bytes[kMessage];
    fill_in(flow, board, flow.accepted, bytes, sizeof bytes);
    flow.begun = flow.accepted + sizeof bytes;
    const ssize_t n = ::send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    flow.accepted += n > 0 ? static_cast<std::uint64_t>(n) : 0;
}

void Side::receive_aside() const
{
    const ssize_t n = ::recv(fd, g_aside.bytes, sizeof g_aside.bytes, MSG_DONTWAIT);
    g_aside.len = n > 0 ? static_cast<std::size_t>(n) : 0;
    if (!g_receiving)
        note_aside(in(), board);
}

bool Side::is_sending() const
{
    return g_sending;
}

bool Side::is_receiving() const
{
    return g_receiving;
}

void Side::begin_stretch() const
{
    out().accepted += g_long;
    if (!is_victim())
        return;
    board->marked = ::gettid();
    wait_for(board->go);
    board->begun = true;
}

void Side::end_stretch() const
{
    if (is_victim())
        board->finished = true;
}

} // namespace step
