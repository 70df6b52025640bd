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

fabtest::Pattern pattern(unsigned role)
{
    return fabtest::Pattern(role + 1);
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
    fd = ::socket(AF_INET, SOCK_STREAM, 0);
    set_buffers(*board, fd);
    const sockaddr_in address = loopback(board->port);
    if (::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        fail(board, "connect: %s", strerrorname_np(errno));
}

void Side::accept()
{
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    set_buffers(*board, listener);
    sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    if (::bind(listener, reinterpret_cast<const sockaddr *>(&address), len) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr *>(&address), &len) != 0)
        fail(board, "listener: %s", strerrorname_np(errno));
    board->port = ntohs(address.sin_port);
    fd = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    if (fd < 0)
        fail(board, "accept: %s", strerrorname_np(errno));
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
        for (std::size_t left = kMessage; left > 0;) {
            const ssize_t n = receive_some(left);
            if (n <= 0)
                return;
            left -= static_cast<std::size_t>(n);
        }
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
        pattern(role).fill(flow.accepted, bytes, len);
    }
    flow.begun = std::max<std::uint64_t>(flow.begun, flow.accepted + len);
    const ssize_t n = ::send(fd, bytes, len, flags | MSG_NOSIGNAL);
    if (n > 0)
        flow.accepted += static_cast<std::uint64_t>(n) - g_short;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        flow.send_error = errno;
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

ssize_t Side::receive_some(std::size_t len) const
{
    static char bytes[kMost];
    Flow &flow = in();
    ssize_t n;
    do
        n = ::recv(fd, bytes, std::min(len, kMost), 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        flow.end = n == 0 ? 0 : errno;
        return n;
    }
    const auto got = static_cast<std::size_t>(n);
    const Computing past(*this);
    const std::size_t good = pattern(1 - role).check(flow.read, bytes, got);
    if (good != got && flow.wrong < 0)
        flow.wrong = static_cast<std::int64_t>(flow.read + good);
    flow.read += got;
    return n;
}

void Side::read_to_end() const
{
    while (receive_some(3000) > 0)
        ;
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
