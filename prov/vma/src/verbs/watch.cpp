// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/watch.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "verbs/clock.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/srx.hpp"

namespace vma::verbs {

std::uint64_t Watch::interval() const noexcept
{
    const std::uint64_t a = keep_alive != 0 ? keep_alive / 4 : UINT64_MAX;
    const std::uint64_t b = send_timeout != 0 ? send_timeout / kMarks : UINT64_MAX;
    return std::min(a, b);
}

void Watch::restart(std::uint64_t now) noexcept
{
    since = now;
    probe = kNoProbe;
    std::fill(std::begin(marks), std::end(marks), Mark{});
}

std::uint64_t Watch::overdue(std::uint64_t now, std::uint64_t done) const noexcept
{
    std::uint64_t last = 0;
    for (const Mark &mark : marks) {
        if (mark.posted > done && now - mark.when >= send_timeout)
            last = std::max(last, mark.posted);
    }
    return send_timeout != 0 ? last : 0;
}

// ---- what an endpoint does with it ---------------------------------------------------------------------------------

int Endpoint::set_timeout(int name, const void *value, std::size_t length) noexcept
{
    std::uint64_t us;
    if (!value || length != sizeof us)
        return -FI_EINVAL;
    std::memcpy(&us, value, sizeof us);
    if (us != 0 && (us < kLeastTimeout || us > kMostTimeout))
        return -FI_EINVAL;
    const std::lock_guard guard(manager.mutex());
    if (!watch) {
        if (us == 0)
            return 0;
        if (const int error = manager.open_timer())
            return error;
        watch.reset(new (std::nothrow) Watch);
        if (!watch)
            return -FI_ENOMEM;
        watch->alarm.object = this;
        watch->alarm.call = [](void *object) noexcept { static_cast<Endpoint *>(object)->look_at_peer(); };
    }
    (static_cast<unsigned>(name) == FI_OPT_VMA_SEND_TIMEOUT ? watch->send_timeout : watch->keep_alive) = us * 1000;
    if (is_enabled)
        need_locks();
    if (phase == Phase::connected)
        start_watch();
    return 0;
}

std::uint64_t Endpoint::timeout(int name) noexcept
{
    const std::lock_guard guard(manager.mutex());
    if (!watch)
        return 0;
    return (static_cast<unsigned>(name) == FI_OPT_VMA_SEND_TIMEOUT ? watch->send_timeout : watch->keep_alive) / 1000;
}

// Connection management drains the queues from now on, in whatever thread reads an event queue: a promise to keep
// threads apart in the domain does not cover that. Nobody is in a call on the domain now, if it was made.
void Endpoint::need_locks() noexcept
{
    if (domain.needs_locks())
        return;
    domain.threading = FI_THREAD_SAFE;
    const auto enable = [](Endpoint &endpoint) {
        endpoint.tx_lock.set_enabled(true);
        endpoint.rx_lock.set_enabled(true);
        if (endpoint.shared)
            endpoint.shared->lock.set_enabled(true);
    };
    enable(*this);
    for (Queue *queue : {tx_queue, rx_queue}) {
        queue->lock.set_enabled(true);
        for (const auto &[number, endpoint] : queue->by_qp)
            enable(*endpoint);
    }
}

void Endpoint::start_watch() noexcept
{
    const std::uint64_t now = now_ns();
    watch->restart(now);
    if (watch->interval() != UINT64_MAX)
        manager.set_alarm(watch->alarm, now + watch->interval());
    else
        manager.clear_alarm(watch->alarm);
}

// A write of no bytes: the peer's device answers it, and its program never hears of it. The number of it, or kNoProbe.
std::uint64_t Endpoint::probe() noexcept
{
    const core::SpinGuard guard(tx_lock);
    if (tx.full() || (batch && batch->count != 0))
        return kNoProbe;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (post_locked(wr, {}) != 0)
        return kNoProbe;
    unsignaled = 0;
    return wr.wr_id;
}

// Whether the peer has been silent for too long. While operations are under way their retries are the probe, and one
// that waits for a receive is no sign of death: so a probe goes into an empty queue, and counts as unanswered only at
// its head.
bool Endpoint::is_silent(std::uint64_t now, std::uint64_t done, bool may_probe) noexcept
{
    Watch &w = *watch;
    const std::uint64_t life = done + (shared ? 0 : rx.done());
    if (life != w.life || w.keep_alive == 0) {
        w.life = life;
        w.since = now;
        w.probe = kNoProbe;
    } else if (w.probe != kNoProbe) {
        return done == w.probe && now - w.probed >= w.keep_alive;
    } else if (may_probe && now - w.since >= w.keep_alive) {
        w.probe = probe();
        w.probed = now;
    }
    return false;
}

// With the manager's mutex held.
void Endpoint::look_at_peer() noexcept
{
    if (phase != Phase::connected)
        return;
    for (Queue *queue : {tx_queue, rx_queue}) {
        const core::SpinGuard guard(queue->lock);
        queue->drain(); // what is complete and not read yet is complete
    }
    if (const char *why = broken_why.load(std::memory_order_acquire))
        return on_broken(why);
    const std::uint64_t now = now_ns();
    const std::uint64_t done = tx.done();
    std::uint64_t posted;
    bool untold; // the last ones are not going to tell when they are complete
    {
        const core::SpinGuard guard(tx_lock);
        posted = tx.next() - (batch ? batch->count : 0);
        untold = posted > done && unsignaled != 0;
    }
    if (const std::uint64_t late = watch->overdue(now, done)) {
        overdue.store(late, std::memory_order_relaxed);
        return on_broken("an operation was not complete in the time of FI_OPT_VMA_SEND_TIMEOUT");
    }
    if (is_silent(now, done, posted == done || untold)) {
        overdue.store(posted, std::memory_order_relaxed);
        return on_broken("the peer gave no sign of life in the time of FI_OPT_VMA_KEEPALIVE_TIMEOUT");
    }
    if (watch->send_timeout != 0) {
        watch->marks[watch->next_mark++ % Watch::kMarks] = {now, posted};
        if (untold)
            probe();
    }
    manager.set_alarm(watch->alarm, now + watch->interval());
}

} // namespace vma::verbs
