// SPDX-License-Identifier: BSD-2-Clause
// The sending half of an endpoint: operations wait in a queue for slots, for the peer's bounce ring and for the peer to
// have consumed them, and complete in the order they were posted. What fits a slot at once never enters the queue.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_rma.h>

#include "core/fifo.hpp"
#include "core/spinlock.hpp"
#include "local/cm/link_segments.hpp"
#include "local/doorbell.hpp"
#include "local/layout.hpp"
#include "local/msg/bounce.hpp"
#include "local/msg/slots.hpp"
#include "local/pacing.hpp"
#include "rdma/fi_ext_vma.h"
#include "vma/pacer.hpp"

namespace vma::ofi {
struct Cntr;
}

namespace vma::local {

class Endpoint;
struct Queue;

enum class TxKind : std::uint8_t {
    send,
    write,
    read,
    key, // asks for what a key stands for; nobody's completion
};

struct TxOp {
    TxKind kind = TxKind::send;
    std::uint8_t iov_count = 0;
    std::uint8_t rma_count = 0;
    bool completion = false; // the program wants one; errors are always reported
    bool has_data = false;
    bool delivery = false; // complete only when the peer has consumed it
    bool fence = false;
    bool inject = false;    // now or never: the buffer is the caller's again afterwards
    bool issued = false;    // all its slots are published
    bool needs_ack = false; // it isn't complete before its last slot is consumed
    bool acked = false;
    bool key_pending = false; // a key_query is on its way
    int error = 0;            // positive fi_errno
    int provider_error = 0;
    std::uint32_t slot = 0;    // position of its last slot
    std::uint64_t length = 0;  // bytes in all
    std::uint64_t done = 0;    // bytes that slots were published for
    std::uint64_t arrived = 0; // of a read through the bounce ring
    std::uint64_t data = 0;
    std::uint64_t asked_key = 0; // of the key_query
    void *context = nullptr;
    iovec iov[kIovLimit];
    fi_rma_iov rma[kIovLimit];
};

// What a peer's key stands for, as it told us.
struct RemoteKey {
    bool valid = false;
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    std::uint64_t access = 0;
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    std::uint32_t count = 0;
    iovec iov[kIovLimit];
};

// What a peer's endpoint gives of itself: our end of the connection.
struct PeerMemory {
    SegmentUse segment;                     // mapped
    std::shared_ptr<PeerDoorbell> doorbell; // for slots
    std::uint32_t bit = 0;                  // in it
    std::uint64_t region_length = 0;
    bool cma = false; // the kernel lets us copy from and to its memory
};

// Everything is protected by a lock that is taken before any completion queue's; who holds one of those may only try.
class Sender
{
public:
    // Before anything else.
    void set_up(Endpoint &endpoint, bool locks, std::size_t most_operations) noexcept;
    // The peer is there: calls go on from here.
    void attach(PeerMemory &&peer) noexcept;
    bool connected() const noexcept { return connected_.load(std::memory_order_acquire); }
    // Calls end from here on; disconnect() follows.
    void refuse_calls() noexcept { connected_.store(false, std::memory_order_release); }

    // A write to the peer's region, the sockets' path. 0, -FI_EAGAIN, -FI_EINVAL, -FI_ENOTCONN. `data` may be null.
    ssize_t write_region(const void *buffer, std::size_t length, const std::uint64_t *data,
                         std::uint64_t offset) noexcept;
    // See FI_OPT_VMA_WARM. 0 or -FI_ENOTCONN.
    int warm(std::uint64_t offset, std::uint64_t length) noexcept;
    // A message that fits a slot and needs nothing but a slot. 1 when it isn't that simple after all.
    ssize_t send_small(const void *buffer, std::size_t length, const std::uint64_t *data, void *context,
                       bool completion) noexcept;
    ssize_t post(TxOp &op) noexcept;

    // ---- what its queue sees, all with the lock held
    bool try_lock() noexcept { return lock_.try_lock(); }
    void unlock() noexcept { lock_.unlock(); }
    // Takes in what the peer has consumed, issues what waited for it, completes what is done. With `queue_locked` the
    // caller holds queue->lock.
    void advance(bool queue_locked) noexcept;
    bool idle() const noexcept { return ops_.empty() && !starved_; }
    // ns: when the rate limit lets go what is first in line, or was refused; 0: it waits for something else.
    std::uint64_t due() const noexcept { return held_until_; }
    PacedTimer &timer() noexcept { return timer_; } // for due(); on the queue's wheel
    // Nothing but the clock brings anything new.
    bool only_paced() const noexcept { return held_until_ != 0 && issue_at_ == 0; }
    // Whether a starved caller should try again; and whether it was the rate limit's refusal that it heard.
    bool may_try_again() noexcept;
    bool refused() const noexcept { return refused_; }
    void told_to_try_again() noexcept { starved_ = refused_ = false; }

    // See FI_OPT_VMA_RATE_LIMIT; a valid one.
    void set_limit(const fi_vma_rate_limit &limit) noexcept;
    fi_vma_rate_limit limit() noexcept;
    bool paced() const noexcept { return paced_; }
    std::uint64_t due_now() noexcept; // due(), for who doesn't hold the lock

    // No more operations; those that the peer didn't take end with `error`.
    void disconnect(int error) noexcept;

    std::size_t slots_left() noexcept;
    Control &control() noexcept { return slots_.control(); } // the words that it shares with the peer; for tests
    std::uint64_t region_length() const noexcept { return region_length_; } // of the peer's
    // The peer's region as it will be when the peer has consumed all slots, which it can't cut from then on. False: it
    // has.
    bool view_region(const void *&view) noexcept;
    // The whole pages of that part of the peer's region go back to the system. 0 or a negative fi_errno.
    int discard_region(std::uint64_t offset, std::uint64_t length) noexcept;

private:
    // Whether a call may go past the queue of operations; where not, after a look at what the peer has done.
    template <typename Clear> bool passes(Clear clear) noexcept
    {
        if (clear()) [[likely]]
            return true;
        advance(false);
        return clear();
    }
    // A slot to fill. Without one the peer is asked to wake us when there is.
    Slot *claim() noexcept
    {
        Slot *const slot = slots_.claim();
        return slot != nullptr ? slot : claim_behind();
    }
    Slot *claim_behind() noexcept;
    // The same with share.length bytes of the bounce ring.
    Slot *claim(BounceRing::Share &share) noexcept
    {
        Slot *const slot = claim();
        return slot != nullptr && shares_.allocate(share.length, share.offset) ? slot : nullptr;
    }
    // The same for so many bytes that go now, if the rate limit lets them.
    Slot *reserve(std::uint64_t bytes) noexcept
    {
        Slot *const slot = turn(bytes) ? claim() : nullptr;
        if (slot != nullptr)
            spend(bytes);
        return slot;
    }
    Slot *reserve(std::uint64_t bytes, BounceRing::Share &share) noexcept
    {
        Slot *const slot = turn(bytes) ? claim(share) : nullptr;
        if (slot != nullptr)
            spend(bytes);
        return slot;
    }
    // Completes everything with an error, or drops it.
    void flush(int error, bool report) noexcept;
    bool refresh() noexcept;
    void take_acks(std::uint32_t head) noexcept;
    void take_shares(std::uint32_t head) noexcept;
    void take_key(TxOp &op, const Slot &slot) noexcept;
    bool issue(TxOp &op) noexcept;
    bool issue_send(TxOp &op) noexcept;
    bool issue_segments(TxOp &op) noexcept;
    bool keep(const BounceRing::Share &share) noexcept;
    bool issue_rma(TxOp &op) noexcept;
    bool issue_region(TxOp &op) noexcept;
    bool issue_write_inline(TxOp &op) noexcept;
    bool issue_chunks(TxOp &op) noexcept;
    bool issue_cma(TxOp &op) noexcept;
    bool issue_key(TxOp &op, std::uint64_t key) noexcept;
    const RemoteKey *find_key(std::uint64_t key) noexcept;
    void remember_key(const RemoteKey &key) noexcept;
    int resolve(const TxOp &op, const fi_rma_iov &rma, const RemoteKey *&key) noexcept;
    void apply_own_slots() noexcept;
    bool quiet() noexcept;
    void issue_waiting() noexcept;
    void settle(bool queue_locked) noexcept;
    bool complete(const TxOp &op, bool queue_locked) noexcept;
    void count(const TxOp &op) noexcept;
    void publish(TxOp &op, SlotOp slot_op, unsigned flags, std::size_t length, std::uint64_t addr) noexcept;
    bool notify() noexcept; // false: the peer takes nothing any more, what was published last included
    void watch_progress() noexcept;
    void starve() noexcept;
    ssize_t try_again() noexcept;
    bool is_due(std::uint64_t bytes) noexcept;
    // So many bytes go now. After is_due().
    void spend(std::uint64_t bytes) noexcept
    {
        if (paced_) [[unlikely]]
            pacer_.take(bytes);
    }
    bool turn(std::uint64_t bytes) noexcept { return !paced_ || is_due(bytes); }
    // Both in one.
    bool pay(std::uint64_t bytes) noexcept
    {
        if (!paced_) [[likely]]
            return true;
        if (!is_due(bytes))
            return false;
        pacer_.take(bytes);
        return true;
    }
    std::uint64_t longest_piece() const noexcept;

    core::SpinLock lock_;
    // Calls go on while it is true. Atomic: in a domain without locks connection management changes it from its thread.
    std::atomic<bool> connected_{false};
    bool paced_ = false; // there is a rate limit
    bool ended_ = false; // disconnect() was called

public:
    bool waiting = false; // in the queue's list of endpoints with something under way; protected by queue->lock

private:
    bool rang_ = true; // no slot was published that the peer was not told of
    SlotWriter slots_;
    std::byte *region_ = nullptr; // the peer's
    std::uint64_t region_length_ = 0;
    std::uint32_t bit_ = 0;
    std::shared_ptr<PeerDoorbell> doorbell_; // for slots

    core::Fifo<TxOp> ops_;
    std::size_t issue_at_ = 0;   // ops_[0 .. issue_at_) are issued
    std::size_t ack_at_ = 0;     // ops_[0 .. ack_at_) need no more word from the peer
    std::uint64_t first_op_ = 0; // number of ops_[0] since the beginning
    BounceRing shares_;
    std::byte *bounce_ = nullptr; // the peer's
    bool cma_ = false;
    bool broken_ = false;  // the peer lied; nothing more is done until CM ends the connection
    bool starved_ = false; // a call ended with -FI_EAGAIN for want of slots, or because it was not due
    bool refused_ = false; // and there was a rate limit: who sleeps in fi_cq_sread() is told when it may go
    Pacer pacer_;
    std::uint64_t held_until_ = 0; // see due()
    PacedTimer timer_;

public:
    Sender *waiting_next = nullptr; // as `waiting`

    // What the program binds to the endpoint before it is enabled.
    Queue *queue = nullptr;
    ofi::Cntr *send_counter = nullptr;
    ofi::Cntr *write_counter = nullptr;
    ofi::Cntr *read_counter = nullptr;

private:
    Endpoint *endpoint_ = nullptr;
    std::unique_ptr<RemoteKey[]> keys_; // kKeys of them
    unsigned next_key_ = 0;             // the one to overwrite next
    SegmentUse segment_;                // the peer's
};

} // namespace vma::local
