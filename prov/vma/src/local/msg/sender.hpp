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
#include "local/doorbell.hpp"
#include "local/layout.hpp"
#include "local/msg/bounce.hpp"
#include "local/msg/slots.hpp"
#include "local/pacing.hpp"
#include "local/segment.hpp"
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

// Everything is protected by `lock`, taken before any completion queue's lock; who holds one may only try.
struct Sender {
    core::SpinLock lock;
    // Calls go on while it is true. Atomic: in a domain without locks connection management changes it from its thread.
    std::atomic<bool> connected{false};
    bool paced = false;   // there is a rate limit
    bool ended = false;   // disconnect() was called
    bool waiting = false; // in the queue's list of endpoints with something under way; protected by queue->lock
    bool rang = true;     // no slot was published that the peer was not told of
    SlotWriter slots;
    std::byte *region = nullptr; // the peer's
    std::uint64_t region_length = 0;
    std::uint32_t bit = 0;
    std::shared_ptr<PeerDoorbell> doorbell; // for slots

    core::Fifo<TxOp> ops;
    std::size_t issue_at = 0;   // ops[0 .. issue_at) are issued
    std::size_t ack_at = 0;     // ops[0 .. ack_at) need no more word from the peer
    std::uint64_t first_op = 0; // number of ops[0] since the beginning
    BounceRing shares;
    std::byte *bounce = nullptr; // the peer's
    bool cma = false;
    bool broken = false;  // the peer lied; nothing more is done until CM ends the connection
    bool starved = false; // a call ended with -FI_EAGAIN for want of slots, or because it was not due
    bool refused = false; // and there was a rate limit: who sleeps in fi_cq_sread() is told when it may go
    Pacer pacer;
    std::uint64_t held_until =
        0;            // ns: when what is first in `ops`, or was refused, is due; 0: it waits for something else
    PacedTimer timer; // of it, on the queue's wheel

    Queue *queue = nullptr;
    Sender *waiting_next = nullptr;
    ofi::Cntr *send_counter = nullptr;
    ofi::Cntr *write_counter = nullptr;
    ofi::Cntr *read_counter = nullptr;
    Endpoint *endpoint = nullptr;
    std::unique_ptr<RemoteKey[]> keys; // kKeys of them
    unsigned next_key = 0;             // the one to overwrite next
    Mapping segment;                   // the peer's

    // A write to the peer's region, the sockets' path. 0, -FI_EAGAIN, -FI_EINVAL, -FI_ENOTCONN. `data` may be null.
    ssize_t write_region(const void *buffer, std::size_t length, const std::uint64_t *data,
                         std::uint64_t offset) noexcept;
    // See FI_OPT_VMA_WARM. 0 or -FI_ENOTCONN.
    int warm(std::uint64_t offset, std::uint64_t length) noexcept;
    // A message that fits a slot and needs nothing but a slot. 1 when it isn't that simple after all.
    ssize_t send_small(const void *buffer, std::size_t length, const std::uint64_t *data, void *context,
                       bool completion) noexcept;
    ssize_t post(TxOp &op) noexcept;

    // Takes in what the peer has consumed, issues what waited for it, completes what is done. With `queue_locked` the
    // caller holds queue->lock.
    void advance(bool queue_locked) noexcept;
    bool idle() const noexcept { return ops.empty() && !starved; }
    // Nothing but the clock brings anything new.
    bool only_paced() const noexcept { return held_until != 0 && issue_at == 0; }
    // See FI_OPT_VMA_RATE_LIMIT; a valid one.
    void set_limit(const fi_vma_rate_limit &limit) noexcept;
    // Whether a starved caller should try again.
    bool may_try_again() noexcept;

    // No more operations; those that the peer didn't take end with `error`.
    void disconnect(int error) noexcept;
    // Completes everything with an error, or drops it.
    void flush(int error, bool report) noexcept;

    std::size_t slots_left() noexcept;
    // The peer's region as it will be when the peer has consumed all slots, which it can't cut from then on. False: it has.
    bool view_region(const void *&view) noexcept;
    // The whole pages of that part of the peer's region go back to the system. 0 or a negative fi_errno.
    int discard_region(std::uint64_t offset, std::uint64_t length) noexcept;

private:
    Slot *claim() noexcept;
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
        if (paced) [[unlikely]]
            pacer.take(bytes);
    }
    bool turn(std::uint64_t bytes) noexcept { return !paced || is_due(bytes); }
    std::uint64_t longest_piece() const noexcept;
};

} // namespace vma::local
