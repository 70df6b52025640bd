// SPDX-License-Identifier: BSD-2-Clause
// The queue of operations: posting, what the peer has consumed, completions, the end. How each kind of operation
// becomes slots is in issue.cpp.
#include "local/msg/sender.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "local/cma.hpp"
#include "local/msg/endpoint.hpp"
#include "local/queue.hpp"
#include "ofi/cntr.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

bool passed(std::uint32_t head, std::uint32_t position) noexcept
{
    return static_cast<std::int32_t>(head - position) > 0;
}

template <typename Payload> Payload payload_of(const Slot &slot) noexcept
{
    Payload copy;
    std::memcpy(&copy, slot.payload, sizeof copy);
    return copy;
}

ofi::Completion completion_of(const TxOp &op, const Endpoint *endpoint) noexcept
{
    ofi::Completion entry;
    entry.context = op.context;
    entry.flags = op.kind == TxKind::send   ? FI_MSG | FI_SEND
                  : op.kind == TxKind::read ? FI_RMA | FI_READ
                                            : FI_RMA | FI_WRITE;
    entry.length = op.length;
    entry.error = op.error;
    entry.provider_error = op.provider_error;
    entry.owner = endpoint;
    return entry;
}

} // namespace

void Sender::set_up(Endpoint &endpoint, bool locks, std::size_t most_operations) noexcept
{
    lock_.set_enabled(locks);
    ops_.set_limit(most_operations);
    endpoint_ = &endpoint;
    timer_.sender = this;
}

void Sender::attach(PeerMemory &&peer) noexcept
{
    const core::SpinGuard guard(lock_);
    std::byte *const base = peer.segment.data();
    slots_.attach(reinterpret_cast<Control *>(base), reinterpret_cast<Slot *>(base + kControlSize));
    bounce_ = base + kSlotsSize;
    region_ = base + kRegionOffset;
    region_length_ = peer.region_length;
    segment_ = std::move(peer.segment);
    doorbell_ = std::move(peer.doorbell);
    bit_ = peer.bit;
    cma_ = peer.cma;
    connected_.store(true, std::memory_order_release);
}

int Sender::warm(std::uint64_t offset, std::uint64_t length) noexcept
{
    constexpr std::size_t kLine = 64;
    constexpr std::uint64_t kMost = 2048; // bytes
    const core::SpinGuard guard(lock_);
    if (!connected())
        return -FI_ENOTCONN;
    slots_.warm();
    __builtin_prefetch(&slots_.control().rx_state);
    const std::uint64_t there = offset < region_length_ ? std::min(kMost, region_length_ - offset) : 0;
    const std::uint64_t bytes = length > kSlotPayload ? std::min(length, there) : 0; // else they are in the slot
    for (std::uint64_t at = 0; at < bytes; at += kLine)
        __builtin_prefetch(region_ + offset + at, 1);
    return 0;
}

ssize_t Sender::write_region(const void *buffer, std::size_t length, const std::uint64_t *data,
                             std::uint64_t offset) noexcept
{
    const core::SpinGuard guard(lock_);
    if (!connected()) [[unlikely]]
        return -FI_ENOTCONN;
    if (offset > region_length_ || length > region_length_ - offset) [[unlikely]]
        return -FI_EINVAL;
    if (!passes([this] { return issue_at_ == ops_.size(); })) [[unlikely]]
        return try_again();
    Slot *const slot = claim();
    if (!slot || !pay(length)) [[unlikely]]
        return try_again();
    const unsigned flags = data ? kSlotData : 0;
    const std::uint64_t word = data ? *data : 0;
    if (length <= kSlotPayload) {
        copy_small(slot->payload, static_cast<const std::byte *>(buffer), length);
        slots_.publish(SlotOp::region_inline, flags, length, word, offset);
    } else {
        std::memcpy(region_ + offset, buffer, length);
        const Direct direct{length};
        std::memcpy(slot->payload, &direct, sizeof direct);
        slots_.publish(SlotOp::region_direct, flags, 0, word, offset);
    }
    if (!notify()) [[unlikely]]
        return -FI_ESHUTDOWN;
    if (write_counter) [[unlikely]]
        write_counter->count();
    return 0;
}

ssize_t Sender::send_small(const void *buffer, std::size_t length, const std::uint64_t *data, void *context,
                           bool completion) noexcept
{
    const core::SpinGuard guard(lock_);
    if (!connected()) [[unlikely]]
        return -FI_ENOTCONN;
    if (!passes([this] { return !paced_ && ops_.empty(); })) [[unlikely]]
        return 1;
    Slot *const slot = claim();
    if (!slot)
        return 1;
    const auto fill = [&] {
        copy_small(slot->payload, static_cast<const std::byte *>(buffer), length);
        slots_.publish(SlotOp::send_inline, data ? kSlotData : 0, length, data ? *data : 0, 0);
    };
    if (completion) {
        const core::SpinGuard queue_guard(queue->lock);
        if (queue->entries.full())
            return -FI_EAGAIN;
        fill(); // first: who reads of it may write the buffer anew
        ofi::Completion entry;
        entry.context = context;
        entry.flags = FI_MSG | FI_SEND;
        entry.length = length;
        entry.owner = endpoint_;
        queue->push(entry);
    } else {
        fill();
    }
    notify();
    if (send_counter)
        send_counter->count();
    return 0;
}

ssize_t Sender::post(TxOp &op) noexcept
{
    const core::SpinGuard guard(lock_);
    if (!connected())
        return -FI_ENOTCONN;
    advance(false);
    if (ops_.full() || (op.inject && issue_at_ != ops_.size()))
        return try_again();
    if (!ops_.push(op))
        return -FI_ENOMEM;
    issue_waiting();
    ssize_t result = 0;
    if (op.inject && issue_at_ != ops_.size()) {
        TxOp &last = ops_[ops_.size() - 1];
        result = -FI_EAGAIN;
        starve();
        if (last.key_pending)
            last.kind = TxKind::key; // the answer serves the program's next try
        else
            ops_.pop_back();
    }
    settle(false);
    if (!rang_)
        notify();
    watch_progress();
    return result;
}

void Sender::advance(bool queue_locked) noexcept
{
    if (broken_ || idle())
        return;
    refresh();
    issue_waiting();
    if (held_until_ && issue_at_ == ops_.size() && core::monotonic_ns() >= held_until_)
        held_until_ = 0; // what was refused may go now
    settle(queue_locked);
    if (!rang_)
        notify();
}

bool Sender::notify() noexcept
{
    rang_ = true;
    const RxState state = slots_.reader_state();
    if (state == RxState::watching) [[likely]]
        return true;
    if (state != RxState::closed) {
        doorbell_->ring(bit_);
        return true;
    }
    const SlotWriter::Last last = slots_.decide_last();
    if (last != SlotWriter::Last::open)
        connected_.store(false, std::memory_order_release); // what is under way ends when connection management says so
    return last != SlotWriter::Last::refused;
}

Slot *Sender::claim_behind() noexcept
{
    if (broken_)
        return nullptr;
    refresh();
    if (Slot *slot = slots_.claim())
        return slot;
    slots_.control().want_space.store(1, std::memory_order_relaxed);
    core::full_fence();
    refresh();
    return slots_.claim();
}

// Looks how far the peer has come. What it has consumed is used here, before its slots are overwritten.
bool Sender::refresh() noexcept
{
    std::uint32_t head;
    if (!slots_.read_head(head)) {
        broken_ = true;
        endpoint_->fail("the peer's slot index is out of range");
        return false;
    }
    if (head == slots_.freed())
        return false;
    take_shares(head);
    take_acks(head);
    slots_.free_until(head);
    return true;
}

void Sender::take_shares(std::uint32_t head) noexcept
{
    while (!shares_.empty() && passed(head, shares_.front().slot)) {
        const BounceRing::Share share = shares_.front();
        if (share.read) {
            TxOp &op = ops_[static_cast<std::size_t>(share.op - first_op_)];
            const auto result = payload_of<Result>(slots_.at(share.slot));
            if (result.error && !op.error)
                op.error = result.error > 0 && result.error < FI_ERRNO_MAX ? result.error : FI_EIO;
            if (!op.error)
                scatter(op.iov, op.iov_count, share.position, bounce_ + share.offset, share.length);
            op.arrived += share.length;
        }
        shares_.release_front();
    }
}

void Sender::take_acks(std::uint32_t head) noexcept
{
    for (; ack_at_ < issue_at_; ++ack_at_) {
        TxOp &op = ops_[ack_at_];
        if (!op.needs_ack)
            continue;
        if (!passed(head, op.slot))
            return;
        if (op.kind == TxKind::write && op.rma[0].key == FI_VMA_REGION_KEY)
            continue; // cannot fail, so there is no Result, and the payload stays what it was
        const auto result = payload_of<Result>(slots_.at(op.slot));
        if (result.error && !op.error)
            op.error = result.error > 0 && result.error < FI_ERRNO_MAX ? result.error : FI_EIO;
    }
    if (issue_at_ < ops_.size() && ops_[issue_at_].key_pending && passed(head, ops_[issue_at_].slot))
        take_key(ops_[issue_at_], slots_.at(ops_[issue_at_].slot));
}

void Sender::take_key(TxOp &op, const Slot &slot) noexcept
{
    op.key_pending = false;
    const auto reply = payload_of<KeyReply>(slot);
    RemoteKey key;
    key.key = op.asked_key;
    key.generation = reply.generation;
    key.access = reply.access;
    key.base = reply.base;
    key.count = reply.count;
    if (reply.error || reply.count > kIovLimit) {
        op.error = reply.error > 0 && reply.error < FI_ERRNO_MAX ? reply.error : FI_EIO;
        return;
    }
    for (unsigned i = 0; i < reply.count; ++i) {
        key.iov[i] = {reinterpret_cast<void *>(reply.pieces[i].address), reply.pieces[i].length};
        if (__builtin_add_overflow(key.length, reply.pieces[i].length, &key.length)) {
            op.error = FI_EIO;
            return;
        }
    }
    key.valid = true;
    remember_key(key);
}

void Sender::issue_waiting() noexcept
{
    while (issue_at_ < ops_.size()) {
        TxOp &op = ops_[issue_at_];
        if (!op.error && !issue(op))
            return;
        op.issued = true;
        ++issue_at_;
    }
}

// Completes what is done, oldest first.
void Sender::settle(bool queue_locked) noexcept
{
    while (ack_at_ < issue_at_ && !ops_[ack_at_].needs_ack)
        ++ack_at_;
    while (ack_at_ > 0 && complete(ops_.front(), queue_locked)) {
        ops_.pop();
        ++first_op_;
        --ack_at_;
        --issue_at_;
    }
}

void Sender::count(const TxOp &op) noexcept
{
    ofi::Cntr *counter = op.kind == TxKind::send    ? send_counter
                         : op.kind == TxKind::write ? write_counter
                                                    : read_counter;
    if (counter && op.kind != TxKind::key)
        op.error ? counter->count_error() : counter->count();
}

// False when the queue has no room for it now.
bool Sender::complete(const TxOp &op, bool queue_locked) noexcept
{
    if (op.kind != TxKind::key && (op.completion || op.error)) {
        if (!queue_locked)
            queue->lock.lock();
        const bool room = !queue->entries.full();
        if (room)
            queue->push(completion_of(op, endpoint_));
        if (!queue_locked)
            queue->lock.unlock();
        if (!room)
            return false;
    }
    count(op);
    return true;
}

// As long as something is under way the queue looks at us each time it is read; where only the clock can bring anything
// new, when it is due.
void Sender::watch_progress() noexcept
{
    if (idle())
        return;
    const core::SpinGuard guard(queue->lock);
    queue->follow(*this);
}

void Sender::starve() noexcept
{
    starved_ = true;
    refused_ |= paced_;
}

// The answer when there is no room. Whoever sleeps on the queue after it is woken when there is.
ssize_t Sender::try_again() noexcept
{
    starve();
    watch_progress();
    return -FI_EAGAIN;
}

bool Sender::may_try_again() noexcept
{
    return starved_ && !ops_.full() && issue_at_ == ops_.size() && slots_.claim() && !held_until_;
}

void Sender::disconnect(int error) noexcept
{
    const core::SpinGuard guard(lock_);
    if (ended_ || !slots_)
        return;
    ended_ = true;
    if (!broken_) {
        refresh();
        settle(false);
    }
    connected_.store(false, std::memory_order_release);
    slots_.control().revoked.store(1, std::memory_order_relaxed);
    core::full_fence(); // before the program writes to what it gets back
    flush(error, true);
}

void Sender::flush(int error, bool report) noexcept
{
    const core::SpinGuard guard(queue->lock);
    for (; !ops_.empty(); ops_.pop(), ++first_op_) {
        TxOp &op = ops_.front();
        if (op.kind == TxKind::key || !report)
            continue;
        const bool failed = op.error != 0; // by itself: FI_SHUTDOWN does not tell of it
        if (!failed && !(op.issued && ack_at_ > 0))
            op.error = error;
        if (ack_at_ > 0)
            --ack_at_;
        if (op.completion || failed || (op.error && endpoint_->reports_silent_ends()))
            queue->push(completion_of(op, endpoint_)); // past the queue's size, so that nothing is lost
        count(op);
    }
    issue_at_ = 0;
    ack_at_ = 0;
    queue->paced.wheel.remove(timer_);
    held_until_ = 0;
}

std::size_t Sender::slots_left() noexcept
{
    const core::SpinGuard guard(lock_);
    if (!connected() || broken_)
        return 0;
    refresh();
    return slots_.free_slots();
}

bool Sender::view_region(const void *&view) noexcept
{
    const core::SpinGuard guard(lock_);
    view = nullptr;
    if (!region_length_)
        return true;
    if (!slots_.claim_back())
        return false;
    apply_own_slots();
    view = region_;
    return true;
}

int Sender::discard_region(std::uint64_t offset, std::uint64_t length) noexcept
{
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const core::SpinGuard guard(lock_); // the mapping stays
    if (offset > region_length_ || length > region_length_ - offset)
        return -FI_EINVAL;
    const auto first = reinterpret_cast<std::uintptr_t>(region_) + offset;
    const std::uintptr_t from = (first + page - 1) & ~(page - 1);
    const std::uintptr_t to = (first + length) & ~(page - 1);
    if (from >= to)
        return 0;
    return ::madvise(reinterpret_cast<void *>(from), to - from, MADV_REMOVE) == 0 ? 0 : -errno;
}

// Copies what waits in slots to the region; the peer will copy the same bytes again.
void Sender::apply_own_slots() noexcept
{
    std::uint32_t head;
    if (!slots_.read_head(head))
        head = slots_.freed();
    for (; head != slots_.next(); ++head) {
        const Slot &slot = slots_.at(head);
        const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
        const std::uint64_t length = static_cast<std::uint16_t>(word >> 16);
        const std::uint64_t offset = slot.addr;
        if (static_cast<SlotOp>(word & 0xff) != SlotOp::region_inline || length > kSlotPayload ||
            offset > region_length_ || length > region_length_ - offset)
            continue;
        copy_small(region_ + offset, slot.payload, length);
    }
}

} // namespace vma::local
