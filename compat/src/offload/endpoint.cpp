// SPDX-License-Identifier: BSD-2-Clause
// The endpoint of a stream: how it is opened and bound, and how it is closed, by which the socket is kernel-only again,
// or will be once what is left is read. Who has one made is offload.cpp.
#include <poll.h>

#include <algorithm>
#include <bit>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/buffers.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/transport/loans.hpp"
#include "compat/src/transport/pacing.hpp"

namespace vma::sock {

namespace {

void clear_transmit(Stream &s) // tx_lock, rx_lock, poll lock held
{
    put_endpoint(s, nullptr);
    s.connecting = false;
    s.tx.forget_endpoint();
    forget_pacing_turn(s);
    s.ready_due = false;
    s.tx_work = false;
}

void clear_receive(Stream &s)
{
    s.rx.forget_endpoint();
    forget_unread(s);
    drop_leftovers(s);
    s.endpoint_down = false;
    s.kernel_news = false;
    s.kernel_state = 0;
}

// What a call that came too late has left behind, while there was no endpoint, is not the next one's.
void begin_anew(Stream &s)
{
    s.tx_lock.lock();
    s.rx_lock.lock();
    engine_exclude_polling(true, ring_of(s));
    clear_transmit(s);
    clear_receive(s);
    engine_exclude_polling(false, ring_of(s));
    s.rx_lock.unlock();
    s.tx_lock.unlock();
}

// Bytes. A program that has made SO_RCVBUF small holds its sender back by that: the ring is no larger than the smallest
// that holds as much, or the smallest that there is.
std::size_t ring_bytes(const Stream &s)
{
    const std::uint32_t most = config::params().stream_ring;
    const std::uint32_t asked = asked_buffers(s.any_fd.load(std::memory_order_relaxed)).receive;
    return asked == 0 || asked > most ? most : std::clamp(std::bit_ceil(asked), config::kLeastStreamRing, most);
}

} // namespace

// Opens, binds and enables an endpoint with a region. 0, or the provider's negative error with nothing left open.
int open_endpoint(Stream &s, fi_info *info, Device &device)
{
    fid_ep *ep = nullptr;
    transport(s).prepare(s, *info);
    int result = fi_endpoint(device.domain, info, &ep, &s);
    if (result != 0)
        return result;
    const std::size_t ring = ring_bytes(s);
    fi_vma_region region = {};
    std::size_t size = sizeof region;
    result = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &ring, sizeof ring);
    if (result == 0)
        result = transport(s).prepared(s, *ep);
    if (result == 0)
        result = fi_ep_bind(ep, &device.eq->fid, 0);
    const bool local = &device == &engine_device();
    fid_cq *const cq = local ? queue_of_ring(engine_objects(), enter_ring(s)) : device.cq;
    if (local && s.guest && s.ring == 0)
        result = -FI_ENOSPC; // the main ring takes no guests, and no other is left
    if (result == 0)
        result = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (result == 0)
        result = fi_enable(ep);
    if (result == 0)
        result = fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &region, &size);
    if (result != 0) {
        fi_close(&ep->fid);
        if (local)
            leave_ring(s);
        return result;
    }
    begin_anew(s);
    s.rx.base = static_cast<const std::uint8_t *>(region.base);
    s.rx.ring = region.len;
    put_endpoint(s, ep);
    s.connecting = true;
    s.device = &device;
    ++device.users;
    const LockGuard guard(s.tx_lock);
    adopt_pacing_rate(s, s.any_fd.load(std::memory_order_relaxed));
    return 0;
}

namespace {

// offload lock held. `keep_unread`: the program will go on reading.
void close_endpoint(Stream &s, bool keep_unread, Closing closing = Closing::kNow)
{
    const bool was_offloaded = offloaded(s);
    if (s.endpoint == nullptr && (!was_offloaded || (keep_unread && holds_leftovers(s))))
        return; // nothing is open, or another call has closed it and the rest is still to be read
    if (was_offloaded && !may_close(s)) {
        VMA_LOG(kDebug, "ending: FINAL sent %d, seen %d, %u tags unanswered, endpoint %s", s.tx.final_sent.load(),
                s.rx.final_seen.load(), s.tx.unseen.load(), s.endpoint_down.load() ? "down" : "up");
        abort_stream(s, "the peer does not answer");
    }
    transport(s).publish(s);
    s.tx_lock.lock();
    s.rx_lock.lock();
    fid_ep *const ep = s.endpoint;
    const bool spans = ep != nullptr && was_offloaded && transport(s).spans;
    if (keep_unread && spans)
        finish_resend(s);
    const RingMask rings = ring_of(s);
    engine_exclude_polling(true, rings);
    part_from_loans(s);
    const bool kept = spans && keep_unread && keep_leftovers(s);
    if (ep != nullptr)
        transport(s).leave(s);
    const bool later = closing == Closing::kBehindFork && !kept && s.rx.cut && ep != nullptr && retire(s, *ep);
    clear_transmit(s);
    if (!kept) {
        clear_receive(s);
        if (was_offloaded)
            s.mode.store(mode_without_endpoint(s), std::memory_order_release);
    }
    if (ep != nullptr && !later) {
        fi_close(&ep->fid);
        --s.device->users;
    }
    engine_exclude_polling(false, rings);
    if (ep != nullptr && s.device == &engine_device())
        leave_ring(s);
    s.rx_lock.unlock();
    s.tx_lock.unlock();
    if (!was_offloaded)
        return;
    s.used.store(true, std::memory_order_relaxed); // its next call is not its first one, and waits for no offer
    if (!kept)
        tell_migration(s);
    if (ep != nullptr)
        remove_live(g_offload.live, s);
    engine_update_active();
    s.operations.store(0, std::memory_order_relaxed);
    s.ask_holders_after.store(0, std::memory_order_relaxed);
    s.attempt.again_at = 0;
    if (!kept)
        kMultiplexers.became_kernel_only(s);
    notify(s, POLLIN | POLLOUT); // who sleeps until the ring has room has not asked the kernel for any
}

} // namespace

void discard_endpoint(Stream &s)
{
    close_endpoint(s, true);
}

namespace {

// Offload lock held: no other endpoint comes.
bool is_left(Stream &s)
{
    s.tx_lock.lock();
    s.rx_lock.lock();
    const bool left = s.endpoint == nullptr || !offloaded(s) || !transport(s).spans || (s.tx.final && s.rx.leaving);
    s.rx_lock.unlock();
    unlock_tx(s);
    return left;
}

void fall_back_locked(Socket &s, bool keep_unread, Closing closing = Closing::kNow)
{
    protocol(s).fall_back(s, keep_unread, closing);
}

} // namespace

namespace tcp {

void fall_back(Stream &s, bool keep_unread, Closing closing)
{
    withdraw_offer(s);
    end_attempt(s);
    close_endpoint(s, keep_unread, closing);
}

// Of two that leave at once each hears the other's END: no READY is to answer it, which asks the kernel three times.
void stop_offloading(Stream &s)
{
    if (!offloaded(s))
        return fall_back(s, true, Closing::kNow);
    if (s.endpoint == nullptr)
        return; // no span comes, and the lock may be held for long
    const LockGuard guard(s.rx_lock);
    s.rx.leaving |= transport(s).ordered;
}

} // namespace tcp

void stop_offloading(Socket &s)
{
    const LockGuard guard(g_offload.lock);
    protocol(s).stop_offloading(s);
}

void fall_back(Socket &s, bool keep_unread)
{
    const LockGuard guard(g_offload.lock);
    fall_back_locked(s, keep_unread);
}

bool close_left(Stream &s, Closing closing)
{
    const LockGuard guard(g_offload.lock);
    if (!is_left(s))
        return false;
    fall_back_locked(s, true, closing);
    return true;
}

bool discard_left(Stream &s)
{
    const bool left = is_left(s);
    if (left)
        discard_endpoint(s);
    return left;
}

void drop_rest(Stream &s)
{
    const LockGuard guard(g_offload.lock);
    if (s.endpoint == nullptr) // another thread may have done it, and the socket have been offloaded again
        fall_back_locked(s, false);
}

} // namespace vma::sock
