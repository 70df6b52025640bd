// SPDX-License-Identifier: BSD-2-Clause
// Before the first byte. What the two sides know of each other are hints in the words that all processes of a user
// share: they only say whether it is worth it to leave an offer, and to wait for one.
#include "compat/src/offload/first_byte.hpp"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "compat/src/base/clock.hpp"
#include "compat/src/config/cpu_list.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kSlackNs = 50 * mux::kNanosPerMilli;     // between a connector's connect() and its first call
constexpr std::int64_t kHabitsPatienceNs = mux::kNanosPerMilli; // where VMA_LIFT_AT_CONNECT says nothing

bool is_told()
{
    return config::params().lift_at_connect != 0;
}

// Whether threads of this process run on one processor alone, which may be the other end's, too. Asked now and then, as
// it may be changed, and of any thread. A hint.
class OneProcessor
{
public:
    bool is_all()
    {
        const std::uint32_t left = left_.load(std::memory_order_relaxed);
        left_.store(left != 0 ? left - 1 : kConnections, std::memory_order_relaxed);
        if (left == 0)
            is_all_.store(ask(), std::memory_order_relaxed);
        return is_all_.load(std::memory_order_relaxed);
    }

private:
    static bool ask()
    {
        const libc::KeepErrno keep;
        config::CpuMask mask;
        auto *const words = reinterpret_cast<cpu_set_t *>(mask.words.data());
        return ::sched_getaffinity(0, sizeof mask.words, words) == 0 && CPU_COUNT_S(sizeof mask.words, words) == 1;
    }

    static constexpr std::uint32_t kConnections = 64;
    std::atomic<std::uint32_t> left_{0};
    std::atomic<bool> is_all_{false};
};
constinit OneProcessor g_one_processor;

bool is_habit(Role role)
{
    const OffloadHabit::First first = habitual_first(role);
    return first == OffloadHabit::First::kAnywhere ||
           (first == OffloadHabit::First::kOnSeveral && !g_one_processor.is_all());
}

bool is_wanted(const Stream &s)
{
    return is_told() || s.leaves_first;
}

std::int64_t patience_ns()
{
    return is_told() ? std::int64_t{1000} * config::params().lift_at_connect : kHabitsPatienceNs;
}

bool open_words(std::int64_t until)
{
    if (offers_are_open()) [[likely]]
        return !sandboxed();
    const libc::NotCancelled whole; // names of the dead are looked for with the lock
    bool open = false;
    const auto attempt = [&open] {
        if (!g_offload.lock.try_lock())
            return false;
        open = open_offers();
        g_offload.lock.unlock();
        return true;
    };
    return !sandboxed() && mux::try_until(until, attempt) && open;
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
            VMA_LOG(kDebug, "fd=%d: waited in vain to be accepted before the first byte (for %lld us)", fd,
                    static_cast<long long>(patience_ns() / 1000));
            return false;
        }
        const std::uint32_t generation = offers_generation();
        if (generation != seen && try_offload(s, fd, Offerer::kAcceptor)) {
            seen = generation;
            until += is_told() ? mux::now_ns() - now : 0; // it may have loaded the provider
        } else
            ::sched_yield();
    }
    return true;
}

// One that leaves no offer in time is not waited for again, until it does. True: it was waited for, or has come.
bool look_at_first_call(Stream &s, int fd, std::int64_t &until)
{
    sockaddr_in6 peer = {};
    if (!read_address(fd, Side::kPeer, peer)) {
        s.used.store(false, std::memory_order_relaxed); // not connected yet
        return false;
    }
    const Mark acceptor = leaves_offers(peer.sin6_port);
    if (!acceptor.is_set())
        return false;
    const bool in_vain = !look_until(s, fd, until);
    if (in_vain)
        acceptor.clear();
    return in_vain || s.endpoint != nullptr;
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

// The port that the habit marked last (network order), 0 none. Of others the first that waits there in vain takes it
// back. A hint.
constinit std::atomic<in_port_t> g_marked{0};

// The habit says otherwise now, so that nobody waits in vain.
void unmark(int fd)
{
    in_port_t marked = g_marked.load(std::memory_order_relaxed);
    sockaddr_in6 local = {};
    if (marked != 0 && read_address(fd, Side::kLocal, local) && local.sin6_port == marked &&
        g_marked.compare_exchange_strong(marked, 0, std::memory_order_relaxed))
        leaves_offers(marked).clear();
}

} // namespace

void begin_listening(int fd)
{
    sockaddr_in6 local = {};
    if (is_told() && open_words(mux::now_ns() + patience_ns()) && read_address(fd, Side::kLocal, local))
        leaves_offers(local.sin6_port).set();
}

void begin_connecting()
{
    if (!is_told() && !is_habit(Role::kConnector))
        return;
    const libc::KeepErrno keep;
    const std::int64_t now = mux::now_ns();
    if (open_words(now + patience_ns()))
        generations().connecting_ns.store(now, std::memory_order_release);
}

void offer_at_accept(Stream &s, int fd)
{
    s.leaves_first = is_habit(s.role);
    if (!is_wanted(s))
        return unmark(fd);
    const std::int64_t now = mux::now_ns();
    const std::int64_t until = now + patience_ns();
    sockaddr_in6 local = {};
    if (!open_words(until) || !read_address(fd, Side::kLocal, local))
        return;
    if (is_told())
        leaves_offers(local.sin6_port).set();
    // Whoever began to connect earlier waits no more.
    const std::int64_t began = generations().connecting_ns.load(std::memory_order_acquire);
    if (now - began >= patience_ns() + kSlackNs)
        return;
    (void)mux::try_until(until,
                         [&s, fd] { return is_loading(Part::kProvider) || try_offload(s, fd, Offerer::kAcceptor); });
    s.offered_first = s.leaves_first && (s.cookie != 0 || s.endpoint != nullptr); // which may have taken it already
    if (s.offered_first) { // later ones find it, and nobody waits while the provider is loaded
        leaves_offers(local.sin6_port).set();
        g_marked.store(local.sin6_port, std::memory_order_relaxed);
    }
}

// What the acceptor sends comes before the first call of a connector that waits for it by poll() and its kin.
void attach_in_connect(Stream &s, int fd, in_port_t port)
{
    s.leaves_first = is_habit(s.role);
    if (!is_wanted(s) || s.pinned.load(std::memory_order_relaxed) || s.used.load(std::memory_order_relaxed) ||
        !leaves_offers(port).is_set() || !speaks_first(port).is_set())
        return;
    sockaddr_in6 peer = {};
    if (!read_address(fd, Side::kPeer, peer) || !g_where_servers_speak.connectors.tries_again())
        return; // not connected yet, or discouraged
    std::int64_t until = mux::now_ns() + patience_ns();
    if (look_until(s, fd, until))
        return;
    g_where_servers_speak.connectors.note();
    if (!s.leaves_first)
        return;
    learn_about_first(s, patience_ns());
    s.leaves_first = false; // once is enough
}

// A receive waits for bytes as it would have, and is woken. An acceptor that sends waits while its peer is attaching,
// which may not have made its first call yet, or may be about to, in connect().
void await_offload(Stream &s, int fd, bool receives)
{
    if (s.used.exchange(true, std::memory_order_relaxed) || !is_wanted(s) || s.pinned.load(std::memory_order_relaxed))
        return;
    if (!is_told() && !is_habit(s.role)) // any more: of many that were connected at a time some waited in vain
        return;
    const libc::KeepErrno keep;
    const std::int64_t began = mux::now_ns();
    std::int64_t until = began + patience_ns();
    const bool accepted = s.role == Role::kAcceptor;
    const bool speaks = accepted && is_known_speaker(s, receives);
    const bool looked = s.role == Role::kConnector && look_at_first_call(s, fd, until);
    if (!receives)
        wait_for_connector(s, speaks, until);
    if (s.leaves_first && (looked || (accepted && !receives)))
        learn_about_first(s, mux::now_ns() - began);
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
    if (is_wanted(s) && s.endpoint != nullptr && !s.pinned.load(std::memory_order_relaxed) && !sends_by_endpoint(s))
        g_where_servers_speak.early.note(); // the peer receives in the kernel, or is stopped
}

} // namespace vma::sock
