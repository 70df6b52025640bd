// SPDX-License-Identifier: BSD-2-Clause
// What the peer tells us about a stream, the watchers that hear of it, and the helper thread's tick over it.
#include <errno.h>
#include <poll.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/fence.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/pacing.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

void violation(Stream &s, const char *what)
{
    VMA_LOG(kWarn, "fd=%d: the peer's process breaks the stream protocol", s.any_fd.load(std::memory_order_relaxed));
    abort_stream(s, what);
}

namespace {

constexpr std::uint32_t kWritesPerCredit = 32; // fewer than the slots of an endpoint

void on_data(Stream &s, std::uint64_t value, std::size_t len)
{
    Receiver &rx = s.rx;
    const std::uint64_t written = rx.written.load(std::memory_order_relaxed);
    const std::uint64_t held = written - rx.consumed.load(std::memory_order_acquire);
    if ((value & ~kAfterKernel) != len || len > rx.ring - held) {
        violation(s, "more bytes than the ring holds");
        return;
    }
    rx.written.store(written + len, std::memory_order_release);
    stats::Arrived &in = record_of(s).now.in;
    stats::add(in.bytes, len);
    stats::raise(in.most_bytes, held + len);
    if (++rx.uncredited_writes >= kWritesPerCredit) {
        rx.uncredited_writes = 0;
        send_credit(s);
    }
    notify(s, (value & kAfterKernel) != 0 ? POLLIN : POLLIN | kNothingBefore);
}

void on_credit(Stream &s, std::uint64_t total)
{
    if (s.tx.slots_blocked.load(std::memory_order_relaxed))
        s.tx.slots_blocked.store(false, std::memory_order_seq_cst); // as the credit
    std::uint64_t credit = s.tx.credit.load(std::memory_order_relaxed);
    if (total > credit) {
        s.tx.told_full.store(false, std::memory_order_relaxed);
        s.tx.credit.store(total, std::memory_order_seq_cst); // before found_full is looked at: see has_room()
    }
    if (s.tx_work.load(std::memory_order_acquire) || s.tx.path.load(std::memory_order_relaxed) == Path::kKernel)
        try_tx_work(s);
    fence_after_exchange();
    if (s.tx.found_full.load(std::memory_order_seq_cst) && can_transmit(s)) {
        s.tx.found_full.store(false, std::memory_order_relaxed);
        notify(s, POLLOUT);
    }
}

void on_end(Stream &s, std::uint64_t total)
{
    Receiver &rx = s.rx;
    if (total < rx.consumed.load(std::memory_order_acquire) || total > rx.written.load(std::memory_order_relaxed)) {
        violation(s, "a span ends where it never was");
        return;
    }
    const bool answer = total == rx.consumed.load(std::memory_order_acquire);
    rx.written.store(total, std::memory_order_release); // what stood behind was taken back
    forget_unread(s, total - rx.consumed.load(std::memory_order_acquire));
    rx.ended.store(true, std::memory_order_release);
    rx.end_at.store(total, std::memory_order_release);
    if (!answer) // it ended by itself before it saw our RETURN: the rest is in the ring
        rx.returning.store(false, std::memory_order_release);
    if (s.rx_lock.try_lock()) {
        settle(s);
        s.rx_lock.unlock();
    }
    constexpr std::uint32_t kTold = POLLRDHUP | POLLHUP | POLLERR; // above them it is counted
    const bool heard =
        s.kernel_news.load(std::memory_order_acquire) || (s.kernel_state.load(std::memory_order_relaxed) & kTold) != 0;
    notify(s, POLLIN | POLLOUT | POLLRDHUP | (transport(s).ordered && !heard ? kBeforeEnd : 0));
}

} // namespace

void handle_tag(Stream &s, std::uint64_t tag, std::size_t len)
{
    const std::uint64_t value = tag >> kTagTypeBits;
    if (static_cast<Tag>(tag) != Tag::kData || (value & kAfterKernel) != 0)
        notify(s, 0);
    switch (static_cast<Tag>(tag)) {
    case Tag::kData:
        on_data(s, value, len);
        return;
    case Tag::kCredit:
        on_credit(s, value);
        return;
    case Tag::kReady:
        s.tx.peer_ready.store(true, std::memory_order_release);
        s.tx_work.store(true, std::memory_order_release);
        try_tx_work(s);
        return;
    case Tag::kStart:
        if (value < s.rx.kernel_bytes.load(std::memory_order_relaxed)) {
            violation(s, "a span starts before bytes that came by the kernel");
            return;
        }
        s.rx.ended.store(false, std::memory_order_relaxed);
        s.rx.start_at.store(value, std::memory_order_release);
        g_due.add(s.index); // until it is known where it is
        transport(s).start_came(s);
        return;
    case Tag::kEnd:
        on_end(s, value);
        return;
    case Tag::kReturn:
        s.tx.return_at.store(value, std::memory_order_release);
        s.tx_work.store(true, std::memory_order_release);
        try_tx_work(s);
        notify(s, POLLOUT);
        return;
    default:
        break;
    }
    if (!transport(s).handle_tag(s, static_cast<Tag>(tag)))
        violation(s, "unknown tag");
}

bool tells_what_came_before(const Socket &s)
{
    return protocol(s).tells_what_came_before(s);
}

void notify(Socket &s, std::uint32_t events)
{
    // Whoever watches looks after that what is true already. So he sees what has changed here, or is seen: the second
    // look comes after all that was stored before it.
    if (s.watchers.load(std::memory_order_relaxed) == nullptr &&
        s.watchers.fetch_add(0, std::memory_order_seq_cst) == nullptr)
        return;
    LockGuard guard(s.watch_lock);
    for (Watcher *w = s.watchers.load(std::memory_order_relaxed); w != nullptr; w = w->next)
        w->notify(w, events);
}

void watch(Socket &s, Watcher &w)
{
    LockGuard guard(s.watch_lock);
    w.socket = &s;
    w.prev = nullptr;
    w.next = s.watchers.load(std::memory_order_relaxed);
    if (w.next != nullptr)
        w.next->prev = &w;
    s.watchers.store(&w, std::memory_order_seq_cst);
    fence_after_exchange(); // the look that comes now, against notify()
    if (!w.keeps_time && is_held(s)) [[unlikely]]
        tell_when_due(s);
}

void unwatch(Watcher &w)
{
    Socket *const s = w.socket;
    if (s == nullptr)
        return;
    LockGuard guard(s->watch_lock);
    if (w.next != nullptr)
        w.next->prev = w.prev;
    if (w.prev != nullptr)
        w.prev->next = w.next;
    else
        s->watchers.store(w.next, std::memory_order_seq_cst);
    w.socket = nullptr;
    w.next = w.prev = nullptr;
}

namespace {

// rx_lock held. False: the peer is sending again what is here, which it does since we said RETURN.
bool cut_receiver(Stream &s)
{
    Receiver &rx = s.rx;
    int result = 0;
    rx.leaving = true;
    if (s.endpoint != nullptr)
        while ((result = fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_CUT), nullptr, 0)) ==
               -FI_EAGAIN)
            engine_drain(ring_of(s));
    if (result == -FI_EBUSY) {
        engine_drain(ring_of(s)); // all that it will send again is counted: it has claimed that, and writes no more
        return false;
    }
    if (result == -FI_EIO)
        violation(s, "a cut behind what was written");
    if (result == -FI_ENORX) // and stays: no read of the queue makes room for it
        violation(s, "a message, for which nobody posts a receive");
    engine_drain(ring_of(s)); // what was accepted is counted
    rx.cut = s.endpoint != nullptr && result == 0;
    rx.returning.store(false, std::memory_order_release);
    const bool in_span = rx.path.load(std::memory_order_relaxed) == Path::kEndpoint || rx.start_at != kNone;
    rx.final |= !in_span;
    if (in_span && rx.end_at.load(std::memory_order_acquire) == kNone)
        rx.end_at.store(rx.written.load(std::memory_order_relaxed), std::memory_order_release);
    settle(s);
    return true;
}

} // namespace

void return_receiver(Stream &s)
{
    settle(s);
    Receiver &rx = s.rx;
    rx.leaving = true;
    if (s.endpoint == nullptr || rx.final || rx.returning.load(std::memory_order_relaxed) ||
        rx.end_at.load(std::memory_order_acquire) != kNone)
        return;
    if (rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
        rx.start_at.load(std::memory_order_acquire) == kNone &&
        s.ready_due.exchange(false, std::memory_order_acq_rel)) {
        rx.final = true; // READY was never sent: the peer can't have started
        return;
    }
    rx.returning.store(true, std::memory_order_release);
    if (!send_tag(s, Tag::kReturn, rx.consumed.load(std::memory_order_relaxed)))
        rx.returning.store(false, std::memory_order_release);
    else // we wait for the answer, and what the peer's program sends until then would come by the kernel as well
        fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_NUDGE), nullptr, 0);
}

void start_leaving(Socket &s, Heir heir)
{
    protocol(s).start_leaving(s, heir);
}

void shared_ring_start_leaving(Stream &s, Heir heir)
{
    engine_drain(ring_of(s)); // an END that is already published decides instead of our RETURN
    s.tx_lock.lock();
    if (offloaded(s)) {
        end_transmit(s, true);
        finish_resend(s);
    }
    unlock_tx(s);
    const LockGuard guard(s.rx_lock);
    if (!offloaded(s)) // it has ended meanwhile: nothing of this is for the next one
        return;
    if (heir == Heir::kAnybody && !s.endpoint_down.load(std::memory_order_acquire))
        return_receiver(s);
    else
        cut_receiver(s);
}

void give_up_waiting(Stream &s)
{
    transport(s).give_up_waiting(s);
}

void shared_ring_give_up_waiting(Stream &s)
{
    const auto unanswered = [&s] {
        return s.rx.returning.load(std::memory_order_acquire) && s.rx.end_at.load(std::memory_order_acquire) == kNone;
    };
    const LockGuard guard(s.rx_lock);
    if (unanswered())
        cut_receiver(s); // unless the peer has begun: then it ends that, or resets the connection
}

namespace {

// What the peer gave back has not all found room in the kernel yet.
bool is_giving_back(const Stream &s)
{
    return transport(s).spans && (s.tx.resend_from.load(std::memory_order_relaxed) != kNone ||
                                  s.tx.return_at.load(std::memory_order_relaxed) != kNone);
}

} // namespace

bool is_returning(const Stream &s)
{
    if (is_giving_back(s))
        return true;
    if (s.endpoint_down.load(std::memory_order_acquire))
        return false;
    return (s.rx.returning.load(std::memory_order_acquire) && s.rx.end_at.load(std::memory_order_acquire) == kNone) ||
           !may_close(s);
}

void tick(Stream &s)
{
    if (s.tx_work.load(std::memory_order_acquire))
        try_tx_work(s);
    if (s.tx.slots_blocked.load(std::memory_order_acquire))
        look_for_slots(s);
    transport(s).tick(s);
    if (!s.rx_lock.try_lock())
        return;
    if (s.rx.credit_due.load(std::memory_order_relaxed))
        send_credit(s);
    if (s.rx.start_at.load(std::memory_order_acquire) != kNone &&
        s.rx.path.load(std::memory_order_relaxed) == Path::kKernel) [[unlikely]]
        find_start(s);
    if (s.ready_due.load(std::memory_order_relaxed))
        try_ready(s);
    s.rx_lock.unlock();
}

} // namespace vma::sock
