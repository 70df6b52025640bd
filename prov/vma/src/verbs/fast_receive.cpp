// SPDX-License-Identifier: BSD-2-Clause
// Fast connections: the receiver's half. Everything here runs with the lock of the endpoint's receiving queue held, if
// it does not say otherwise.
#include <algorithm>
#include <cstring>

#include <rdma/fi_errno.h>

#include "verbs/endpoint.hpp"

namespace vma::verbs {
namespace {

// The slot's trailer and message; false where it has not arrived, or not all of it.
bool arrived(const Fast &fast, FastTrailer &trailer, const std::byte *&message, bool &sane) noexcept
{
    const std::byte *end = fast.block.bytes() + fast.shape.end(fast.taken);
    const auto wanted = static_cast<std::uint32_t>(fast.taken + 1);
    const auto *last = reinterpret_cast<const std::uint32_t *>(end - sizeof(std::uint32_t));
    if (__atomic_load_n(last, __ATOMIC_ACQUIRE) != wanted)
        return false;
    std::memcpy(&trailer, end - sizeof trailer, sizeof trailer); // once: the peer may go on writing
    sane = trailer.length <= fast.shape.longest();
    message = end - sizeof trailer - trailer.length;
    return !sane || (trailer.sequence == wanted && fast_hash(trailer, message) == trailer.hash);
}

// False: it does not fit.
bool scatter(const HeldReceive &held, const std::byte *message, std::size_t length) noexcept
{
    for (int i = 0; i < held.count && length > 0; ++i) {
        const std::size_t part = std::min<std::size_t>(held.list[i].length, length);
        std::memcpy(reinterpret_cast<void *>(held.list[i].addr), message, part);
        message += part;
        length -= part;
    }
    return length == 0;
}

} // namespace

// The place in `held` of receive `number`. With rx_lock held.
void Endpoint::hold(std::uint64_t number, const ibv_sge *list, std::size_t count) noexcept
{
    HeldReceive &held = fast->held_at(number);
    std::copy_n(list, count, held.list);
    held.count = static_cast<int>(count);
}

// All that is posted from now on, and not before the number that the sender asked for, is held back: the device has
// exactly the receives below the answer, and the sender uses exactly these by send/receive.
void Endpoint::hear_ask() noexcept
{
    Fast &f = *fast;
    if (f.holding.load(std::memory_order_relaxed) || f.broken || f.ended.load(std::memory_order_acquire))
        return;
    const std::uint64_t ask = f.words().ask.load(std::memory_order_acquire);
    if (ask == f.heard)
        return;
    f.heard = ask;
    const core::SpinGuard guard(rx_lock);
    hold_from = f.next = f.answered = std::max(ask, rx.next());
    f.holding.store(true, std::memory_order_relaxed);
    f.answer_due = true;
}

// The device gets what was held back when all that came by the ring is taken. A peer that left too early, or never
// began, has left at a number that is not above the next one.
void Endpoint::hear_leave() noexcept
{
    Fast &f = *fast;
    if (!f.holding.load(std::memory_order_relaxed) || f.ended.load(std::memory_order_acquire))
        return;
    const std::uint64_t leave = f.words().leave.load(std::memory_order_acquire);
    if (leave < f.heard || f.next < leave)
        return;
    const core::SpinGuard guard(rx_lock);
    for (std::uint64_t number = f.next; number < rx.next(); ++number) {
        HeldReceive &held = f.held_at(number);
        ibv_recv_wr wr{.wr_id = number | kReceiveBit, .next = nullptr, .sg_list = held.list, .num_sge = held.count};
        ibv_recv_wr *refused = nullptr;
        if (ibv_post_recv(qp, &wr, &refused) != 0) {
            f.broken = true;
            note_broken(*rx_queue, "the device does not take receives back");
            return; // they are held, and come back when the connection is closed
        }
    }
    hold_from = UINT64_MAX;
    f.holding.store(false, std::memory_order_relaxed);
}

// Takes one slot, or gives one receive back that nobody will fill. False: there is nothing to do.
bool Endpoint::take_slot() noexcept
{
    Fast &f = *fast;
    if (!f.holding.load(std::memory_order_relaxed) || rx.done() != f.next)
        return false; // messages that went by send/receive come first
    const bool ended = f.ended.load(std::memory_order_acquire);
    FastTrailer trailer{};
    const std::byte *message = nullptr;
    bool sane = true;
    const bool there = !f.broken && arrived(f, trailer, message, sane);
    if (there && !sane) {
        f.broken = true;
        note_broken(*rx_queue, "the peer does not keep to the rules of rings");
        return false;
    }
    if (!there && !ended)
        return false;
    Work work;
    bool fits = true;
    {
        const core::SpinGuard guard(rx_lock);
        if (rx.next() == f.next)
            return false; // no receive is posted yet
        work = rx.at(f.next);
        fits = !there || scatter(f.held_at(f.next), message, trailer.length);
        rx.set_done(++f.next);
    }
    f.taken += there;
    deliver_fast(work, trailer, !there ? FI_ECANCELED : !fits ? FI_ETRUNC : 0);
    return true;
}

void Endpoint::deliver_fast(const Work &work, const FastTrailer &trailer, int error) noexcept
{
    ofi::Completion entry;
    entry.context = work.context;
    entry.flags = work.flags;
    entry.owner = this;
    entry.error = error;
    if (error == FI_ETRUNC) {
        fast->broken = true;
        note_broken(*rx_queue, "a message is longer than the receive that was posted for it");
    }
    if (error != 0) {
        entry.provider_error = error == FI_ETRUNC ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR;
    } else {
        entry.length = trailer.length;
        entry.data = trailer.data;
        entry.flags |= trailer.has_data != 0 ? FI_REMOTE_CQ_DATA : 0;
    }
    if (work.wanted || error == FI_ETRUNC)
        rx_queue->push(entry);
}

// False: not now.
bool Endpoint::tell_sender(std::size_t offset, std::uint64_t value) noexcept
{
    const core::SpinGuard guard(tx_lock);
    if (tx.full() && tx_queue != rx_queue && tx_queue->lock.try_lock()) {
        tx_queue->drain_device(); // a program that only receives does not read it
        tx_queue->lock.unlock();
    }
    return !tx.full() && open_for_sends.load(std::memory_order_relaxed) && (!batch || batch->count == 0) &&
           tell_word(offset, value) == 0;
}

// `room`: completions that may be made now.
void Endpoint::take_fast(std::size_t room) noexcept
{
    Fast &f = *fast;
    hear_ask();
    if (f.answer_due && tell_sender(offsetof(FastWords, answer), f.answered))
        f.answer_due = false;
    while (room > 0 && take_slot())
        --room;
    hear_leave();
    if (f.taken - f.told >= f.shape.depth() / 4 && tell_sender(offsetof(FastWords, taken), f.taken))
        f.told = f.taken;
}

// A sender may wait until the receiver has taken what lies in the ring, and the receiver's program for a completion of
// its own sends before it reads on: so who reads the queue of these looks at the ring, too, now and then.
void Queue::mind_fast(std::size_t room) noexcept
{
    constexpr unsigned kSeldom = 64;
    for (Endpoint *endpoint : fast) {
        Queue &receiving = *endpoint->rx_queue;
        if (&receiving == this) {
            endpoint->take_fast(room);
        } else if (endpoint->fast->holding.load(std::memory_order_relaxed) && ++endpoint->fast->visits % kSeldom == 0 &&
                   receiving.lock.try_lock()) {
            receiving.drain_device();
            endpoint->take_fast(SIZE_MAX);
            receiving.lock.unlock();
        }
    }
}

} // namespace vma::verbs
