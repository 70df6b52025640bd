// SPDX-License-Identifier: BSD-2-Clause
// A connection with both ends in this process, as the interception layer makes and closes them, whose bytes tell their
// place; random traffic over it.
#pragma once

#include "fabtests/unit.hpp"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"
#include "fabtests/patience.hpp"
#include "fabtests/seed.hpp"

namespace vma::test {

using sock::Stream;

// The n-th byte of a stream, so that a reader needs nothing but its position to check it.
inline std::uint8_t byte_at(std::uint64_t position, std::uint64_t key)
{
    std::uint64_t x = (position / 8 + key) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 29;
    return static_cast<std::uint8_t>(x >> (8 * (position % 8)));
}

struct End {
    int fd = -1;
    Stream *s = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t key = 0; // of what it sends
};

// On the loopback address of that family.
struct Listener {
    int fd;
    sockaddr_in6 address = {}; // or a sockaddr_in
    socklen_t length;

    explicit Listener(int family)
        : fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)),
          length(family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in))
    {
        address.sin6_family = static_cast<sa_family_t>(family);
        address.sin6_addr = in6addr_loopback;
        if (family == AF_INET)
            reinterpret_cast<sockaddr_in &>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(::bind(fd, name(), length), 0);
        assert_int_equal(::listen(fd, 1), 0);
        socklen_t size = length;
        ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size);
    }
    const sockaddr *name() const { return reinterpret_cast<const sockaddr *>(&address); }
};

struct Pair {
    End a;             // connector
    End b;             // acceptor
    const bool remote; // once offloaded they do as if there were a network between them

    explicit Pair(bool between_hosts = false, int family = AF_INET) : remote(between_hosts)
    {
        const Listener listener(family);
        connect_to(listener);
        ::close(listener.fd);
        track(listener);
    }
    // It goes on listening.
    explicit Pair(const Listener &listener) : remote(false)
    {
        connect_to(listener);
        track(listener);
    }
    ~Pair()
    {
        for (End *end : {&a, &b}) {
            if (end->fd < 0)
                continue;
            sock::forget(end->fd);
            ::close(end->fd);
        }
    }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;

private:
    void connect_to(const Listener &listener)
    {
        a.fd = ::socket(listener.address.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(::connect(a.fd, listener.name(), listener.length), 0);
        b.fd = ::accept(listener.fd, nullptr, nullptr);
    }
    void track(const Listener &listener)
    {
        sock::track_new(a.fd, false);
        a.s = static_cast<sock::Stream *>(sock::lookup(a.fd));
        sock::connecting(*a.s, a.fd, listener.name(), listener.length);
        sock::track_accepted(listener.fd, b.fd, false);
        b.s = static_cast<sock::Stream *>(sock::lookup(b.fd));
        a.key = 1;
        b.key = 2;
    }
};

// Sends up to `len` bytes without blocking; what was taken counts.
inline void send_some(End &end, std::size_t len)
{
    std::vector<std::uint8_t> bytes(len);
    for (std::size_t i = 0; i < len; ++i)
        bytes[i] = byte_at(end.sent + i, end.key);
    const ssize_t n = sock::send(*end.s, end.fd, bytes.data(), len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        assert_int_equal(errno, EAGAIN);
    else
        end.sent += static_cast<std::uint64_t>(n);
}

// Until no more is taken.
inline void send_until_full(End &end, std::size_t piece = 65536)
{
    for (std::uint64_t before = end.sent + 1; before != end.sent;) {
        before = end.sent;
        send_some(end, piece);
    }
}

// What is sent next goes by the kernel, and the receiver knows.
inline void end_span(End &end)
{
    end.s->tx_lock.lock();
    sock::end_transmit(*end.s, false);
    sock::unlock_tx(*end.s);
}

inline void check_bytes(const End &to, std::uint64_t key, const std::uint8_t *bytes, std::size_t len)
{
    for (std::size_t i = 0; i < len; ++i) {
        if (bytes[i] == byte_at(to.received + i, key))
            continue;
        print_error("byte %zu of %zu, read at %" PRIu64 " of the stream\n", i, len, to.received);
        UNIT_FAIL("a byte differs");
    }
}

inline void receive_some(End &to, const End &from, std::size_t len, int flags)
{
    std::vector<std::uint8_t> bytes(len);
    const ssize_t n = sock::receive(*to.s, to.fd, bytes.data(), len, MSG_DONTWAIT | flags);
    if (n < 0) {
        assert_int_equal(errno, EAGAIN);
        return;
    }
    assert_true(n > 0);
    check_bytes(to, from.key, bytes.data(), static_cast<std::size_t>(n));
    if ((flags & MSG_PEEK) == 0)
        to.received += static_cast<std::uint64_t>(n);
}

inline void drain(Pair &pair)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while ((pair.a.received < pair.b.sent || pair.b.received < pair.a.sent) && sock::now_ns() < until) {
        for (const End *end : {&pair.a, &pair.b})
            if (!sock::has_endpoint(*end->s))
                end->s->remote = false; // there is no RDMA device, and the library finds that out when it looks for one
        receive_some(pair.a, pair.b, 65536, 0);
        receive_some(pair.b, pair.a, 65536, 0);
    }
    assert_int_equal(pair.a.received, pair.b.sent);
    assert_int_equal(pair.b.received, pair.a.sent);
}

// What `a` has sent before stays unread: only the other direction is used.
inline void offload_over_unread(Pair &pair)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!sock::is_offloaded(*pair.a.s) || pair.a.s->tx.path.load() != sock::Path::kEndpoint) {
        assert_true(sock::now_ns() < until);
        send_some(pair.b, 10);
        receive_some(pair.a, pair.b, 100, 0);
        sched_yield();
    }
}

// A few calls, as a program makes them.
inline void use(Pair &pair)
{
    for (End *end : {&pair.a, &pair.b})
        send_some(*end, 10);
    receive_some(pair.a, pair.b, 100, 0);
    receive_some(pair.b, pair.a, 100, 0);
}

// Exchanges bytes until both ends are offloaded and both directions are on the endpoint.
inline bool offload(Pair &pair)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    for (End *end : {&pair.a, &pair.b}) {
        End &other = end == &pair.a ? pair.b : pair.a;
        while (end->s->remote && sock::is_offloaded(*end->s) && sock::has_endpoint(*end->s) && sock::now_ns() < until)
            sched_yield();      // the endpoint before is not closed yet; what drain() has offloaded again is not remote
        end->s->remote = false; // by an offer: there is no RDMA device
        while (pair.remote && sock::is_offloaded(*end->s) && !sock::has_endpoint(*end->s) && sock::now_ns() < until)
            receive_some(*end, other, 1, 0); // what that one left was read a moment ago
    }
    const auto offloaded = [](const End &end) {
        return sock::is_offloaded(*end.s) && end.s->tx.path.load() == sock::Path::kEndpoint;
    };
    while (sock::now_ns() < until) {
        use(pair);
        if (offloaded(pair.a) && offloaded(pair.b)) {
            for (End *end : {&pair.a, &pair.b}) {
                end->s->remote = pair.remote;
                end->s->rx.peer_here = pair.remote;
                end->s->transport = pair.remote ? &sock::kRemoteRing : &sock::kSharedRing;
                sock::g_due.add(end->s->index); // which this one may need, where the helper thread has let go of it
            }
            return true;
        }
        sched_yield();
    }
    return false;
}

// All that was sent before is read.
struct Offloaded : Pair {
    Offloaded() : Pair(true)
    {
        assert_true(offload(*this));
        drain(*this);
    }
};

inline void close_end(End &end)
{
    sock::forget(end.fd);
    ::close(end.fd);
    end.fd = -1;
}

inline void expect_receive(End &end, ssize_t result, int error)
{
    char byte;
    assert_int_equal(sock::receive(*end.s, end.fd, &byte, 1, 0), result);
    if (result < 0)
        assert_int_equal(errno, error);
}

// Of `from`, and it has arrived when this returns.
inline void send_and_arrive(End &from, const End &to, std::size_t len)
{
    const std::uint64_t before = to.s->rx.written.load();
    send_some(from, len);
    while (to.s->rx.written.load() < before + len)
        sock::engine_poll();
}

inline void receive_all(End &to, const End &from)
{
    while (to.received < from.sent)
        receive_some(to, from, 4096, 0);
}

inline void fail_endpoint(End &end)
{
    const sock::LockGuard guard(sock::g_offload.lock);
    sock::on_down(end.s->endpoint, "a test");
}

inline std::size_t random_length(std::mt19937_64 &random)
{
    static constexpr std::size_t limits[] = {8, 104, 105, 2000, 33000, 300000};
    return 1 + random() % limits[random() % std::size(limits)];
}

inline void random_traffic(Pair &pair)
{
    std::mt19937_64 random(seed());
    assert_true(offload(pair));
    for (int step = 0; step < 20000; ++step) {
        End &x = random() % 2 == 0 ? pair.a : pair.b;
        End &y = &x == &pair.a ? pair.b : pair.a;
        const auto dice = random() % 8;
        if (dice < 3)
            send_some(x, random_length(random));
        else
            receive_some(x, y, random_length(random), dice == 3 ? MSG_PEEK : 0);
    }
    drain(pair);
}

// a sends and b reads so many bytes more, each in a thread of its own, while another one calls `meddle` again and
// again.
template <typename Meddle> void flow(Pair &pair, std::uint64_t bytes, Meddle meddle)
{
    std::atomic<bool> over{false};
    std::thread sender([&pair, bytes] {
        std::mt19937_64 random(seed());
        for (const std::uint64_t end = pair.a.sent + bytes; pair.a.sent < end;)
            send_some(pair.a, random_length(random));
    });
    std::thread meddler([&over, &meddle] {
        while (!over.load())
            meddle();
    });
    std::mt19937_64 random(seed());
    const std::uint64_t end = pair.b.received + bytes;
    while (pair.b.received < end)
        receive_some(pair.b, pair.a, random_length(random), 0);
    sender.join();
    over = true;
    meddler.join();
    drain(pair);
}

inline void wait_until_kernel_only(const Pair &pair)
{
    while (sock::is_offloaded(*pair.a.s) || sock::is_offloaded(*pair.b.s))
        sched_yield(); // to the helper thread, which hears of it at the other end
}

inline void spill(End &end)
{
    end.s->tx_lock.lock();
    if (sock::is_offloaded(*end.s))
        sock::end_transmit(*end.s, false); // as a send does when the ring stays full
    sock::unlock_tx(*end.s);
}

inline void spills_and_returns(Pair &pair)
{
    std::mt19937_64 random(seed());
    for (int round = 0; round < 30; ++round) {
        assert_true(offload(pair));
        for (int step = 0; step < 300; ++step) {
            End &x = random() % 2 == 0 ? pair.a : pair.b;
            End &y = &x == &pair.a ? pair.b : pair.a;
            const auto dice = random() % 100;
            if (dice < 45)
                send_some(x, random_length(random));
            else if (dice < 97)
                receive_some(x, y, random_length(random), 0);
            else
                spill(x);
        }
        End &giver = random() % 2 == 0 ? pair.a : pair.b;
        sock::return_one(*giver.s, random() % 2 == 0 ? sock::Heir::kLibrary : sock::Heir::kAnybody);
        drain(pair);
    }
}

// A directory of offers for this test alone, and the parameters, as they are when the library is loaded.
class StreamLibrary
{
public:
    StreamLibrary()
    {
        if (::mkdtemp(directory_) == nullptr)
            UNIT_FAIL("mkdtemp");
        ::setenv("VMA_SHM_DIR", directory_, 1);
        ::setenv("VMA_SPEC", "latency", 1);
        ::setenv("VMA_STREAM_RING", "65536", 1);
        ::setenv("VMA_PROVIDER", ".libs/libvma-fi.so", 0); // make check runs at the top of the build
        ::setenv("VMA_TRACELEVEL", "warn", 0);
        libc::resolve_real();
        config::load_params();
    }
    ~StreamLibrary()
    {
        const std::string command = std::string("rm -rf ") + directory_;
        if (::system(command.c_str()) != 0)
            print_error("%s failed\n", command.c_str());
    }
    StreamLibrary(const StreamLibrary &) = delete;
    StreamLibrary &operator=(const StreamLibrary &) = delete;

private:
    char directory_[32] = "/tmp/vma-stream-XXXXXX";
};

} // namespace vma::test
