// SPDX-License-Identifier: BSD-2-Clause
// The sending direction of an offloaded socket: which path the next bytes take, the copy into the peer's ring, and the
// control tags. Nothing here blocks; all of it runs with tx_lock held (doc/stream-protocol.md).
#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <iterator>

#include <rdma/fi_cm.h>
#include <rdma/fi_ext_vma.h>
#include <rdma/fi_rma.h>

#include "compat/src/base/fence.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/kernel_counts.hpp"
#include "compat/src/transport/pacing.hpp"
#include "compat/src/transport/resend.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

namespace {

// A RETURN and two ENDs, of which the second answers a RETURN that crossed the first, always find a slot: the next of
// each comes when the peer has taken these. Nobody could close an endpoint otherwise: what the peer goes on writing
// would be lost.
constexpr std::uint32_t kSlotsForTurns = 3;
constexpr std::uint32_t kReservedSlots = kSlotsForTurns + 3; // the other tags', which can be sent later

// Of an endpoint that takes nothing any more: as many as are needed, so that the write says so.
std::uint32_t count_slots(const Stream &s)
{
    const ssize_t left = s.endpoint->ops->tx_size_left(s.endpoint);
    if (left == -FI_ENOTCONN) [[unlikely]]
        return kReservedSlots + 1;
    return left > 0 ? static_cast<std::uint32_t>(left) : 0;
}

bool refresh_slots(Stream &s)
{
    s.tx.slots_left = count_slots(s);
    return s.tx.slots_left > kReservedSlots;
}

// The peer sends a CREDIT for every kWritesPerCredit writes it takes, fewer than there are slots: a blocked sender
// hears of it.
bool has_slot(Stream &s)
{
    if (s.tx.slots_left > kReservedSlots || refresh_slots(s)) [[likely]]
        return true;
    s.tx.slots_blocked.store(true, std::memory_order_seq_cst);
    if (!refresh_slots(s))
        return false;
    s.tx.slots_blocked.store(false, std::memory_order_relaxed);
    return true;
}

// One write of contiguous bytes, no more than a piece: long enough to copy well, short enough to overlap with the
// reader, and half a burst of a socket with a rate limit. 0, or the provider's negative error.
int write_piece(Stream &s, const void *bytes, std::size_t len)
{
    const std::uint64_t offset = s.tx.position & (s.tx.ring - 1);
    const std::uint32_t acts = libc::number_of_kernel_acts();
    const std::uint64_t value = acts == s.tx.kernel_acts ? len : len | kAfterKernel;
    const ssize_t result =
        fi_inject_writedata(s.endpoint, bytes, len, make_tag(Tag::kData, value), 0, offset, FI_VMA_REGION_KEY);
    if (result != 0) [[unlikely]] {
        if (result == -FI_EAGAIN && s.pacing.limited.load(std::memory_order_relaxed))
            note_refusal(s);
        return static_cast<int>(result);
    }
    s.tx.position += len;
    s.tx.kernel_acts = acts;
    --s.tx.slots_left;
    stats::sent(record_of(s), len, [=](const stats::Slot &record) { stats::capture_sent(record, bytes, len); });
    return 0;
}

// What ended a write before all was written, but for want of room.
struct Failure {
    bool of_endpoint = false; // it is gone
    bool of_memory = false;   // the program's: as with the kernel, what stands before the piece with the fault is sent
};

// Copies as much of `bytes` as there is room for. Bytes taken.
std::size_t write_ring(Stream &s, const std::uint8_t *bytes, std::size_t len, Failure &failure)
{
    std::size_t done = 0;
    while (done < len) {
        const std::uint64_t room = s.tx.ring - (s.tx.position - s.tx.credit.load(std::memory_order_acquire));
        const std::uint64_t to_end = s.tx.ring - (s.tx.position & (s.tx.ring - 1));
        const std::size_t piece =
            std::min({len - done, std::size_t{room}, std::size_t{to_end}, std::size_t{s.tx.piece}});
        if (piece == 0 || !has_slot(s))
            break;
        failure.of_memory = !libc::can_read(bytes + done, piece);
        if (failure.of_memory) [[unlikely]]
            break;
        const int result = write_piece(s, bytes + done, piece);
        if (result != 0) {
            failure.of_endpoint = result != -FI_EAGAIN;
            break;
        }
        done += piece;
    }
    return done;
}

// Several small pieces of the program become one write. None, if one of them is not there.
ssize_t gather(const msghdr *msg, std::size_t skip, std::uint8_t *out, std::size_t room)
{
    std::size_t filled = 0;
    for (std::size_t i = 0; i < msg->msg_iovlen && filled < room; ++i) {
        const iovec &v = msg->msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        const std::size_t n = std::min(v.iov_len - skip, room - filled);
        const auto *const bytes = static_cast<const std::uint8_t *>(v.iov_base) + skip;
        if (!libc::can_read(bytes, n)) [[unlikely]]
            return -EFAULT;
        memcpy(out + filled, bytes, n);
        filled += n;
        skip = 0;
    }
    return static_cast<ssize_t>(filled);
}

constexpr std::size_t kGather = 1536; // a frame of Ethernet's, say

// Small parts as one piece. False: not all of it went. Not inlined, as the room is on the stack: who sends one part, as
// send() does, has less of that.
[[gnu::noinline]] bool transmit_gathered(Stream &s, const msghdr &parts, std::size_t skip, Failure &failure,
                                         std::size_t &done)
{
    std::uint8_t buffer[kGather];
    const ssize_t filled = gather(&parts, skip, buffer, sizeof buffer);
    failure.of_memory = filled < 0;
    if (failure.of_memory) [[unlikely]] {
        done = 0;
        return false;
    }
    done = write_ring(s, buffer, static_cast<std::size_t>(filled), failure);
    return done == static_cast<std::size_t>(filled);
}

ssize_t transmit_endpoint(Stream &s, const msghdr *msg, std::size_t skip, Failure &failure)
{
    std::size_t total = 0;
    for (std::size_t i = 0; i < msg->msg_iovlen; ++i) {
        const iovec &v = msg->msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        std::size_t done;
        const std::size_t want = v.iov_len - skip;
        if (want < kGather && i + 1 < msg->msg_iovlen) {
            const msghdr rest = {nullptr, 0, msg->msg_iov + i, msg->msg_iovlen - i, nullptr, 0, 0};
            const bool all = transmit_gathered(s, rest, skip, failure, done);
            total += done;
            if (!all)
                break;
            skip += done; // go on behind what was gathered
            --i;
            continue;
        }
        done = write_ring(s, static_cast<const std::uint8_t *>(v.iov_base) + skip, want, failure);
        total += done;
        skip = 0;
        if (done < want)
            break;
    }
    return total != 0 ? static_cast<ssize_t>(total) : failure.of_memory ? -EFAULT : -EAGAIN;
}

ssize_t transmit_kernel(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags)
{
    if (const int error = take_error(s))
        return -error;
    iovec rest[64];
    msghdr part = *msg;
    if (skip != 0) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < msg->msg_iovlen && count < std::size(rest); ++i) {
            const iovec &v = msg->msg_iov[i];
            if (skip >= v.iov_len) {
                skip -= v.iov_len;
                continue;
            }
            rest[count++] = {static_cast<std::uint8_t *>(v.iov_base) + skip, v.iov_len - skip};
            skip = 0;
        }
        part.msg_iov = rest;
        part.msg_iovlen = count;
        flags |= MSG_NOSIGNAL; // that nobody is there any more is for the next call, as something was sent
    }
    const ssize_t n = libc::uncancelled::sendmsg(fd, &part, flags | MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    by_os_sent(s, n);
    s.tx.kernel_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
    return n;
}

} // namespace

ssize_t post_tag(Stream &s, Tag type, std::uint64_t value)
{
    if (s.endpoint == nullptr || s.endpoint_down.load(std::memory_order_acquire))
        return -FI_ENOTCONN;
    if (type != Tag::kEnd && type != Tag::kReturn && count_slots(s) <= kSlotsForTurns)
        return -FI_EAGAIN;
    return fi_inject_writedata(s.endpoint, &value, 0, make_tag(type, value), 0, 0, FI_VMA_REGION_KEY);
}

namespace {

void maybe_start(Stream &s)
{
    Sender &tx = s.tx;
    if (tx.path != Path::kKernel || tx.final || tx.end_pending != kNone || is_unseen(s) ||
        !tx.peer_ready.load(std::memory_order_acquire) || s.endpoint == nullptr ||
        s.endpoint_down.load(std::memory_order_acquire) || tx.credit.load(std::memory_order_acquire) != tx.position)
        return;
    if (s.mode.load(std::memory_order_seq_cst) != Mode::kOffloaded ||
        s.blocked_senders.load(std::memory_order_seq_cst) != 0)
        return; // a kernel-only send would not be counted in K
    if (!kernel_agrees_on_sent(s, tx.kernel_bytes.load(std::memory_order_relaxed))) {
        tx.final = true;
        note_uncounted(s);
        return;
    }
    begin_paced_span(s);
    const bool before = tx.started.exchange(true, std::memory_order_relaxed);
    if (transport(s).post_tag(s, Tag::kStart, tx.kernel_bytes.load(std::memory_order_relaxed)) != 0) {
        tx.started.store(before, std::memory_order_relaxed);
        return;
    }
    tx.peer_ready.store(false, std::memory_order_relaxed);
    tx.path = Path::kEndpoint;
}

// The peer takes no more than `consumed` endpoint bytes. Every RETURN is answered by an END; when one of ours crossed
// it, the second says the same and changes nothing.
void answer_return(Stream &s, std::uint64_t consumed)
{
    Sender &tx = s.tx;
    tx.final = true;
    if (tx.path.load(std::memory_order_relaxed) == Path::kEndpoint && consumed <= tx.position) {
        tx.end_pending = consumed;
        tx.resend_from = consumed;
    } else if (tx.end_pending == kNone) {
        tx.end_pending = tx.position;
    }
    tx.path = Path::kKernel;
}

} // namespace

// Less than an eighth of it free is no room: who wants to send waits for more.
bool ring_has_room(const Stream &s)
{
    return !s.tx.slots_blocked.load(std::memory_order_acquire) &&
           s.tx.position - s.tx.credit.load(std::memory_order_acquire) <= s.tx.ring - s.tx.ring / 8;
}

bool can_transmit(const Stream &s)
{
    return (by_shared_ring(s) ? ring_has_room(s) : transport(s).has_room(s)) && !is_held(s);
}

std::size_t ring_send_small(Stream &s, const void *bytes, std::size_t len)
{
    const Sender &tx = s.tx;
    if (tx.path.load(std::memory_order_relaxed) != Path::kEndpoint || s.tx_work.load(std::memory_order_acquire) ||
        s.endpoint_down.load(std::memory_order_acquire))
        return 0;
    const std::uint64_t room = tx.ring - (tx.position - tx.credit.load(std::memory_order_acquire));
    const std::uint64_t to_end = tx.ring - (tx.position & (tx.ring - 1));
    const bool simple =
        len <= std::min({room, to_end, std::uint64_t{tx.piece}}) && libc::can_read(bytes, len) && has_slot(s);
    return simple && write_piece(s, bytes, len) == 0 ? len : 0;
}

namespace {

void answer_leave(Stream &s)
{
    Sender &tx = s.tx;
    tx.final = true;
    if (tx.path != Path::kEndpoint)
        return;
    tx.path = Path::kKernel; // no RETURN was needed, as nothing is left to read
    tx.end_pending = tx.position;
}

} // namespace

bool send_tag(Stream &s, Tag type, std::uint64_t value)
{
    return post_tag(s, type, value) == 0;
}

// The endpoint has ended while it carried our bytes. Who closed it has said by RETURN, which may still be in the queue,
// how many it has taken: the rest goes by the kernel first.
void heed_last_return(Stream &s)
{
    engine_drain(ring_of(s));
    if (s.tx.return_at.load(std::memory_order_acquire) != kNone)
        do_tx_work(s);
}

void end_transmit(Stream &s, bool final)
{
    Sender &tx = s.tx;
    if (tx.path == Path::kEndpoint && s.endpoint_down.load(std::memory_order_acquire)) [[unlikely]]
        heed_last_return(s);
    tx.final |= final;
    if (tx.path == Path::kEndpoint) {
        tx.path = Path::kKernel;
        tx.end_pending = tx.position;
    } else if (!final) {
        return;
    }
    do_tx_work(s);
}

// RETURN is kept in the receiver's words by the engine (returned_at); here it is answered, and what found no slot goes
// out.
void do_tx_work(Stream &s)
{
    Sender &tx = s.tx;
    s.tx_work.store(false, std::memory_order_relaxed);
    const std::uint64_t consumed = tx.return_at.exchange(kNone, std::memory_order_acq_rel);
    if (consumed != kNone)
        answer_return(s, consumed);
    if (tx.leave.load(std::memory_order_relaxed)) [[unlikely]]
        answer_leave(s);
    if (tx.resend_from != kNone)
        resend(s);
    if (tx.resend_from == kNone && tx.end_pending != kNone) {
        const std::uint64_t end = tx.end_pending;
        const ssize_t result = post_tag(s, Tag::kEnd, end);
        if (result != -FI_EAGAIN) { // sent, or nobody is left to hear it
            tx.position = end;      // what stood behind was taken back
            tx.end_pending = kNone;
            if (result != 0)
                transport(s).end_not_told(s);
        } else {
            s.tx_work.store(true, std::memory_order_release);
        }
    }
    if (tx.final) [[unlikely]]
        transport(s).ended_for_good(s);
    maybe_start(s);
}

namespace {

bool is_blocked(const Stream &s)
{
    return s.tx.resend_from != kNone || s.tx.end_pending != kNone;
}

// Whoever was told "not yet" while earlier bytes or an END were on their way hears of it: the kernel may have no news
// then.
void do_late_tx_work(Stream &s)
{
    const bool was_blocked = is_blocked(s);
    do_tx_work(s);
    if (was_blocked && !is_blocked(s))
        notify(s, POLLOUT);
}

} // namespace

void unlock_tx(Stream &s)
{
    s.tx_lock.unlock();
    fence_after_exchange(); // who has found it locked left us his work before
    if (s.tx_work.load(std::memory_order_acquire)) [[unlikely]]
        try_tx_work(s);
}

void try_tx_work(Stream &s)
{
    if (!s.tx_lock.try_lock())
        return;
    do_late_tx_work(s);
    s.tx_lock.unlock();
}

// Who waits for room is told of it only if there is some: a peer that is stopped would have him awake at each tick.
void look_for_slots(Stream &s)
{
    if (!s.tx_lock.try_lock())
        return;
    const bool any = s.endpoint == nullptr || refresh_slots(s); // without one it is the kernel's room that counts
    const bool found = any && s.tx.slots_blocked.exchange(false, std::memory_order_acq_rel);
    unlock_tx(s);
    if (found)
        notify(s, POLLOUT);
}

ssize_t ring_send(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags)
{
    Sender &tx = s.tx;
    if (tx.path == Path::kKernel || s.tx_work.load(std::memory_order_acquire)) [[unlikely]]
        do_late_tx_work(s);
    if (is_blocked(s))
        return -EAGAIN; // earlier bytes are still on their way
    if (tx.path == Path::kEndpoint) {
        Failure failure = {.of_endpoint = s.endpoint_down.load(std::memory_order_acquire)};
        if (tx.piece == 0 && !failure.of_endpoint && !paced_span_has_begun(s)) [[unlikely]]
            return -EAGAIN;
        ssize_t n = failure.of_endpoint ? -EAGAIN : transmit_endpoint(s, msg, skip, failure);
        if (n == -EAGAIN && !failure.of_endpoint) {
            tx.found_full.store(true, std::memory_order_seq_cst);
            fence_after_exchange();
            if (can_transmit(s)) // a CREDIT came before it could see that
                n = transmit_endpoint(s, msg, skip, failure);
        }
        if (n >= 0 || !failure.of_endpoint)
            return n;
        transport(s).endpoint_failed(s);
        if (is_blocked(s))
            return -EAGAIN;
        tx.path = Path::kKernel; // the peer is gone: the kernel says how
        tx.final = true;
    }
    if (is_unseen(s))
        return -EAGAIN;
    return transmit_kernel(s, fd, msg, skip, flags);
}

} // namespace vma::sock
