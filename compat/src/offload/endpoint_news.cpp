// SPDX-License-Identifier: BSD-2-Clause
// What the event queue says of an endpoint: it is connected, it has ended; and what follows when both directions have.
// The helper thread alone calls this, with the offload lock held.
#include <poll.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/transport/port.hpp"

namespace vma::sock {

namespace {

constexpr std::size_t kMinRing = 4096;

Stream *socket_of(fid_ep *endpoint)
{
    auto *const s = static_cast<Stream *>(endpoint->fid.context);
    return s != nullptr && s->endpoint == endpoint ? s : nullptr;
}

// One that other processes may have can't until this process has it alone.
void no_set_follows(Stream &s)
{
    discard_endpoint(s);
    if (!s.mux.shared.load(std::memory_order_relaxed))
        return refuse_offload(s, "an epoll set of it can't follow");
    try_later(s, kMostDoublingsForSets);
    attaching_was_refused(s);
}

} // namespace

void on_connected(fid_ep *endpoint)
{
    Stream *const s = socket_of(endpoint);
    if (s == nullptr)
        return;
    std::size_t ring = 0;
    std::size_t size = sizeof ring;
    if (fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PEER_REGION), &ring, &size) != 0 ||
        ring < kMinRing || (ring & (ring - 1)) != 0) {
        VMA_LOG(kWarn,
                "the peer's process offers a ring of %zu bytes, expected a power of two from %zu; the connection stays "
                "on the kernel",
                ring, kMinRing);
        discard_endpoint(*s);
        return;
    }
    if (s->remote || s->guest)
        attempt_succeeded(*s);
    s->tx.ring = ring;
    s->connecting = false;
    // Only what may be offloaded still: who has given the socket to another process, or to the kernel for good,
    // meanwhile, counts on it.
    Mode kernel_only = Mode::kKernelOnly;
    if (s->pinned.load(std::memory_order_acquire) ||
        !s->mode.compare_exchange_strong(kernel_only, Mode::kOffloaded, std::memory_order_seq_cst)) {
        discard_endpoint(*s);
        return;
    }
    add_live(g_offload.live, *s);
    g_due.add(s->index);
    engine_update_active();
    if (!kMultiplexers.became_offloaded(*s)) {
        no_set_follows(*s);
        return;
    }
    s->told = true;
    s->was_accelerated = true;
    s->left_after = s->operations.load(std::memory_order_relaxed);
    if (!s->remote && !s->guest)
        learn_about_peer(*s);
    tell_migration(*s);
    char name[kNameMax];
    VMA_LOG(kDetails, "%s: accelerated: device %s, ring %zu bytes, after %u sends and receives",
            connection_name(*s, name), s->device->name, ring, s->operations.load(std::memory_order_relaxed));
    if (s->ring != 0)
        VMA_LOG(kDebug, "%s: on ring %u", connection_name(*s, name), unsigned{s->ring});
    transport(*s).offloaded(*s);
    kick_sleepers();
    if (s->send_shut.load(std::memory_order_seq_cst)) { // while it was kernel-only: nothing is sent any more
        s->tx_lock.lock();
        end_transmit(*s, true);
        unlock_tx(*s);
    } else {
        try_tx_work(*s); // READY may have come before
    }
    LockGuard rx(s->rx_lock);
    s->ready_due.store(true, std::memory_order_seq_cst);
    try_ready(*s);
}

void on_down(fid_ep *endpoint, const char *why)
{
    Stream *const s = socket_of(endpoint);
    if (s == nullptr)
        return;
    notify(*s, 0);
    transport(*s).went_down(*s, why);
}

void ring_went_down(Stream &s, const char *why)
{
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: endpoint ended: %s", connection_name(s, name), why);
    if (!offloaded(s)) { // refused: the offer was stale, or the peer could not take it then
        discard_endpoint(s);
        attempt_failed(s);
        attaching_was_refused(s);
        return;
    }
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), why, true);
    engine_drain(ring_of(s));
    s.endpoint_down.store(true, std::memory_order_release);
    try_tx_work(s);
    notify(s, POLLIN | POLLOUT | POLLRDHUP);
}

namespace {

// The kernel has bytes, or the peer's have ended as well: what was told of them once would be told again by the
// kernel's own set.
bool stays_for_edges(Stream &s)
{
    if (!kMultiplexers.tells_edges(s))
        return false;
    pollfd p = {s.any_fd.load(std::memory_order_relaxed), POLLIN | POLLRDHUP, 0};
    return libc::uncancelled::poll_now(&p, 1) > 0;
}

} // namespace

// offload lock held by the helper thread
void finish_if_done(Stream &s)
{
    if (!s.endpoint_down.load(std::memory_order_acquire) || !s.tx_lock.try_lock())
        return;
    do_tx_work(s);
    bool done = s.tx.resend_from == kNone;
    s.tx_lock.unlock();
    if (!done || !s.rx_lock.try_lock())
        return;
    settle(s);
    done = s.rx.path.load(std::memory_order_relaxed) == Path::kKernel &&
           !s.rx.returning.load(std::memory_order_relaxed) &&
           (s.rx.start_at.load(std::memory_order_relaxed) == kNone || s.rx.final) &&
           s.pending_error.load(std::memory_order_relaxed) == 0; // the kernel would not say that there is one
    s.rx_lock.unlock();
    if (done && !stays_for_edges(s))
        discard_endpoint(s);
}

} // namespace vma::sock
