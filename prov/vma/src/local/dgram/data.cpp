// SPDX-License-Identifier: BSD-2-Clause
// The data path of a datagram endpoint: what fi_send() and fi_recv() do, and how a datagram becomes a completion.
#include "local/dgram/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "local/cma.hpp"
#include "local/msg/slots.hpp"
#include "ofi/av.hpp"
#include "ofi/cntr.hpp"
#include "ofi/info/attr.hpp"

namespace vma::local {

// ---- sending --------------------------------------------------------------------------------------------------------

Outlet *DatagramEndpoint::outlet_of(fi_addr_t to) noexcept
{
    if (to < places_.size()) [[likely]] {
        const Place &place = places_[to];
        if (place.outlet && place.generation == av_->generation_of(to)) [[likely]]
            return place.outlet;
    }
    return new_outlet(to);
}

// Of an address that was not looked at since it was inserted. nullptr: there is no such address.
Outlet *DatagramEndpoint::new_outlet(fi_addr_t to) noexcept
{
    const std::uint32_t generation = av_->generation_of(to);
    ofi::Address address;
    if (!av_->address_of(to, address))
        return nullptr;
    address = address.reachable();
    std::unique_ptr<Outlet> &outlet = outlets_[ofi::AddressText(address).c_str()];
    if (!outlet)
        outlet = make_outlet(address, false);
    if (places_.size() <= to)
        places_.resize(to + 1);
    places_[to] = {generation, outlet.get()};
    return outlet.get();
}

// False: it is lost, and counted.
bool DatagramEndpoint::write(Outlet &outlet, const Datagram &datagram, std::size_t length, Bell &bell) noexcept
{
    std::byte *place = outlet.claim(length, datagram.only_ring);
    if (!place) [[unlikely]] {
        tx_dropped_ += !datagram.only_ring || outlet.refusal() != -FI_EAGAIN;
        return false;
    }
    if (length <= kSlotPayload && datagram.count == 1) {
        copy_small(place, static_cast<const std::byte *>(datagram.iov[0].iov_base), length);
    } else {
        for (std::size_t i = 0; i < datagram.count; ++i) {
            if (datagram.iov[i].iov_len)
                std::memcpy(place, datagram.iov[i].iov_base, datagram.iov[i].iov_len);
            place += datagram.iov[i].iov_len;
        }
    }
    if (!outlet.publish(length, datagram.data != nullptr, datagram.data ? *datagram.data : 0, bell)) [[unlikely]] {
        ++tx_dropped_;
        return false;
    }
    return true;
}

// With the queue's lock held.
void DatagramEndpoint::push_sent(const Datagram &datagram, std::size_t length) noexcept
{
    ofi::Completion entry;
    entry.context = datagram.context;
    entry.flags = FI_MSG | FI_SEND;
    entry.length = length;
    entry.owner = owner();
    tx_queue_->push(entry);
}

ssize_t DatagramEndpoint::send(const Datagram &datagram) noexcept
{
    if (datagram.count > kIovLimit || (datagram.count && !datagram.iov)) [[unlikely]]
        return -FI_EINVAL;
    std::size_t length = 0;
    for (std::size_t i = 0; i < datagram.count; ++i) {
        if (__builtin_add_overflow(length, datagram.iov[i].iov_len, &length))
            return -FI_EMSGSIZE;
    }
    if (length > (datagram.tell ? kMaxDatagram : ofi::kMaxDatagramSize)) [[unlikely]]
        return -FI_EMSGSIZE;
    return write_locked([&](Bell &bell) { return send_locked(datagram, length, bell); });
}

ssize_t DatagramEndpoint::send_locked(const Datagram &datagram, std::size_t length, Bell &bell) noexcept
{
    if (!enabled_) [[unlikely]]
        return -FI_EOPBADSTATE;
    Membership *const group = membership_of(datagram.to);
    Outlet *const outlet = group ? nullptr : outlet_of(datagram.to);
    if (!outlet && !group) [[unlikely]]
        return -FI_EINVAL;
    if (paced_ && !is_due(length)) [[unlikely]]
        return -FI_EAGAIN;
    if (datagram.tell && outlet)
        return send_or_tell(*outlet, datagram, length, bell);
    bool done = false;
    if (datagram.completion) {
        // A short one is written under the lock; with a long one, or a receiver who has to be found, it is taken again.
        const core::SpinGuard queue_guard(tx_queue_->lock);
        if (tx_queue_->entries.full())
            return -FI_EAGAIN;
        done = outlet && outlet->connected() && length <= kSlotPayload;
        if (done) {
            write(*outlet, datagram, length, bell);
            push_sent(datagram, length);
        }
    }
    if (paced_) [[unlikely]]
        pacer_.take(length); // also what is lost has been sent
    if (!done)
        write_and_tell(outlet, group, datagram, length, bell);
    if (counters_.send)
        counters_.send->count();
    return 0;
}

// The completion comes last, as who reads it may write the buffer anew. Others may have filled the queue meanwhile: it
// takes one more.
void DatagramEndpoint::write_and_tell(Outlet *outlet, Membership *group, const Datagram &datagram, std::size_t length,
                                      Bell &bell) noexcept
{
    if (outlet) [[likely]] {
        write(*outlet, datagram, length, bell);
    } else {
        find_members(*group);
        for (Outlet *member : group->members)
            write(*member, datagram, length, bell);
    }
    if (datagram.completion) {
        const core::SpinGuard queue_guard(tx_queue_->lock);
        push_sent(datagram, length);
    }
}

// There is no queue of datagrams to send: who is too early comes again, and is woken for it if he sleeps.
bool DatagramEndpoint::is_due(std::size_t length) noexcept
{
    const std::uint64_t now = length ? core::monotonic_ns() : 0;
    const std::uint64_t due = length ? pacer_.due(now, length) : 0;
    if (due == now) {
        held_until_ = 0;
        return true;
    }
    held_until_ = due;
    const core::SpinGuard guard(tx_queue_->lock);
    tx_queue_->wait_until(timer_, due);
    return false;
}

ssize_t DatagramEndpoint::send_or_tell(Outlet &outlet, const Datagram &datagram, std::size_t length,
                                       Bell &bell) noexcept
{
    if (datagram.completion) {
        const core::SpinGuard queue_guard(tx_queue_->lock);
        if (tx_queue_->entries.full())
            return -FI_EAGAIN;
    }
    outlet.look_for_end();
    if (!write(outlet, datagram, length, bell))
        return outlet.refusal();
    if (paced_) [[unlikely]]
        pacer_.take(length);
    if (datagram.completion) { // as in write_and_tell()
        const core::SpinGuard queue_guard(tx_queue_->lock);
        push_sent(datagram, length);
    }
    if (counters_.send)
        counters_.send->count();
    return 0;
}

// ---- receiving ------------------------------------------------------------------------------------------------------

ssize_t DatagramEndpoint::post(const iovec *iov, std::size_t count, void *context, std::uint64_t flags) noexcept
{
    if (!receives_)
        return has_taker() ? -FI_EOPNOTSUPP : -FI_EOPBADSTATE;
    if (const ssize_t error = receives_->post(iov, count, context, wants_rx_completion(flags)))
        return error;
    unstall();
    return 0;
}

RingEndpoint::Took DatagramEndpoint::take(Inlet &inlet, KeptRing &ring, const Arrived &arrived) noexcept
{
    if (has_taker())
        return offer(ring, arrived) ? Took::taken : Took::later;
    if (rx_queue_->entries.full())
        return Took::later;
    RxEntry entry;
    if (!take_receive(entry))
        return Took::stalled;
    deliver(inlet, arrived, entry);
    return Took::taken;
}

// Who posts after the second look, sees `stalled_`: the lock of the receives comes between.
bool DatagramEndpoint::take_receive(RxEntry &entry) noexcept
{
    if (receives_->take_any(entry)) [[likely]]
        return true;
    stalled_.store(true, std::memory_order_relaxed);
    return receives_->take_any(entry);
}

ssize_t DatagramEndpoint::cancel(void *context) noexcept
{
    RxEntry entry;
    if (!receives_ || !receives_->cancel(context, entry))
        return -FI_ENOENT;
    const core::SpinGuard guard(rx_queue_->lock);
    rx_queue_->push(canceled(entry, owner()));
    return 0;
}

bool DatagramEndpoint::offer(KeptRing &ring, const Arrived &arrived) noexcept
{
    const std::uint64_t data = arrived.has_data ? arrived.data : 0;
    KeptRing *const lender = taker_.keep && ring.reader.may_keep(arrived) ? &ring : nullptr;
    ring.begin_offer();
    const int result = taker_.keep ? taker_.keep(taker_.context, arrived.payload, arrived.length, data, lender)
                                   : taker_.take(taker_.context, arrived.payload, arrived.length, data);
    if (result == 0)
        return false;
    if (result == FI_VMA_KEPT && lender)
        ring.end_offer(arrived);
    if (counters_.receive)
        counters_.receive->count();
    return true;
}

void DatagramEndpoint::deliver(Inlet &inlet, const Arrived &arrived, const RxEntry &entry) noexcept
{
    const std::size_t fits = std::min<std::size_t>(arrived.length, entry.length);
    if (entry.iov_count == 1) {
        auto *const to = static_cast<std::byte *>(entry.iov[0].iov_base);
        if (fits <= kSlotPayload)
            copy_small(to, arrived.payload, fits);
        else
            std::memcpy(to, arrived.payload, fits);
    } else {
        scatter(entry.iov, entry.iov_count, 0, arrived.payload, fits);
    }
    ofi::Completion completion;
    completion.context = entry.context;
    completion.flags = FI_MSG | FI_RECV;
    completion.length = fits;
    completion.buffer = entry.iov_count ? entry.iov[0].iov_base : nullptr;
    completion.owner = owner();
    completion.source = inlet.source();
    if (arrived.has_data) {
        completion.flags |= FI_REMOTE_CQ_DATA;
        completion.data = arrived.data;
    }
    if (arrived.length > entry.length) {
        completion.error = FI_ETRUNC;
        completion.excess = arrived.length - entry.length;
    }
    if (counters_.receive)
        completion.error ? counters_.receive->count_error() : counters_.receive->count();
    // It has arrived all the same, say fi_cq(3) and the counter.
    const bool stranger = source_errors_ && completion.source == FI_ADDR_NOTAVAIL && !completion.error;
    if (stranger && rx_queue_->raw_sources.push({owner(), inlet.raw_source()})) [[unlikely]]
        completion.error = FI_EADDRNOTAVAIL;
    if (completion.error || entry.completion)
        rx_queue_->push(completion);
}

} // namespace vma::local
