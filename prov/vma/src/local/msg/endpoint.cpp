// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint: opening, binding, options, joining with a peer, the end.
#include "local/msg/endpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <sched.h>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/msg/srx.hpp"
#include "ofi/bind.hpp"
#include "ofi/cntr.hpp"
#include "ofi/eq.hpp"
#include "ofi/give_option.hpp"
#include "ofi/rate_limit.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

constexpr std::size_t kMaxRegion = std::size_t{1} << 30;
constexpr std::size_t kDefaultQueueSize = 256;
constexpr std::size_t kInjectSize = 4096;

} // namespace

Endpoint::Endpoint(ofi::Domain &domain, const fi_info *info) noexcept : domain_(domain)
{
    const bool locks = domain.needs_locks();
    const fi_tx_attr *tx = info ? info->tx_attr : nullptr;
    const fi_rx_attr *rx = info ? info->rx_attr : nullptr;
    sender.set_up(*this, locks, tx && tx->size ? tx->size : kDefaultQueueSize);
    receiver.endpoint = this;
    rx_size_ = rx && rx->size ? rx->size : kDefaultQueueSize;
    tx_flags = tx ? tx->op_flags : 0;
    rx_flags = rx ? rx->op_flags : 0;
    inject_size = tx && tx->inject_size ? tx->inject_size : kInjectSize;
    caps_ = info ? info->caps : 0;
    mr_observer_.object = this;
    mr_observer_.revoke = revoke_grants;
}

int Endpoint::bind(struct fid *what, std::uint64_t flags) noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    switch (what->fclass) {
    case FI_CLASS_CQ:
        return ofi::bind_queue(domain_, static_cast<Queue &>(ofi::cq_of(what)), flags, {sender.queue, tx_selective_},
                               {receiver.queue, rx_selective_});
    case FI_CLASS_EQ:
        return cm_bind_eq(*this, *reinterpret_cast<ofi::Eq *>(what));
    case FI_CLASS_CNTR:
        return ofi::bind_counter(domain_, ofi::cntr_of(what), flags,
                                 {{FI_SEND, sender.send_counter},
                                  {FI_WRITE, sender.write_counter},
                                  {FI_READ, sender.read_counter},
                                  {FI_RECV, receiver.receive_counter},
                                  {FI_REMOTE_WRITE, receiver.remote_write_counter},
                                  {FI_REMOTE_READ, receiver.remote_read_counter}});
    case FI_CLASS_SRX_CTX:
        if (shared_)
            return -FI_EINVAL;
        shared_ = reinterpret_cast<SharedReceive *>(what);
        shared_->refs.fetch_add(1, std::memory_order_relaxed);
        return 0;
    default:
        return -FI_EINVAL;
    }
}

void Endpoint::for_counters(void (ofi::Cntr::*action)(const ofi::ProgressSource &) noexcept) noexcept
{
    for (ofi::Cntr *counter : {sender.send_counter, sender.write_counter, sender.read_counter}) {
        if (counter)
            (counter->*action)(sender.queue->source());
    }
    for (ofi::Cntr *counter : {receiver.receive_counter, receiver.remote_write_counter, receiver.remote_read_counter}) {
        if (counter)
            (counter->*action)(receiver.queue->source());
    }
}

int Endpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    const bool counts_tx = sender.send_counter || sender.write_counter || sender.read_counter;
    const bool counts_rx = receiver.receive_counter || receiver.remote_write_counter || receiver.remote_read_counter;
    if ((!sender.queue && !counts_tx) || (!receiver.queue && !counts_rx))
        return -FI_ENOCQ;
    int error = 0;
    if (!sender.queue && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, sender.queue)))
        return error;
    if (!receiver.queue && (error = ofi::own_queue(domain_, open_cq, hidden_queue_, receiver.queue)))
        return error;
    if (sender.paced() && (error = open_timer()))
        return error;
    mrs_ = ofi::mr_table(domain_);
    if (!mrs_)
        return -FI_ENOMEM;
    if (!shared_) {
        own_receives_.reset(new (std::nothrow) RxQueue(rx_size_, domain_.needs_locks()));
        if (!own_receives_)
            return -FI_ENOMEM;
    }
    receiver.receives = shared_ ? &shared_->receives : own_receives_.get();
    receiver.context = fid.fid.context;
    // What a link has kept is of no use on another one: if the link ends before the offer, there is no connection. That
    // is for streams, which go on without one.
    std::shared_ptr<LinkSegments> kept = std::move(cm.segments);
    if (region_bytes_ == 0 || domain_.fabric.orphaned())
        kept.reset();
    if ((error = receiver.create(region_bytes_, std::move(kept))))
        return error;
    if (receiver.remote_write_counter || receiver.remote_read_counter)
        receiver.slots.control().rma_notify.store(1, std::memory_order_relaxed);
    if ((error = accompany(*sender.queue, *receiver.queue)))
        return error;
    {
        const core::SpinGuard guard(receiver.queue->lock);
        error = receiver.queue->add(*this);
        if (error == 0)
            ++receiver.queue->endpoints;
    }
    if (error != 0) {
        part(*sender.queue, *receiver.queue);
        return error;
    }
    {
        const core::SpinGuard guard(sender.queue->lock);
        ++sender.queue->endpoints;
    }
    for_counters(&ofi::Cntr::add_source);
    mrs_->add_source(receiver.queue->source());
    enabled_ = true;
    return 0;
}

int Endpoint::open_timer() noexcept
{
    const core::SpinGuard guard(sender.queue->lock);
    return sender.queue->open_timer();
}

int Endpoint::set_limit(const void *value, std::size_t length) noexcept
{
    fi_vma_rate_limit limit;
    if (const int error = ofi::read_rate_limit(value, length, limit))
        return error;
    if (enabled_ && limit.rate) {
        if (const int error = open_timer())
            return error;
    }
    sender.set_limit(limit);
    return 0;
}

int Endpoint::warm(const void *value, std::size_t length) noexcept
{
    fi_vma_warm wanted{};
    if (!value || length != sizeof wanted)
        return -FI_EINVAL;
    std::memcpy(&wanted, value, sizeof wanted);
    return sender.warm(wanted.offset, wanted.length);
}

int Endpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    if (static_cast<unsigned>(name) == FI_OPT_VMA_RATE_LIMIT)
        return set_limit(value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_WARM)
        return warm(value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_CUT)
        return length == 0 ? cut() : -FI_EINVAL;
    if (static_cast<unsigned>(name) == FI_OPT_VMA_NUDGE)
        return length == 0 ? cm_nudge(*this) : -FI_EINVAL;
    if (static_cast<unsigned>(name) == FI_OPT_VMA_TCP_SOCKET)
        return cm_stand_beside(*this, value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_LINK)
        return cm_use_link(*this, value, length);
    if (static_cast<unsigned>(name) == FI_OPT_VMA_DISCARD)
        return discard(value, length);
    if (static_cast<unsigned>(name) != FI_OPT_VMA_REGION)
        return -FI_ENOPROTOOPT;
    if (enabled_)
        return -FI_EOPBADSTATE;
    std::size_t bytes;
    if (!value || length != sizeof bytes)
        return -FI_EINVAL;
    std::memcpy(&bytes, value, sizeof bytes);
    if (bytes == 0 || bytes > kMaxRegion)
        return -FI_EINVAL;
    region_bytes_ = bytes;
    return 0;
}

int Endpoint::give_view(void *value, std::size_t *length) noexcept
{
    const void *view = nullptr;
    if (!attached_)
        return -FI_ENOTCONN;
    return sender.view_region(view) ? ofi::give_option<const void *>(view, value, length) : -FI_ESHUTDOWN;
}

int Endpoint::discard(const void *value, std::size_t length) noexcept
{
    fi_vma_range range;
    if (length != sizeof range)
        return -FI_EINVAL;
    std::memcpy(&range, value, sizeof range);
    if (guest != nullptr) // who has the descriptor can keep who punches holes waiting
        return -FI_EOPNOTSUPP;
    return attached_ ? sender.discard_region(range.offset, range.length) : -FI_ENOTCONN;
}

// FI_OPT_VMA_CUT. Nobody is waited for: the peer's word, if there is one, was said when its slots were visible.
int Endpoint::cut() noexcept
{
    if (!attached_)
        return -FI_ENOTCONN;
    SlotReader &slots = receiver.slots;
    const core::SpinGuard guard(receiver.queue->lock);
    if (!receiver.open.load(std::memory_order_relaxed))
        return 0; // cut before, or never to be read again
    const auto drain = [this] {
        receiver.queue->drain(*this);
        return receiver.open.load(std::memory_order_relaxed) && !failing.load(std::memory_order_relaxed);
    };
    switch (slots.cut(drain)) {
    case SlotReader::Cut::full:
        return stalled.load(std::memory_order_relaxed) ? -FI_ENORX : -FI_EAGAIN;
    case SlotReader::Cut::claimed:
        return -FI_EBUSY;
    case SlotReader::Cut::lied:
        fail("it cut off slots that it did not fill, or fills more and more");
        return -FI_EIO;
    case SlotReader::Cut::ended:
        return failing.load(std::memory_order_relaxed) ? -FI_EIO : 0;
    case SlotReader::Cut::here:
        receiver.open.store(false, std::memory_order_release);
        break;
    }
    return 0;
}

int Endpoint::get_option(int name, void *value, std::size_t *length) noexcept
{
    switch (static_cast<unsigned>(name)) {
    case FI_OPT_CM_DATA_SIZE:
        return ofi::give_option<std::size_t>(256, value, length);
    case FI_OPT_VMA_REGION:
        return enabled_ ? ofi::give_option(own_region(), value, length) : -FI_EOPBADSTATE;
    case FI_OPT_VMA_KEEP_REGION:
        if (!enabled_)
            return -FI_EOPBADSTATE;
        receiver.keeps_segment = true;
        return ofi::give_option(fi_vma_mapping{receiver.segment.mapping.data(), receiver.segment.mapping.size()}, value,
                                length);
    case FI_OPT_VMA_PEER_REGION:
        return attached_ ? ofi::give_option<std::size_t>(sender.region_length(), value, length) : -FI_ENOTCONN;
    case FI_OPT_VMA_REUSED:
        return enabled_ ? ofi::give_option<int>(receiver.segment.was_kept() ? 1 : 0, value, length) : -FI_EOPBADSTATE;
    case FI_OPT_VMA_REGION_INJECT:
        return ofi::give_option<std::size_t>(kMaxRegion, value, length);
    case FI_OPT_VMA_PLACE:
        return enabled_ && receiver.queue != nullptr && guest == nullptr
                   ? ofi::give_option<std::uint32_t>(bit % kPlaces, value, length)
                   : -FI_EOPBADSTATE;
    case FI_OPT_VMA_PEER_VIEW:
        return give_view(value, length);
    case FI_OPT_VMA_RATE_LIMIT:
        return ofi::give_option(sender.limit(), value, length);
    case FI_OPT_VMA_RATE_DUE:
        return ofi::give_option(sender.due_now(), value, length);
    default:
        return -FI_ENOPROTOOPT;
    }
}

// A page and a bell for that link alone: those of the queue are our own processes'.
int Endpoint::use_guest_doorbell(std::uint64_t guest_link, uid_t user) noexcept
{
    Queue &queue = *receiver.queue;
    if (sender.queue != &queue)
        return -FI_EOPNOTSUPP;
    const core::SpinGuard guard(queue.lock);
    queue.leave_guest(*this);
    GuestDoorbell *doorbell = nullptr;
    if (const int error = queue.guests.use(guest_link, user, doorbell))
        return error;
    const int taken = doorbell->allocate_bit(bit);
    if (taken < 0) {
        queue.guests.release(*doorbell);
        return -FI_ENOSPC;
    }
    guest = doorbell;
    guest_bit = static_cast<std::uint32_t>(taken);
    return 0;
}

int Endpoint::make_offer(EndpointOffer &offer, int fds[kOfferFdCount], std::uint64_t guest_link, uid_t user,
                         const std::shared_ptr<LinkSegments> &segments) noexcept
{
    if (!enabled_)
        return -FI_EOPBADSTATE;
    offer = {};
    int error = receiver.segment.number_for(region_bytes_ != 0 ? segments : nullptr, offer.segment);
    if (error == 0 && guest_link != 0)
        error = use_guest_doorbell(guest_link, user);
    if (error != 0)
        return error;
    offer.segment_size = receiver.segment.mapping.size();
    offer.bounce_offset = kSlotsSize;
    offer.bounce_len = kBounceSize;
    offer.region_offset = kRegionOffset;
    offer.region_len = region_bytes_;
    offer.slot_count = kSlotCount;
    fds[kFdSegment] = receiver.segment.fd.get();
    if (guest_link != 0) {
        offer.doorbell_bit = guest_bit;
        offer.doorbell = offer.tx_doorbell = guest->number();
        fds[kFdDoorbell] = fds[kFdTxDoorbell] = guest->memory_fd();
        fds[kFdWake] = fds[kFdTxWake] = guest->bell_fd();
        return 0;
    }
    offer.doorbell_bit = bit;
    offer.doorbell = receiver.queue->doorbell.number();
    offer.tx_doorbell = sender.queue->doorbell.number();
    fds[kFdDoorbell] = receiver.queue->doorbell.memory_fd();
    fds[kFdWake] = receiver.queue->doorbell.wake_fd();
    fds[kFdTxDoorbell] = sender.queue->doorbell.memory_fd();
    fds[kFdTxWake] = sender.queue->doorbell.wake_fd();
    return 0;
}

void Endpoint::release_offer() noexcept
{
    receiver.segment.fd.reset();
}

int Endpoint::check_offer(const EndpointOffer &peer) const noexcept
{
    if (peer.version != kOfferVersion || peer.slot_count != kSlotCount || peer.bounce_offset != kSlotsSize ||
        peer.bounce_len != kBounceSize || peer.region_offset != kRegionOffset || peer.region_len > kMaxRegion ||
        peer.segment_size < kRegionOffset || peer.segment_size > kRegionOffset + kMaxRegion + kSlotsSize ||
        peer.region_len > peer.segment_size - kRegionOffset || peer.doorbell_bit >= kDoorbellBits)
        return -FI_EINVAL;
    return 0;
}

int Endpoint::attach(const EndpointOffer &offer, PeerParts parts, const LinkPeer &peer) noexcept
{
    if (!enabled_ || attached_)
        return -FI_EOPBADSTATE;
    if (const int error = check_offer(offer))
        return error;
    if (!parts.doorbell || !parts.tx_doorbell)
        return -FI_EINVAL;
    if (const int error = parts.segment.map(offer.segment_size))
        return error;

    peer_memory_ = {peer.pid, peer.mark};
    receiver.guest = peer.guest_link != 0;
    peer_tx_doorbell_ = std::move(parts.tx_doorbell);
    sender.attach(
        {std::move(parts.segment), std::move(parts.doorbell), offer.doorbell_bit, offer.region_len, peer.cma});
    {
        const core::SpinGuard guard(receiver.queue->lock);
        receiver.open.store(true, std::memory_order_release);
        attached_ = true;
    }
    ring_self(); // for what the peer may have published by now
    return 0;
}

void Endpoint::ring_self() noexcept
{
    receiver.queue->doorbell.ring_self(bit);
    receiver.queue->doorbell.wake_if_sleeping();
}

void Endpoint::fail(const char *why) noexcept
{
    if (failing.exchange(true, std::memory_order_acq_rel))
        return;
    failure = why;
    attention.store(true, std::memory_order_release);
    ring_self();
}

// `error`: of the operations that the peer did not take.
void Endpoint::end(int error) noexcept
{
    // What arrived comes first in the queue, then what did not.
    {
        Queue &queue = *receiver.queue;
        const core::SpinGuard guard(queue.lock);
        if (!receiver.ended) {
            receiver.ended = true;
            if (receiver.open.load(std::memory_order_relaxed))
                queue.drain(*this);
            if (!receiver.open.load(std::memory_order_relaxed))
                receiver.flush(FI_ECANCELED);
            queue.wake_sleepers();
        }
    }
    sender.disconnect(error);
    mrs_->forget(mr_observer_);
}

// In a domain without locks it is the thread that reads the queue which carries it out.
void Endpoint::request_end(int error) noexcept
{
    if (!enabled_)
        return;
    if (domain_.needs_locks()) {
        end(error);
        return;
    }
    sender.refuse_calls();
    ending.store(error, std::memory_order_release);
    attention.store(true, std::memory_order_release);
    ring_self();
}

void Endpoint::on_peer_shutdown() noexcept
{
    request_end(FI_ECONNRESET);
}

void Endpoint::on_local_shutdown() noexcept
{
    request_end(FI_ECANCELED);
}

ssize_t Endpoint::cancel(void *context) noexcept
{
    RxEntry entry;
    if (!receiver.receives || shared_ || !receiver.receives->cancel(context, entry))
        return -FI_ENOENT;
    const core::SpinGuard guard(receiver.queue->lock);
    receiver.queue->push(canceled(entry, this));
    return 0;
}

// A registration that the peer knows is being closed. The peer looks at the generation after it has said that it is
// inside; so once it is outside it will see the new one. It is inside for one copy at most: who stays is cut off.
void Endpoint::revoke_grants(void *object) noexcept
{
    Endpoint &self = *static_cast<Endpoint *>(object);
    Control &control = self.receiver.slots.control();
    control.mr_generation.fetch_add(1, std::memory_order_seq_cst);
    if (!control.rma_inside.load(std::memory_order_seq_cst))
        return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (control.rma_inside.load(std::memory_order_acquire)) {
        if (std::chrono::steady_clock::now() >= end) {
            self.fail("the peer does not leave a closed memory registration");
            return;
        }
        sched_yield();
    }
}

Endpoint::~Endpoint()
{
    if (enabled_) {
        sender.disconnect(FI_ECANCELED);
        mrs_->forget(mr_observer_);
        receiver.receives->forget(*this);
        part(*sender.queue, *receiver.queue);
        {
            const core::SpinGuard guard(receiver.queue->lock);
            receiver.queue->remove(*this);
            --receiver.queue->endpoints;
        }
        {
            const core::SpinGuard guard(sender.queue->lock);
            sender.queue->unwatch(sender);
            sender.queue->forget(this);
            --sender.queue->endpoints;
        }
        for_counters(&ofi::Cntr::remove_source);
        mrs_->remove_source(receiver.queue->source());
    }
    if (shared_)
        shared_->refs.fetch_sub(1, std::memory_order_relaxed);
    if (receiver.keeps_segment)
        receiver.segment.release();
    receiver.segment.used_to(kRegionOffset + receiver.region_used + kSlotPayload * std::size_t{receiver.slots.next()});
}

} // namespace vma::local
