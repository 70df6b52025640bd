// SPDX-License-Identifier: BSD-2-Clause
// The option SO_MAX_PACING_RATE, and the sockets whose next send has to wait for its time: a blocking call sleeps until
// then by itself, and for poll() and its kin the helper thread, which sleeps on one timer for all of them, tells the
// watchers.
#include "compat/src/transport/pacing.hpp"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/arguments.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kBytesPerKbit = 125;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMilli = 1'000'000;
constexpr std::size_t kBatch = 64;

// Its lock; the atomic one is read without.
struct Turns {
    Mutex lock;
    Wheel wheel;
    std::uint64_t armed_for = 0; // ns; 0: the timer is off
    std::atomic<int> timer{-1};
};
constinit Turns g_turns;

std::uint64_t now()
{
    return static_cast<std::uint64_t>(now_ns());
}

// Lock held. Without a timer the helper thread looks at each of its ticks.
void arm()
{
    const std::uint64_t due = std::max<std::uint64_t>(g_turns.wheel.next(), 1); // 0 would switch the timer off
    if (due == UINT64_MAX || (g_turns.armed_for != 0 && g_turns.armed_for <= due))
        return;
    int fd = g_turns.timer.load(std::memory_order_relaxed);
    if (fd < 0) {
        fd = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (fd < 0)
            return;
        fd = libc::make_private(fd);
        g_turns.timer.store(fd, std::memory_order_release);
    }
    itimerspec when = {};
    when.it_value = {static_cast<time_t>(due / kSecond), static_cast<long>(due % kSecond)};
    ::timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, nullptr);
    g_turns.armed_for = due;
}

// Who begins to watch it later asks for his turn himself.
void hold(Socket &s, std::uint64_t until)
{
    s.pacing.held_until.store(until, std::memory_order_seq_cst);
    if (s.watchers.load(std::memory_order_seq_cst) != nullptr)
        tell_when_due(s);
}

// A program that tries again and again before its time has waited once.
void note_wait(const Socket &s, std::uint64_t until, std::uint64_t time)
{
    stats::Sent &tx = record_of(s).now.tx;
    const std::uint64_t before = s.pacing.held_until.load(std::memory_order_relaxed);
    if (before <= time)
        stats::add(tx.held);
    if (const std::uint64_t from = std::max(before, time); until > from)
        stats::add(tx.held_ns, until - from);
}

void tell_rate(const Socket &s)
{
    stats::Slot &record = record_of(s);
    const std::uint64_t sent = stats::get(record.now.tx.bytes);
    if (stats::get(record.facts.pacing_rate) != 0)
        stats::add(record.now.tx.paced_bytes, sent - stats::get(record.facts.paced_from));
    stats::set(record.facts.paced_from, sent);
    stats::set(record.facts.pacing_rate, s.pacing.pacer.limited() ? s.pacing.rate : std::uint64_t{0});
}

void give_turns()
{
    Socket *due[kBatch];
    std::size_t count = 0;
    {
        const LockGuard guard(g_turns.lock);
        const std::uint64_t time = now();
        g_turns.armed_for = 0;
        g_turns.wheel.advance(time, [&](Timer &timer) {
            auto &turn = static_cast<Pacing::Turn &>(timer);
            if (count < kBatch)
                due[count++] = turn.socket;
            else
                g_turns.wheel.add(turn, time, time); // in the next round, at once
        });
        arm();
    }
    for (std::size_t i = 0; i < count; ++i)
        notify(*due[i], POLLOUT);
}

std::uint64_t kernel_rate(int fd)
{
    std::uint64_t rate = Pacer::kUnlimited;
    socklen_t size = sizeof rate;
    const bool got = libc::real.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size) == 0;
    return got && size == sizeof rate ? rate : Pacer::kUnlimited;
}

// What its pacer has still to make up for is forgotten, what it has earned stays as far as there is room for it.
void set_endpoint_limit(Stream &s, std::uint32_t max_burst)
{
    const Pacing &p = s.pacing;
    if (s.endpoint == nullptr || !transport(s).spans) // whose TCP keeps it: Transport::option_was_set()
        return;
    const fi_vma_rate_limit limit = {p.rate, max_burst, p.typical_packet};
    const int result =
        fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_RATE_LIMIT), &limit, sizeof limit);
    if (result != 0)
        VMA_LOG(kWarn, "fd=%d: the endpoint takes no rate limit (%s): it is not paced while it is accelerated",
                s.any_fd.load(std::memory_order_relaxed), strerror(-result));
}

void limit_endpoint(Stream &s)
{
    set_endpoint_limit(s, s.pacing.max_burst);
}

std::uint32_t piece_of(const Pacing &p)
{
    return p.pacer.limited() ? std::min(p.pacer.piece(), kLongestPiece) : kLongestPiece;
}

// tx_lock held.
void apply(Socket &s, std::uint64_t rate, const VmaRateLimit &more)
{
    Pacing &p = s.pacing;
    p.rate = rate;
    p.max_burst = more.max_burst;
    p.typical_packet = more.typical_packet;
    p.pacer.set(now(), rate, more.max_burst, more.typical_packet);
    p.limited.store(p.pacer.limited(), std::memory_order_release);
    tell_rate(s);
    Stream *const stream = stream_of(s);
    if (stream != nullptr)
        stream->tx.piece = piece_of(p);
    if (p.held_until.load(std::memory_order_relaxed) != 0)
        hold(s, now()); // at the new rate it may be its turn
    if (stream != nullptr)
        limit_endpoint(*stream);
}

} // namespace

int set_pacing_rate(Socket &s, int fd, const void *value, socklen_t len)
{
    VmaRateLimit wanted = {};
    int result = 0;
    if (len == sizeof wanted && !is_nowhere(value)) {
        memcpy(&wanted, value, sizeof wanted);
        const std::uint64_t rate = wanted.rate != 0 ? wanted.rate * kBytesPerKbit : Pacer::kUnlimited;
        result = libc::real.setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    } else {
        result = libc::real.setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, value, len);
    }
    if (result != 0)
        return result;
    s.tx_lock.lock();
    apply(s, kernel_rate(fd), wanted);
    if (Stream *const stream = stream_of(s)) {
        unlock_tx(*stream);
        transport(*stream).option_was_set(*stream, fd, SOL_SOCKET, SO_MAX_PACING_RATE, value);
    } else {
        s.tx_lock.unlock();
    }
    return 0;
}

int get_pacing_rate(Socket &s, int fd, void *value, socklen_t *len)
{
    VmaRateLimit shown = {};
    if (len == nullptr || *len != sizeof shown || is_nowhere(value))
        return libc::real.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, value, len);
    const std::uint64_t rate = kernel_rate(fd);
    if (rate != Pacer::kUnlimited)
        shown.rate = static_cast<std::uint32_t>(std::min<std::uint64_t>(rate / kBytesPerKbit, UINT32_MAX));
    {
        const LockGuard guard(s.tx_lock);
        shown.max_burst = s.pacing.max_burst;
        shown.typical_packet = s.pacing.typical_packet;
    }
    memcpy(value, &shown, sizeof shown);
    return 0;
}

void adopt_pacing_rate(Socket &s, int fd)
{
    const std::uint64_t rate = kernel_rate(fd);
    if (rate != s.pacing.rate)
        apply(s, rate, {});
    else if (Stream *const stream = stream_of(s); stream != nullptr && s.pacing.limited.load(std::memory_order_relaxed))
        limit_endpoint(*stream);
}

void begin_paced_span(Stream &s)
{
    if (!s.pacing.limited.load(std::memory_order_relaxed)) [[likely]]
        return;
    if (s.tx.started.load(std::memory_order_relaxed) && transport(s).ordered) {
        set_endpoint_limit(s, 1); // empties the bucket
        limit_endpoint(s);
    }
    int unsent = 0;
    const int fd = live_fd(s, s.any_fd.load(std::memory_order_relaxed));
    if (libc::real.ioctl(fd, SIOCOUTQNSD, &unsent) != 0 || unsent <= 0)
        return;
    const std::uint64_t time = now();
    const std::uint64_t until = time + static_cast<std::uint64_t>(unsent) * kSecond / s.pacing.rate;
    note_wait(s, until, time);
    s.tx.piece = 0;
    hold(s, until);
}

bool paced_span_has_begun(Stream &s)
{
    if (now() < s.pacing.held_until.load(std::memory_order_relaxed))
        return false;
    s.tx.piece = piece_of(s.pacing);
    return true;
}

void forget_pacing(Socket &s)
{
    forget_pacing_turn(s);
    Pacing &p = s.pacing;
    p.limited = false;
    p.rate = Pacer::kUnlimited;
    p.max_burst = 0;
    p.typical_packet = 0;
    p.pacer = Pacer();
}

void forget_pacing_turn(Socket &s)
{
    s.pacing.held_until = 0;
    const LockGuard guard(g_turns.lock);
    g_turns.wheel.remove(s.pacing.turn);
}

bool may_go(Socket &s, std::size_t length)
{
    Pacing &p = s.pacing;
    const std::uint64_t time = now();
    const std::uint64_t due = length != 0 ? p.pacer.due(time, length) : time;
    if (due > time) {
        note_wait(s, due, time);
        hold(s, due);
        return false;
    }
    p.pacer.take(length);
    p.held_until.store(0, std::memory_order_relaxed);
    return true;
}

void note_refusal(Stream &s)
{
    std::uint64_t due = 0;
    std::size_t size = sizeof due;
    if (fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_RATE_DUE), &due, &size) == 0 &&
        due != 0) {
        note_wait(s, due, now());
        hold(s, due);
        // The next send comes when the peer has read: what is late then is not the processor's fault.
        if (!transport(s).has_room(s))
            limit_endpoint(s);
    }
}

void tell_when_due(Socket &s)
{
    const LockGuard guard(g_turns.lock);
    s.pacing.turn.socket = &s;
    g_turns.wheel.add(s.pacing.turn, s.pacing.held_until.load(std::memory_order_relaxed), now());
    arm();
}

bool is_held(const Socket &s)
{
    const std::uint64_t until = s.pacing.held_until.load(std::memory_order_seq_cst);
    if (until == 0) [[likely]]
        return false;
    return protocol(s).sends_by_endpoint(s) && now() < until;
}

std::int64_t held_until(const Socket &s)
{
    return is_held(s) ? static_cast<std::int64_t>(s.pacing.held_until.load(std::memory_order_acquire)) : INT64_MAX;
}

namespace {

// RLIMIT_NOFILE may be less than there are: the kernel refuses the array. Then all are looked at each turn.
void wait_for_any(pollfd (&fds)[kHelperFds + 1], int milliseconds)
{
    if (libc::real.poll(fds, std::size(fds), milliseconds) >= 0 || errno != EINVAL)
        return;
    libc::real.poll(nullptr, 0, static_cast<int>(std::min(static_cast<unsigned>(milliseconds), helper_turn_ms())));
    for (pollfd &one : fds)
        libc::real.poll(&one, 1, 0);
}

} // namespace

unsigned sleep_and_give_turns(const int (&news)[kHelperFds], int milliseconds)
{
    const std::int64_t end = now_ns() + milliseconds * kMilli;
    for (;;) {
        const int timer = g_turns.timer.load(std::memory_order_acquire);
        pollfd fds[kHelperFds + 1] = {};
        for (std::size_t i = 0; i < kHelperFds; ++i)
            fds[i] = {news[i], POLLIN, 0};
        fds[kHelperFds] = {timer, POLLIN, 0};
        const std::int64_t left = end - now_ns();
        const int timeout =
            milliseconds < 0 ? -1 : static_cast<int>(std::max<std::int64_t>(left + kMilli - 1, 0) / kMilli);
        g_helper.turn.unlock();
        wait_for_any(fds, timeout);
        g_helper.turn.lock();
        std::uint64_t expirations;
        if ((fds[kHelperFds].revents & POLLIN) != 0)
            (void)!libc::real.read(timer, &expirations, sizeof expirations);
        give_turns();
        unsigned found = 0;
        for (std::size_t i = 0; i < kHelperFds; ++i)
            found |= fds[i].revents != 0 ? 1U << i : 0;
        if (found != 0 || fds[kHelperFds].revents == 0 || (milliseconds >= 0 && now_ns() >= end))
            return found;
    }
}

void pacing_after_fork_in_child()
{
    g_turns.lock.reset();
    new (&g_turns.wheel) Wheel;
    g_turns.armed_for = 0;
    if (const int timer = g_turns.timer.exchange(-1); timer >= 0)
        libc::close_private(timer); // the parent's
}

} // namespace vma::sock
