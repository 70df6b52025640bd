// SPDX-License-Identifier: BSD-2-Clause
// Seeded random data through every call that moves stream bytes, with random sizes, in both directions at once. The
// receiver checks each byte at its position and the end of the stream. Styles: "blocking" (a sending and a receiving
// thread), "nonblocking" (one thread, poll), "crowd" (two threads a direction that take turns on one socket). Where the
// connection is to be accelerated, the first half goes on until it is.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/pattern.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr unsigned kSizeBits = 18; // calls of up to 256 KiB
constexpr std::size_t kBuffer = (std::size_t{1} << kSizeBits) + 1;
constexpr int kMaxPieces = 8;

// Cuts [base, base + len) into 1..8 pieces at random, some of them empty.
int cut(Random &random, unsigned char *base, std::size_t len, iovec *pieces)
{
    const int count = 1 + static_cast<int>(random.below(kMaxPieces));
    for (int i = 0; i < count; ++i) {
        const std::size_t part = i == count - 1 ? len : random.below(len + 1);
        pieces[i] = {base, part};
        base += part;
        len -= part;
    }
    return count;
}

struct Stream {
    int fd;
    bool nonblocking;
    Pattern pattern;
    std::uint64_t total;
    std::uint64_t splice_from; // position from which splice is used too
    Random random;
    std::uint64_t position = 0;
    std::vector<unsigned char> buffer = std::vector<unsigned char>(kBuffer);
    int pipe[2] = {-1, -1};
    std::size_t in_pipe = 0; // bytes taken for the stream that still wait in the pipe
    int file = -1;
    off_t file_end = 0;
    std::vector<unsigned long> calls;
    const char *form = "";

    Stream(int socket, bool nb, std::uint64_t seed, std::uint64_t bytes, std::uint64_t splices)
        : fd(socket), nonblocking(nb), pattern(seed), total(bytes), splice_from(splices), random(seed ^ 0x5eed),
          calls(32)
    {
        must(::pipe2(pipe, O_CLOEXEC), "pipe2");
        file = must(::memfd_create("stream_forms", MFD_CLOEXEC), "memfd_create");
    }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    ~Stream()
    {
        ::close(pipe[0]);
        ::close(pipe[1]);
        ::close(file);
    }

    std::size_t pick_size() { return std::min<std::uint64_t>(random.size(kSizeBits), total - position); }
};

bool would_block(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

// ---- sending: each form sends up to `len` bytes that stand in the buffer and returns how many went ------------------

using Form = ssize_t (*)(Stream &, std::size_t len);
struct NamedForm {
    const char *name;
    Form call;
};

template <int kFlags> ssize_t by_send(Stream &s, std::size_t len)
{
    return ::send(s.fd, s.buffer.data(), len, kFlags | MSG_NOSIGNAL);
}

ssize_t by_write(Stream &s, std::size_t len)
{
    return ::write(s.fd, s.buffer.data(), len);
}

ssize_t by_sendto(Stream &s, std::size_t len)
{
    return ::sendto(s.fd, s.buffer.data(), len, 0, nullptr, 0);
}

ssize_t by_writev(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    return ::writev(s.fd, pieces, cut(s.random, s.buffer.data(), len, pieces));
}

ssize_t by_pwritev2(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    return ::pwritev2(s.fd, pieces, cut(s.random, s.buffer.data(), len, pieces), -1, 0);
}

ssize_t by_sendmsg(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    msghdr msg{};
    msg.msg_iov = pieces;
    msg.msg_iovlen = static_cast<std::size_t>(cut(s.random, s.buffer.data(), len, pieces));
    return ::sendmsg(s.fd, &msg, MSG_NOSIGNAL);
}

// Several messages of one piece each; a message that goes out in part ends the call.
ssize_t by_sendmmsg(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    mmsghdr msgs[kMaxPieces]{};
    const int count = cut(s.random, s.buffer.data(), len, pieces);
    for (int i = 0; i < count; ++i) {
        msgs[i].msg_hdr.msg_iov = &pieces[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = ::sendmmsg(s.fd, msgs, static_cast<unsigned>(count), MSG_NOSIGNAL);
    if (sent < 0)
        return -1;
    ssize_t bytes = 0;
    for (int i = 0; i < sent; ++i) {
        bytes += msgs[i].msg_len;
        // What comes after a message that was cut short would stand at the wrong place in the stream.
        if (msgs[i].msg_len < pieces[i].iov_len && i + 1 < sent)
            die("sendmmsg went on after message %d went out in part", i);
    }
    return bytes;
}

// The kernel sends the file's pages as they are when they leave: none is written twice.
off_t append_to_file(Stream &s, std::size_t len)
{
    const off_t at = s.file_end;
    must(static_cast<int>(::pwrite(s.file, s.buffer.data(), len, at)), "pwrite");
    s.file_end = (at + static_cast<off_t>(len) + 4095) & ~off_t{4095};
    return at;
}

ssize_t by_sendfile(Stream &s, std::size_t len)
{
    const off_t start = append_to_file(s, len);
    off_t offset = start;
    const ssize_t n = ::sendfile(s.fd, s.file, &offset, len);
    if (n >= 0 && offset != start + n)
        die("sendfile moved %zd bytes and its offset by %lld", n, static_cast<long long>(offset - start));
    return n;
}

ssize_t by_sendfile_position(Stream &s, std::size_t len)
{
    const off_t start = append_to_file(s, len);
    ::lseek(s.file, start, SEEK_SET);
    const ssize_t n = ::sendfile(s.fd, s.file, nullptr, len);
    if (n >= 0 && ::lseek(s.file, 0, SEEK_CUR) != start + n)
        die("sendfile moved %zd bytes and the file's position by %lld", n,
            static_cast<long long>(::lseek(s.file, 0, SEEK_CUR) - start));
    return n;
}

// Through a pipe. What is left in the pipe when the socket is full goes first next time (send_some).
ssize_t by_splice_out(Stream &s, std::size_t len)
{
    if (s.in_pipe == 0) {
        const ssize_t n = ::write(s.pipe[1], s.buffer.data(), std::min<std::size_t>(len, 60000));
        s.in_pipe = static_cast<std::size_t>(must(static_cast<int>(n), "write to the pipe"));
    }
    const ssize_t n = ::splice(s.pipe[0], nullptr, s.fd, nullptr, s.in_pipe, s.nonblocking ? SPLICE_F_NONBLOCK : 0);
    if (n > 0)
        s.in_pipe -= static_cast<std::size_t>(n);
    return n;
}

const NamedForm kSendForms[] = {
    {"write", by_write},
    {"writev", by_writev},
    {"pwritev2", by_pwritev2},
    {"send", by_send<0>},
    {"send MORE", by_send<MSG_MORE>},
    {"send DONTWAIT", by_send<MSG_DONTWAIT>},
    {"sendto", by_sendto},
    {"sendmsg", by_sendmsg},
    {"sendmmsg", by_sendmmsg},
    {"sendfile", by_sendfile},
    {"sendfile at position", by_sendfile_position},
    {"splice", by_splice_out}, // the last
};

// One call. False: the socket is full.
bool send_some(Stream &s)
{
    const std::size_t usable = std::size(kSendForms) - (s.position < s.splice_from);
    const std::size_t pick = s.in_pipe > 0 ? std::size(kSendForms) - 1 : s.random.below(usable);
    const std::size_t len = s.pick_size();
    if (s.in_pipe == 0)
        s.pattern.fill(s.position, s.buffer.data(), len);
    s.form = kSendForms[pick].name;
    const ssize_t n = kSendForms[pick].call(s, len);
    if (would_block(n))
        return false;
    if (n < 0)
        die("%s of %zu at %llu: %s", s.form, len, static_cast<unsigned long long>(s.position), strerrorname_np(errno));
    if (static_cast<std::size_t>(n) > std::max(len, std::size_t{60000}))
        die("%s of %zu sent %zd", s.form, len, n);
    s.position += static_cast<std::uint64_t>(n);
    ++s.calls[pick];
    return true;
}

// ---- receiving: each form takes up to `len` bytes to the front of the buffer ----------------------------------------

template <int kFlags> ssize_t by_recv(Stream &s, std::size_t len)
{
    return ::recv(s.fd, s.buffer.data(), len, kFlags);
}

ssize_t by_read(Stream &s, std::size_t len)
{
    return ::read(s.fd, s.buffer.data(), len);
}

ssize_t by_readv(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    return ::readv(s.fd, pieces, cut(s.random, s.buffer.data(), len, pieces));
}

ssize_t by_preadv2(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    return ::preadv2(s.fd, pieces, cut(s.random, s.buffer.data(), len, pieces), -1, 0);
}

ssize_t by_waitall(Stream &s, std::size_t len)
{
    const ssize_t n = ::recv(s.fd, s.buffer.data(), len, MSG_WAITALL);
    if (n > 0 && !s.nonblocking && static_cast<std::size_t>(n) != len)
        die("recv WAITALL of %zu gave %zd with more to come", len, n);
    return n;
}

ssize_t by_recvfrom(Stream &s, std::size_t len)
{
    sockaddr_storage from{};
    socklen_t from_len = sizeof from;
    return ::recvfrom(s.fd, s.buffer.data(), len, 0, reinterpret_cast<sockaddr *>(&from), &from_len);
}

ssize_t by_recvmsg(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    msghdr msg{};
    msg.msg_iov = pieces;
    msg.msg_iovlen = static_cast<std::size_t>(cut(s.random, s.buffer.data(), len, pieces));
    return ::recvmsg(s.fd, &msg, 0);
}

ssize_t by_recvmmsg(Stream &s, std::size_t len)
{
    iovec pieces[kMaxPieces];
    mmsghdr msgs[kMaxPieces]{};
    const int count = cut(s.random, s.buffer.data(), len, pieces);
    int used = 0; // an empty message would look like the end of the stream
    for (int i = 0; i < count; ++i) {
        if (pieces[i].iov_len == 0)
            continue;
        pieces[used] = pieces[i];
        msgs[used].msg_hdr.msg_iov = &pieces[used];
        msgs[used].msg_hdr.msg_iovlen = 1;
        ++used;
    }
    const int got = ::recvmmsg(s.fd, msgs, static_cast<unsigned>(used), MSG_WAITFORONE, nullptr);
    if (got < 0)
        return -1;
    ssize_t bytes = 0;
    for (int i = 0; i < got; ++i) { // messages may be short: close the gaps
        std::memmove(s.buffer.data() + bytes, pieces[i].iov_base, msgs[i].msg_len);
        bytes += msgs[i].msg_len;
    }
    return bytes;
}

ssize_t by_splice_in(Stream &s, std::size_t len)
{
    const ssize_t n = ::splice(s.fd, nullptr, s.pipe[1], nullptr, std::min<std::size_t>(len, 60000),
                               s.nonblocking ? SPLICE_F_NONBLOCK : 0);
    for (ssize_t got = 0; got < n;)
        got += must(static_cast<int>(::read(s.pipe[0], s.buffer.data() + got, static_cast<std::size_t>(n - got))),
                    "read from the pipe");
    return n;
}

const NamedForm kReceiveForms[] = {
    {"read", by_read},
    {"readv", by_readv},
    {"preadv2", by_preadv2},
    {"recv", by_recv<0>},
    {"recv DONTWAIT", by_recv<MSG_DONTWAIT>},
    {"recv WAITALL", by_waitall},
    {"recvfrom", by_recvfrom},
    {"recvmsg", by_recvmsg},
    {"recvmmsg", by_recvmmsg},

    {"recv PEEK", by_recv<MSG_PEEK>},
    {"recv TRUNC", by_recv<MSG_TRUNC>},
    {"splice", by_splice_in}, // the last
};
constexpr std::size_t kPeek = 9, kTrunc = 10;

// One call. False: nothing there.
bool receive_some(Stream &s)
{
    const std::size_t pick = s.random.below(std::size(kReceiveForms) - (s.position < s.splice_from));
    const std::size_t len = s.pick_size();
    s.form = kReceiveForms[pick].name;
    const ssize_t n = kReceiveForms[pick].call(s, len);
    if (would_block(n))
        return false;
    if (n <= 0 || static_cast<std::size_t>(n) > len)
        die("%s of %zu at %llu: %zd %s", s.form, len, static_cast<unsigned long long>(s.position), n,
            n < 0 ? strerrorname_np(errno) : "");
    const auto got = static_cast<std::size_t>(n);
    ++s.calls[pick];
    if (pick != kTrunc) { // discarded bytes cannot be looked at; that no more went is seen at the next call
        const std::size_t good = s.pattern.check(s.position, s.buffer.data(), got);
        if (good != got)
            die("%s of %zu at %llu gave %zu bytes: wrong from the %zuth on; these stand at %lld", s.form, len,
                static_cast<unsigned long long>(s.position), got, good,
                static_cast<long long>(s.pattern.find(s.buffer.data() + good, got - good, s.total)));
    }
    if (pick != kPeek)
        s.position += got;
    return true;
}

void wait_for(int fd, short events)
{
    pollfd p{fd, events, 0};
    while (::poll(&p, 1, -1) < 0 && errno == EINTR) {
    }
}

void expect_end(Stream &s)
{
    char byte;
    wait_for(s.fd, POLLIN);
    const ssize_t n = ::recv(s.fd, &byte, 1, 0);
    if (n != 0)
        die("%zd %s instead of the end of the stream", n, n < 0 ? strerrorname_np(errno) : "");
}

// ---- styles ---------------------------------------------------------------------------------------------------------

enum class Then { kGoOn, kShutdown }; // once all is sent

void run_threads(Stream &out, Stream &in, int threads, Then then)
{
    std::mutex out_turn, in_turn;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
        all.emplace_back([&] {
            for (bool again = true; again;) {
                std::lock_guard turn(out_turn);
                again = out.position < out.total;
                if (again && !send_some(out))
                    wait_for(out.fd, POLLOUT); // a form with MSG_DONTWAIT
            }
        });
        all.emplace_back([&] {
            for (bool again = true; again;) {
                std::lock_guard turn(in_turn);
                again = in.position < in.total;
                if (again && !receive_some(in))
                    wait_for(in.fd, POLLIN);
            }
        });
    }
    // Joined in turn: every second one sends.
    for (std::size_t i = 0; i < all.size(); i += 2)
        all[i].join();
    if (then == Then::kShutdown)
        must(::shutdown(out.fd, SHUT_WR), "shutdown");
    for (std::size_t i = 1; i < all.size(); i += 2)
        all[i].join();
}

void run_one_thread(Stream &out, Stream &in, Then then)
{
    bool sending = true;
    while (sending || in.position < in.total) {
        pollfd p{out.fd, static_cast<short>((sending ? POLLOUT : 0) | (in.position < in.total ? POLLIN : 0)), 0};
        if (::poll(&p, 1, -1) < 0 && errno != EINTR)
            die("poll: %s", strerrorname_np(errno));
        if (p.revents & (POLLERR | POLLNVAL))
            die("poll says %#x", static_cast<unsigned>(p.revents));
        if (p.revents & POLLIN)
            for (int i = 0; i < 16 && in.position < in.total && receive_some(in); ++i) {
            }
        if (sending && (p.revents & POLLOUT)) {
            for (int i = 0; i < 16 && out.position < out.total && send_some(out); ++i) {
            }
            sending = out.position < out.total;
            if (!sending && then == Then::kShutdown)
                must(::shutdown(out.fd, SHUT_WR), "shutdown");
        }
    }
}

void run(const std::string &style, Stream &out, Stream &in, Then then)
{
    if (style == "nonblocking")
        run_one_thread(out, in, then);
    else
        run_threads(out, in, style == "crowd" ? 2 : 1, then);
    if (then == Then::kShutdown)
        expect_end(in);
}

// The first half, and as much again until the connection is accelerated; splice() begins as much later.
void run_until_offloaded(const Peer &peer, const std::string &style, Stream &out, Stream &in)
{
    const std::uint64_t half = out.total / 2;
    out.total = in.total -= half;
    const patience::Deadline deadline;
    for (run(style, out, in, Then::kGoOn); !peer.both(peer.is_offloaded(out.fd)); run(style, out, in, Then::kGoOn)) {
        if (deadline.over())
            die("not accelerated; here: %s", peer.is_offloaded(out.fd) ? "yes" : "no");
        out.total = in.total += half;
        out.splice_from = in.splice_from += half;
    }
    out.total = in.total += half;
}

template <std::size_t kCount> void report(const char *what, const Stream &s, const NamedForm (&forms)[kCount])
{
    std::printf("%s %llu bytes:", what, static_cast<unsigned long long>(s.position));
    for (std::size_t i = 0; i < kCount; ++i)
        std::printf(" %s %lu,", forms[i].name, s.calls[i]);
    std::printf("\n");
}

} // namespace

// stream_forms server|client --control FD [--family F] STYLE BYTES SPLICE-FROM SEED
int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    if (argc != 5)
        die("usage: stream_forms server|client --control FD [--family 4|6|mapped] STYLE BYTES SPLICE-FROM SEED");
    const std::string style = argv[1];
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 0);
    const std::uint64_t splice_from = std::strtoull(argv[3], nullptr, 0);
    const std::uint64_t seed = std::strtoull(argv[4], nullptr, 0);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);

    peer.open_listener();
    const int fd = peer.connect_plain();
    const bool nonblocking = style == "nonblocking";
    if (nonblocking)
        must(::fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK), "F_SETFL");
    ::signal(SIGPIPE, SIG_IGN);
    Stream out(fd, nonblocking, seed + (peer.server ? 1 : 2), bytes, splice_from);
    Stream in(fd, nonblocking, seed + (peer.server ? 2 : 1), bytes, splice_from);
    if (peer.both(offload_expected()))
        run_until_offloaded(peer, style, out, in);
    run(style, out, in, Then::kShutdown);
    report("sent", out, kSendForms);
    report("received", in, kReceiveForms);
    must(::close(fd), "close");
    return 0;
}
