// SPDX-License-Identifier: BSD-2-Clause
// How operations become slots. Each issue function does as much as there is room for; it returns true when all of the
// operation is on its way (or has failed: op.error), false to be called again later.
#include "local/msg/sender.hpp"

#include <algorithm>
#include <new>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "local/cma.hpp"
#include "local/msg/endpoint.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

constexpr std::size_t kEager = 8192;     // longer messages are pulled by the receiver
constexpr std::size_t kRmaBounce = 4096; // longer writes are done by the kernel; at least inject_size
constexpr unsigned kKeys = 8;            // more than one operation can name

} // namespace

void Sender::publish(TxOp &op, SlotOp slot_op, unsigned flags, std::size_t length, std::uint64_t addr) noexcept
{
    op.slot = slots_.next();
    slots_.publish(slot_op, flags, length, op.data, addr);
    rang_ = false;
}

// Whether the peer has consumed all there is: what it does in its memory and what we do there keep their order then.
bool Sender::quiet() noexcept
{
    refresh();
    if (slots_.freed() == slots_.next())
        return true;
    slots_.control().want_space.store(1, std::memory_order_relaxed);
    core::full_fence();
    refresh();
    return slots_.freed() == slots_.next();
}

bool Sender::issue(TxOp &op) noexcept
{
    if (broken_ || (op.fence && (ack_at_ < issue_at_ || !quiet())))
        return false;
    if (op.key_pending)
        return false;
    switch (op.kind) {
    case TxKind::send:
        return issue_send(op);
    case TxKind::write:
    case TxKind::read:
        return issue_rma(op);
    case TxKind::key:
        break;
    }
    return true;
}

bool Sender::issue_send(TxOp &op) noexcept
{
    unsigned flags = op.has_data ? kSlotData : 0;
    // The receiver would pull a long message all at once.
    const bool pull = cma_ && !paced_ && op.done == 0 && op.length > kEager;
    if (!pull && !op.inject && (op.done || op.length > std::min<std::uint64_t>(kBounceChunk, longest_piece())))
        return issue_segments(op);
    const bool small = op.length <= kSlotPayload;
    BounceRing::Share share{};
    share.length = small || pull ? 0 : static_cast<std::uint32_t>(op.length);
    Slot *const slot = share.length != 0 ? reserve(op.length, share) : reserve(op.length);
    if (!slot)
        return false;
    if (op.delivery || pull)
        flags |= kSlotWantAck;
    op.needs_ack = (flags & kSlotWantAck) != 0;
    if (small) {
        gather(slot->payload, op.iov, op.iov_count, 0, op.length);
        publish(op, SlotOp::send_inline, flags, op.length, 0);
        return true;
    }
    if (!pull) {
        gather(bounce_ + share.offset, op.iov, op.iov_count, 0, op.length);
        const Bounce payload{share.offset, share.length};
        std::memcpy(slot->payload, &payload, sizeof payload);
        publish(op, SlotOp::send_bounce, flags, 0, 0);
        share.slot = op.slot;
        return keep(share);
    }
    Pull payload{};
    payload.total = op.length;
    payload.count = op.iov_count;
    for (unsigned i = 0; i < op.iov_count; ++i)
        payload.pieces[i] = {reinterpret_cast<std::uintptr_t>(op.iov[i].iov_base), op.iov[i].iov_len};
    std::memcpy(slot->payload, &payload, sizeof payload);
    publish(op, SlotOp::send_pull, flags, 0, 0);
    return true;
}

// Notes whose slot a share of the bounce ring belongs to. Only without memory can that fail, and then the share would
// be lost for ever: better no connection.
bool Sender::keep(const BounceRing::Share &share) noexcept
{
    if (!shares_.assign(share)) {
        broken_ = true;
        endpoint_->fail("no memory");
    }
    return true;
}

// A long message where the kernel doesn't let the receiver pull, or the rate limit wants it in pieces.
bool Sender::issue_segments(TxOp &op) noexcept
{
    while (op.done < op.length) {
        const std::uint64_t piece = std::min({op.length - op.done, std::uint64_t{kBounceChunk}, longest_piece()});
        BounceRing::Share share{};
        share.length = static_cast<std::uint32_t>(piece);
        Slot *const slot = reserve(piece, share);
        if (!slot)
            return false;
        gather(bounce_ + share.offset, op.iov, op.iov_count, op.done, share.length);
        const MessagePart part{op.length, op.done, share.offset, share.length};
        std::memcpy(slot->payload, &part, sizeof part);
        op.done += share.length;
        unsigned flags = op.has_data ? kSlotData : 0;
        if (op.done == op.length) {
            op.needs_ack = op.delivery;
            flags |= kSlotLast | (op.delivery ? kSlotWantAck : 0);
        }
        publish(op, SlotOp::send_segment, flags, 0, 0);
        share.slot = op.slot;
        if (!keep(share) || broken_)
            return false;
        // The receiver copies while we do.
        notify();
    }
    return true;
}

const RemoteKey *Sender::find_key(std::uint64_t key) noexcept
{
    const std::uint32_t generation = slots_.control().mr_generation.load(std::memory_order_acquire);
    for (unsigned i = 0; keys_ && i < kKeys; ++i) {
        if (keys_[i].valid && keys_[i].key == key && keys_[i].generation == generation)
            return &keys_[i];
    }
    return nullptr;
}

void Sender::remember_key(const RemoteKey &key) noexcept
{
    if (!keys_)
        keys_.reset(new (std::nothrow) RemoteKey[kKeys]);
    if (!keys_)
        return;
    for (unsigned i = 0; i < kKeys; ++i) {
        if (keys_[i].key == key.key) {
            keys_[i] = key;
            return;
        }
    }
    keys_[next_key_] = key;
    next_key_ = (next_key_ + 1) % kKeys;
}

// Asks the peer. The answer comes in the slot's own place.
bool Sender::issue_key(TxOp &op, std::uint64_t key) noexcept
{
    Slot *slot = claim();
    if (!slot)
        return false;
    const KeyQuery query{key};
    std::memcpy(slot->payload, &query, sizeof query);
    op.asked_key = key;
    op.key_pending = true;
    publish(op, SlotOp::key_query, kSlotWantAck, 0, 0);
    return false;
}

// What the key stands for, if the operation may do what it wants with it. A positive fi_errno, or -1: not known yet.
int Sender::resolve(const TxOp &op, const fi_rma_iov &rma, const RemoteKey *&key) noexcept
{
    key = find_key(rma.key);
    if (!key)
        return -1;
    if (!(key->access & (op.kind == TxKind::read ? FI_REMOTE_READ : FI_REMOTE_WRITE)))
        return FI_EACCES;
    const std::uint64_t offset = rma.addr - key->base;
    if (offset > key->length || rma.len > key->length - offset)
        return FI_EINVAL;
    return 0;
}

bool Sender::issue_rma(TxOp &op) noexcept
{
    if (op.rma_count == 1 && op.rma[0].key == FI_VMA_REGION_KEY)
        return issue_region(op);
    if (op.done == 0) {
        for (unsigned i = 0; i < op.rma_count; ++i) {
            const RemoteKey *key = nullptr;
            const int error = resolve(op, op.rma[i], key);
            if (error < 0)
                return issue_key(op, op.rma[i].key);
            if (error > 0) {
                op.error = error;
                return true;
            }
        }
    }
    if (op.kind == TxKind::write && op.rma_count == 1 && op.length <= kWriteInline)
        return issue_write_inline(op);
    if (cma_ && (op.kind == TxKind::read || (!paced_ && op.done == 0 && op.length > kRmaBounce)))
        return issue_cma(op);
    return issue_chunks(op);
}

// The region is mapped here, so both directions are copies of our own.
bool Sender::issue_region(TxOp &op) noexcept
{
    const std::uint64_t offset = op.rma[0].addr;
    if (offset > region_length_ || op.length > region_length_ - offset) {
        op.error = FI_EINVAL;
        return true;
    }
    if (op.kind == TxKind::read) {
        apply_own_slots();
        scatter(op.iov, op.iov_count, 0, region_ + offset, op.length);
        return true;
    }
    while (paced_ && !op.inject && op.length - op.done > longest_piece()) {
        const std::uint64_t piece = longest_piece();
        if (!is_due(piece))
            return false;
        pacer_.take(piece);
        gather(region_ + offset + op.done, op.iov, op.iov_count, op.done, piece);
        op.done += piece;
    }
    Slot *const slot = reserve(op.length - op.done);
    if (!slot)
        return false;
    const unsigned flags = (op.has_data ? kSlotData : 0) | (op.delivery ? kSlotWantAck : 0);
    op.needs_ack = op.delivery;
    if (op.length <= kSlotPayload) {
        gather(slot->payload, op.iov, op.iov_count, 0, op.length);
        publish(op, SlotOp::region_inline, flags, op.length, offset);
    } else {
        gather(region_ + offset + op.done, op.iov, op.iov_count, op.done, op.length - op.done);
        const Direct direct{op.length};
        std::memcpy(slot->payload, &direct, sizeof direct);
        publish(op, SlotOp::region_direct, flags, 0, offset);
    }
    return true;
}

bool Sender::issue_write_inline(TxOp &op) noexcept
{
    Slot *const slot = reserve(op.length);
    if (!slot)
        return false;
    const unsigned flags = (op.has_data ? kSlotData : 0) | (op.delivery ? kSlotWantAck : 0) | kSlotLast;
    op.needs_ack = op.delivery;
    std::memcpy(slot->payload, &op.rma[0].key, sizeof op.rma[0].key);
    gather(slot->payload + sizeof op.rma[0].key, op.iov, op.iov_count, 0, op.length);
    publish(op, SlotOp::write_inline, flags, op.length, op.rma[0].addr);
    return true;
}

// Writes and reads through the bounce ring, a share a slot.
bool Sender::issue_chunks(TxOp &op) noexcept
{
    const bool pays = op.kind == TxKind::write;
    if (op.inject && !turn(op.length))
        return false;
    if (op.inject && (slots_.free_slots() < op.rma_count || !shares_.fits(op.length)))
        return claim() && slots_.free_slots() >= op.rma_count && shares_.fits(op.length) && issue_chunks(op);
    while (op.done < op.length) {
        std::uint64_t at = op.done; // in the remote list
        unsigned part = 0;
        while (at >= op.rma[part].len)
            at -= op.rma[part++].len;
        std::uint64_t piece = std::min<std::uint64_t>(op.rma[part].len - at, kBounceChunk);
        if (pays && !op.inject)
            piece = std::min(piece, longest_piece());
        BounceRing::Share share{};
        share.length = static_cast<std::uint32_t>(piece);
        Slot *const slot = pays && !op.inject ? reserve(piece, share) : claim(share);
        if (!slot)
            return false;
        share.read = op.kind == TxKind::read;
        share.op = first_op_ + issue_at_;
        share.position = op.done;
        if (!share.read)
            gather(bounce_ + share.offset, op.iov, op.iov_count, op.done, share.length);
        if (pays && op.inject) // it was asked for as a whole
            spend(piece);
        const RmaBounce rma{op.rma[part].key, op.length, share.offset, share.length};
        std::memcpy(slot->payload, &rma, sizeof rma);
        op.done += share.length;
        unsigned flags = share.read ? kSlotWantAck : 0;
        if (op.done == op.length) {
            op.needs_ack = share.read || op.delivery;
            flags |= kSlotLast | (op.has_data ? kSlotData : 0) | (op.needs_ack ? kSlotWantAck : 0);
        }
        publish(op, share.read ? SlotOp::read_bounce : SlotOp::write_bounce, flags, 0, op.rma[part].addr + at);
        share.slot = op.slot;
        if (!keep(share) || broken_)
            return false;
        notify();
    }
    return true;
}

// One copy by the kernel. What the peer should learn of it goes into a slot behind it.
bool Sender::issue_cma(TxOp &op) noexcept
{
    Control &control = slots_.control();
    const bool note = op.has_data || control.rma_notify.load(std::memory_order_relaxed);
    if (!quiet() || (note && !claim()))
        return false;
    control.rma_inside.store(1, std::memory_order_relaxed);
    core::full_fence();
    std::uint64_t done = 0;
    for (unsigned i = 0; i < op.rma_count && !op.error; ++i) {
        const RemoteKey *key = nullptr;
        const int error = resolve(op, op.rma[i], key);
        if (error < 0) {
            // Closed since: ask again, which says what the program should hear.
            control.rma_inside.store(0, std::memory_order_release);
            return issue_key(op, op.rma[i].key);
        }
        iovec ours[kIovLimit];
        iovec theirs[kIovLimit];
        const unsigned our_count = slice(op.iov, op.iov_count, done, op.rma[i].len, ours);
        const unsigned their_count = slice(key->iov, key->count, op.rma[i].addr - key->base, op.rma[i].len, theirs);
        op.provider_error = cma_copy(op.kind == TxKind::read ? CmaDirection::read : CmaDirection::write,
                                     endpoint_->peer_memory(), ours, our_count, theirs, their_count, op.rma[i].len);
        if (op.provider_error)
            op.error = op.provider_error == ECONNRESET ? FI_ECONNRESET : FI_EIO;
        done += op.rma[i].len;
    }
    control.rma_inside.store(0, std::memory_order_release);
    if (op.error || !note)
        return true;
    Slot *slot = claim();
    const RmaBounce rma{op.rma[op.rma_count - 1].key, op.length, 0, 0};
    std::memcpy(slot->payload, &rma, sizeof rma);
    publish(op, op.kind == TxKind::read ? SlotOp::read_note : SlotOp::write_note,
            kSlotLast | (op.has_data ? kSlotData : 0), 0, op.rma[0].addr);
    return true;
}

} // namespace vma::local
