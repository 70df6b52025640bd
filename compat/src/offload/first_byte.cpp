// SPDX-License-Identifier: BSD-2-Clause
// Before the first byte. What the two sides know of each other are hints in the words that all processes of a user
// share: they only say whether it is worth it to leave an offer, and to wait for one.
#include "compat/src/offload/first_byte.hpp"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "compat/src/base/clock.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kSlackNs = 50 * mux::kNanosPerMilli; // between a connector's connect() and its first call

bool is_wanted()
{
    return config::params().lift_at_connect != 0;
}

std::int64_t patience_ns()
{
    return std::int64_t{1000} * config::params().lift_at_connect;
}

// Until it says true, or it is too late. What it tries is another thread's for some 100 microseconds at a time.
template <typename Attempt> bool try_until(std::int64_t until, const Attempt &attempt)
{
    while (!attempt()) {
        if (mux::now_ns() >= until)
            return false;
        ::sched_yield();
    }
    return true;
}

bool open_words(std::int64_t until)
{
    const libc::NotCancelled whole; // names of the dead are looked for with the lock
    bool open = false;
    const auto attempt = [&open] {
        if (!g_offload.lock.try_lock())
            return false;
        open = open_offers();
        g_offload.lock.unlock();
        return true;
    };
    return !sandboxed() && try_until(until, attempt) && open;
}

// Of a port.
struct Mark {
    std::atomic<std::uint32_t> &word;
    std::uint32_t bit;

    Mark(std::atomic<std::uint32_t> (&words)[65536 / 32], in_port_t port)
        : word(words[ntohs(port) / 32]), bit(std::uint32_t{1} << ntohs(port) % 32)
    {
    }
    bool is_set() const { return (word.load(std::memory_order_acquire) & bit) != 0; }
    void set() const
    {
        if (!is_set())
            word.fetch_or(bit, std::memory_order_release);
    }
    void clear() const
    {
        if (is_set())
            word.fetch_and(~bit, std::memory_order_release);
    }
};

// Our own READY is out, without which the answer to what is sent comes by the kernel. While another thread receives in
// the kernel it is not sent.
bool may_be_answered(Stream &s)
{
    if (!s.rx_lock.try_lock()) // by whom it may be under way
        return false;
    const bool sent = s.rx.ready_sent.load(std::memory_order_relaxed);
    s.rx_lock.unlock();
    return sent || s.blocked_receivers.load(std::memory_order_relaxed) != 0 ||
           s.blocked_polls.load(std::memory_order_relaxed) != 0;
}

Mark leaves_offers(in_port_t port)
{
    return {generations().listening, port};
}

Mark speaks_first(in_port_t port)
{
    return {generations().speaking, port};
}

// What was waited for in vain is not waited for by the next connections of this process. A hint: threads that count at
// the same time may count one.
class Discouraged
{
public:
    void note() { left_.store(kConnections, std::memory_order_relaxed); }
    bool tries_again()
    {
        const std::uint32_t left = left_.load(std::memory_order_relaxed);
        if (left != 0)
            left_.store(left - 1, std::memory_order_relaxed);
        return left == 0;
    }

private:
    static constexpr std::uint32_t kConnections = 64;
    std::atomic<std::uint32_t> left_{0};
};

// Where servers speak first. No lock.
struct Discouragement {
    Discouraged connectors;
    Discouraged acceptors;
    Discouraged early; // those whose endpoint was there before their first call
};
constinit Discouragement g_where_servers_speak;

// The peer has said READY, and whoever took note of it may have sent START already.
bool sends_by_endpoint(Stream &s)
{
    if (s.mode.load(std::memory_order_acquire) != Mode::kOffloaded)
        return false;
    engine_look(ring_of(s));
    return (s.tx.peer_ready.load(std::memory_order_acquire) ||
            s.tx.path.load(std::memory_order_acquire) == Path::kEndpoint) &&
           may_be_answered(s);
}

// The acceptor's offer comes when it calls accept(). False: it did not, in time. Other hosts are met otherwise.
bool look_until(Stream &s, int fd, std::int64_t &until)
{
    std::uint32_t seen = offers_generation() - 1;
    while (s.endpoint == nullptr && !s.remote && s.mode.load(std::memory_order_acquire) == Mode::kKernelOnly &&
           !is_loading(Part::kProvider)) {
        const std::int64_t now = mux::now_ns();
        if (now >= until) {
            VMA_LOG(kDebug, "fd=%d: waited in vain to be accepted before the first byte (VMA_LIFT_AT_CONNECT is %u)",
                    fd, config::params().lift_at_connect);
            return false;
        }
        const std::uint32_t generation = offers_generation();
        if (generation != seen && try_offload(s, fd, Offerer::kAcceptor)) {
            seen = generation;
            until += mux::now_ns() - now; // it may have loaded the provider
        } else
            ::sched_yield();
    }
    return true;
}

// One that leaves no offer in time is not waited for again, until it does.
void look_at_first_call(Stream &s, int fd, std::int64_t &until)
{
    sockaddr_in6 peer = {};
    if (!read_address(fd, Side::kPeer, peer)) {
        s.used.store(false, std::memory_order_relaxed); // not connected yet
        return;
    }
    const Mark acceptor = leaves_offers(peer.sin6_port);
    if (acceptor.is_set() && !look_until(s, fd, until))
        acceptor.clear();
}

// Whether the port is known for that already, so that the connector attaches in connect(). Its first call says it.
bool is_known_speaker(const Stream &s, bool receives)
{
    if (!may_attach_first(s))
        return false;
    const Mark speaker = speaks_first(s.addresses.local.sin6_port);
    const bool known = speaker.is_set();
    if (receives)
        speaker.clear();
    else if (!known && g_where_servers_speak.acceptors.tries_again())
        speaker.set();
    return known && !receives;
}

// One that has attached and is gone comes no more.
void wait_for_connector(Stream &s, bool speaks, std::int64_t until)
{
    bool attached = false;
    const auto may_come = [&s, speaks, &attached] {
        const bool is_there = s.endpoint != nullptr && !s.endpoint_down.load(std::memory_order_acquire);
        attached |= is_there;
        return is_there || (speaks && !attached && !s.endpoint_down.load(std::memory_order_acquire));
    };
    while (may_come() && !sends_by_endpoint(s) && s.mode.load(std::memory_order_acquire) != Mode::kKernel &&
           !s.pinned.load(std::memory_order_relaxed) && mux::now_ns() < until)
        ::sched_yield();
    if (speaks && !attached && s.endpoint == nullptr) {
        speaks_first(s.addresses.local.sin6_port).clear();
        g_where_servers_speak.acceptors.note();
    }
}

} // namespace

void begin_listening(int fd)
{
    sockaddr_in6 local = {};
    if (is_wanted() && open_words(mux::now_ns() + patience_ns()) && read_address(fd, Side::kLocal, local))
        leaves_offers(local.sin6_port).set();
}

void begin_connecting()
{
    if (!is_wanted())
        return;
    const libc::KeepErrno keep;
    const std::int64_t now = mux::now_ns();
    if (open_words(now + patience_ns()))
        generations().connecting_ns.store(now, std::memory_order_release);
}

void offer_at_accept(Stream &s, int fd)
{
    const std::int64_t now = mux::now_ns();
    const std::int64_t until = now + patience_ns();
    if (!is_wanted() || !open_words(until))
        return;
    sockaddr_in6 local = {};
    if (read_address(fd, Side::kLocal, local))
        leaves_offers(local.sin6_port).set();
    // Whoever began to connect earlier waits no more.
    const std::int64_t began = generations().connecting_ns.load(std::memory_order_acquire);
    if (now - began < patience_ns() + kSlackNs)
        (void)try_until(until,
                        [&s, fd] { return is_loading(Part::kProvider) || try_offload(s, fd, Offerer::kAcceptor); });
}

// What the acceptor sends comes before the first call of a connector that waits for it by poll() and its kin.
void attach_in_connect(Stream &s, int fd, in_port_t port)
{
    if (!is_wanted() || s.pinned.load(std::memory_order_relaxed) || s.used.load(std::memory_order_relaxed) ||
        !leaves_offers(port).is_set() || !speaks_first(port).is_set())
        return;
    sockaddr_in6 peer = {};
    if (!read_address(fd, Side::kPeer, peer) || !g_where_servers_speak.connectors.tries_again())
        return; // not connected yet, or discouraged
    std::int64_t until = mux::now_ns() + patience_ns();
    if (!look_until(s, fd, until))
        g_where_servers_speak.connectors.note();
}

// A receive waits for bytes as it would have, and is woken. An acceptor that sends waits while its peer is attaching,
// which may not have made its first call yet, or may be about to, in connect().
void await_offload(Stream &s, int fd, bool receives)
{
    if (s.used.exchange(true, std::memory_order_relaxed) || !is_wanted() || s.pinned.load(std::memory_order_relaxed))
        return;
    const libc::KeepErrno keep;
    std::int64_t until = mux::now_ns() + patience_ns();
    const bool accepted = s.role == Role::kAcceptor;
    const bool speaks = accepted && is_known_speaker(s, receives);
    if (s.role == Role::kConnector)
        look_at_first_call(s, fd, until);
    if (!receives)
        wait_for_connector(s, speaks, until);
}

// The helper thread was sooner than the first call. Before the peer has said READY that would go by the kernel, and the
// answer with it. A stream that has moved bytes goes by the kernel for other reasons.
void await_ready(Stream &s, int fd)
{
    const bool has_moved = s.send_shut.load(std::memory_order_relaxed) || s.tx.position != 0 ||
                           s.tx.kernel_bytes.load(std::memory_order_relaxed) != 0 ||
                           s.rx.consumed.load(std::memory_order_relaxed) != 0 ||
                           s.rx.kernel_bytes.load(std::memory_order_relaxed) != 0;
    if (has_moved || !g_where_servers_speak.early.tries_again()) {
        s.used.store(true, std::memory_order_relaxed);
        return;
    }
    await_offload(s, fd, false);
    if (is_wanted() && s.endpoint != nullptr && !s.pinned.load(std::memory_order_relaxed) && !sends_by_endpoint(s))
        g_where_servers_speak.early.note(); // the peer receives in the kernel, or is stopped
}

bool await_attaching(Stream &s, int fd, ssize_t &n)
{
    Wait wait = begin_wait(s, s.receive_timeout_us.load(std::memory_order_relaxed));
    const Call call(s, CallKind::kWait);
    const int error = wait_for(s, fd, POLLIN, wait);
    if (error != 0)
        n = give(error);
    return error == 0;
}

} // namespace vma::sock
