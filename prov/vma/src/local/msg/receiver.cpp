// SPDX-License-Identifier: BSD-2-Clause
// What each kind of slot means to the side that gets it.
#include "local/msg/receiver.hpp"

#include <algorithm>
#include <iterator>

#include <rdma/fi_domain.h>

#include "local/cma.hpp"
#include "local/msg/endpoint.hpp"
#include "local/queue.hpp"
#include "ofi/cntr.hpp"
#include "ofi/memory/mr.hpp"

namespace vma::local {

namespace {

constexpr std::uint64_t kPullStep = std::uint64_t{1} << 20; // bytes copied while the queue's lock is held

} // namespace

const Receiver::Handler Receiver::kHandlers[] = {
    &Receiver::on_lie,          // none
    &Receiver::on_send_inline,  // send_inline
    &Receiver::on_send_bounce,  // send_bounce
    &Receiver::on_send_segment, // send_segment
    &Receiver::on_send_pull,    // send_pull
    &Receiver::on_region,       // region_inline
    &Receiver::on_region,       // region_direct
    &Receiver::on_write_inline, // write_inline
    &Receiver::on_write_bounce, // write_bounce
    &Receiver::on_write_note,   // write_note
    &Receiver::on_read_bounce,  // read_bounce
    &Receiver::on_read_note,    // read_note
    &Receiver::on_key_query,    // key_query
};

int Receiver::create(std::uint64_t region_bytes, std::shared_ptr<LinkSegments> kept) noexcept
{
    static_assert(std::size(kHandlers) == static_cast<std::size_t>(SlotOp::count));
    if (const int error = segment.open(std::move(kept), kSlotsSize + kBounceSize + region_bytes, kSlotsSize))
        return error;
    std::byte *base = segment.mapping.data();
    auto *control = reinterpret_cast<Control *>(base);
    slots.attach(control, reinterpret_cast<Slot *>(base + kControlSize));
    bounce = base + kSlotsSize;
    region = base + kSlotsSize + kBounceSize;
    region_length = region_bytes;
    // Nobody looks at the slots before the queue has taken the endpoint in.
    slots.ask_for_ring();
    return 0;
}

bool Receiver::queue_full() const noexcept
{
    return queue->entries.full();
}

namespace {

// What stays within the connection's own segment: no memory of this process, none of a process that has the guest's
// number, and no registration.
constexpr bool is_for_guests(SlotOp op)
{
    switch (op) {
    case SlotOp::send_inline:
    case SlotOp::send_bounce:
    case SlotOp::send_segment:
    case SlotOp::region_inline:
    case SlotOp::region_direct:
        return true;
    default:
        return false;
    }
}

} // namespace

Consumed Receiver::consume(const SlotHeader &header) noexcept
{
    if (header.op >= SlotOp::count || (header.flags & ~kSlotFlagsAll) || header.length > kSlotPayload)
        return Consumed::lie;
    if (guest && !is_for_guests(header.op)) [[unlikely]]
        return Consumed::lie;
    const Consumed result = (this->*kHandlers[static_cast<std::size_t>(header.op)])(header);
    if (result == Consumed::done) {
        ack_due |= (header.flags & kSlotWantAck) != 0;
        slots.consume();
    }
    return result;
}

void Receiver::answer(const SlotHeader &header, int error) noexcept
{
    if (header.flags & kSlotWantAck) {
        const Result result{error};
        std::memcpy(slots.payload(), &result, sizeof result);
    }
}

// Takes a receive for the message that begins. False: it has to wait.
bool Receiver::start(std::uint64_t total) noexcept
{
    if (queue_full() || !receives->take(current.entry, *endpoint))
        return false;
    current.active = true;
    current.total = total;
    current.done = 0;
    return true;
}

// The completion of the current message.
void Receiver::finish(const SlotHeader &header, int error, int provider_error) noexcept
{
    current.active = false;
    const RxEntry &entry = current.entry;
    ofi::Completion completion;
    completion.context = entry.context;
    completion.flags = FI_MSG | FI_RECV;
    completion.length = std::min(current.total, entry.length);
    completion.buffer = entry.iov_count ? entry.iov[0].iov_base : nullptr;
    completion.owner = endpoint;
    if (header.flags & kSlotData) {
        completion.flags |= FI_REMOTE_CQ_DATA;
        completion.data = header.data;
    }
    if (!error && current.total > entry.length) {
        error = FI_ETRUNC;
        completion.excess = current.total - entry.length;
    }
    completion.error = error;
    completion.provider_error = provider_error;
    if (receive_counter)
        error ? receive_counter->count_error() : receive_counter->count();
    if (error || entry.completion)
        queue->push(completion);
}

Consumed Receiver::deliver(const SlotHeader &header, const std::byte *from, std::uint64_t length) noexcept
{
    if (current.active)
        return Consumed::lie; // between the segments of another
    if (!start(length))
        return Consumed::later;
    const RxEntry &entry = current.entry;
    const std::size_t fits = std::min(length, entry.length);
    if (entry.iov_count == 1)
        std::memcpy(entry.iov[0].iov_base, from, fits);
    else
        scatter(entry.iov, entry.iov_count, 0, from, fits);
    answer(header, 0);
    finish(header, 0, 0);
    return Consumed::done;
}

Consumed Receiver::on_lie(const SlotHeader &) noexcept
{
    return Consumed::lie;
}

Consumed Receiver::on_send_inline(const SlotHeader &header) noexcept
{
    return deliver(header, slots.payload(), header.length);
}

Consumed Receiver::on_send_bounce(const SlotHeader &header) noexcept
{
    const auto share = payload<Bounce>();
    if (share.length > kBounceChunk || share.offset > kBounceSize - share.length)
        return Consumed::lie;
    return deliver(header, bounce + share.offset, share.length);
}

Consumed Receiver::on_send_segment(const SlotHeader &header) noexcept
{
    const auto part = payload<MessagePart>();
    if (part.length > kBounceChunk || part.offset > kBounceSize - part.length)
        return Consumed::lie;
    if (part.position == 0 && !current.active && !start(part.total))
        return Consumed::later;
    if (!current.active || part.total != current.total || part.position != current.done ||
        part.length > current.total - current.done)
        return Consumed::lie;
    const bool last = (header.flags & kSlotLast) != 0;
    if (last != (current.done + part.length == current.total))
        return Consumed::lie;
    const RxEntry &entry = current.entry;
    if (current.done < entry.length) {
        const std::uint64_t fits = std::min<std::uint64_t>(part.length, entry.length - current.done);
        scatter(entry.iov, entry.iov_count, current.done, bounce + part.offset, fits);
    }
    current.done += part.length;
    if (last) {
        answer(header, 0);
        finish(header, 0, 0);
    }
    return Consumed::done;
}

Consumed Receiver::on_send_pull(const SlotHeader &header) noexcept
{
    // The slot stays in front over several steps, so its words are read again: they are used as addresses in the
    // peer's memory only.
    const auto pull = payload<Pull>();
    if (pull.count > kIovLimit || !(header.flags & kSlotWantAck))
        return Consumed::lie;
    iovec theirs[kIovLimit];
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < pull.count; ++i) {
        theirs[i] = {reinterpret_cast<void *>(pull.pieces[i].address), pull.pieces[i].length};
        if (__builtin_add_overflow(sum, pull.pieces[i].length, &sum))
            return Consumed::lie;
    }
    if (sum != pull.total)
        return Consumed::lie;
    if (!current.active && !start(pull.total))
        return Consumed::later;
    if (current.total != pull.total)
        return Consumed::lie;

    const RxEntry &entry = current.entry;
    const std::uint64_t wanted = std::min(current.total, entry.length);
    const std::uint64_t step = std::min(wanted - std::min(wanted, current.done), kPullStep);
    int error = 0;
    if (step) {
        iovec here[kIovLimit];
        iovec there[kIovLimit];
        const unsigned here_count = slice(entry.iov, entry.iov_count, current.done, step, here);
        const unsigned there_count = slice(theirs, pull.count, current.done, step, there);
        error = cma_copy(CmaDirection::read, endpoint->peer_memory(), here, here_count, there, there_count, step);
        // The sender may have given its buffer back to the program when it closed: then these are other bytes. The look
        // is behind the copy, which the kernel's code has made in this thread.
        core::full_fence();
        if (!error && slots.control().revoked.load(std::memory_order_relaxed))
            error = ECONNRESET;
    }
    current.done += step;
    if (!error && current.done < wanted)
        return Consumed::later;
    answer(header, error ? FI_EIO : 0);
    finish(header, error == ECONNRESET ? FI_ECONNRESET : error ? FI_EIO : 0, error);
    return Consumed::done;
}

Consumed Receiver::on_region(const SlotHeader &header) noexcept
{
    if ((header.flags & kSlotData) && queue_full())
        return Consumed::later;
    std::uint64_t length = 0;
    if (!apply_region(header, length))
        return Consumed::lie;
    return remote_written(header, 0, length, context);
}

// A peer's write has ended: completion if there is data with it, and the counter. No operation of the program's has
// `op_context`, which is nullptr then (fi_cq(3)), but in a region, whose owner has asked for it.
Consumed Receiver::remote_written(const SlotHeader &header, int error, std::uint64_t length, void *op_context) noexcept
{
    if (error && !(header.flags & kSlotWantAck)) {
        // It was allowed when the peer asked; the program closed the registration under it. A queue pair would
        // break at this, so does ours.
        return Consumed::lie;
    }
    if (error)
        return Consumed::done;
    if (remote_write_counter)
        remote_write_counter->count();
    if (header.flags & kSlotData) {
        ofi::Completion completion;
        completion.context = op_context;
        completion.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        completion.length = length;
        completion.data = header.data;
        completion.owner = endpoint;
        queue->push(completion);
    }
    return Consumed::done;
}

Consumed Receiver::registered_written(const SlotHeader &header, std::uint64_t key, int error,
                                      std::uint64_t length) noexcept
{
    if (error == 0)
        endpoint->mrs().count(key, FI_REMOTE_WRITE);
    return remote_written(header, error, length, nullptr);
}

Consumed Receiver::on_write_inline(const SlotHeader &header) noexcept
{
    if (header.length > kWriteInline)
        return Consumed::lie;
    if ((header.flags & kSlotData) && queue_full())
        return Consumed::later;
    std::byte copy[kSlotPayload];
    std::memcpy(copy, slots.payload(), sizeof copy);
    std::uint64_t key;
    std::memcpy(&key, copy, sizeof key);
    const int error = endpoint->mrs().write(key, header.addr, copy + sizeof key, header.length);
    answer(header, error);
    return registered_written(header, key, error, header.length);
}

Consumed Receiver::on_write_bounce(const SlotHeader &header) noexcept
{
    const auto rma = payload<RmaBounce>();
    if (rma.length > kBounceChunk || rma.offset > kBounceSize - rma.length)
        return Consumed::lie;
    if ((header.flags & kSlotData) && queue_full())
        return Consumed::later;
    const int error = endpoint->mrs().write(rma.key, header.addr, bounce + rma.offset, rma.length);
    answer(header, error);
    if (!error && !(header.flags & kSlotLast))
        return Consumed::done;
    return registered_written(header, rma.key, error, rma.total);
}

Consumed Receiver::on_write_note(const SlotHeader &header) noexcept
{
    if ((header.flags & kSlotData) && queue_full())
        return Consumed::later;
    const auto rma = payload<RmaBounce>();
    answer(header, 0);
    return registered_written(header, rma.key, 0, rma.total);
}

Consumed Receiver::on_read_bounce(const SlotHeader &header) noexcept
{
    const auto rma = payload<RmaBounce>();
    if (rma.length > kBounceChunk || rma.offset > kBounceSize - rma.length || !(header.flags & kSlotWantAck))
        return Consumed::lie;
    const int error = endpoint->mrs().read(rma.key, header.addr, bounce + rma.offset, rma.length);
    answer(header, error);
    if (!error && (header.flags & kSlotLast))
        count_read(rma.key);
    return Consumed::done;
}

Consumed Receiver::on_read_note(const SlotHeader &) noexcept
{
    count_read(payload<RmaBounce>().key);
    return Consumed::done;
}

void Receiver::count_read(std::uint64_t key) noexcept
{
    endpoint->mrs().count(key, FI_REMOTE_READ);
    if (remote_read_counter)
        remote_read_counter->count();
}

Consumed Receiver::on_key_query(const SlotHeader &header) noexcept
{
    if (!(header.flags & kSlotWantAck))
        return Consumed::lie;
    const auto query = payload<KeyQuery>();
    KeyReply reply{};
    reply.error = endpoint->mrs().grant(query.key, endpoint->mr_observer(), [&](const ofi::Mr &mr) {
        reply.generation = slots.control().mr_generation.load(std::memory_order_relaxed);
        reply.access = mr.access;
        if (mr.counts())
            slots.control().rma_notify.store(1, std::memory_order_relaxed); // before it may go past the slots
        reply.base = mr.base;
        reply.count = mr.iov_count;
        for (unsigned i = 0; i < mr.iov_count; ++i)
            reply.pieces[i] = {reinterpret_cast<std::uintptr_t>(mr.iov[i].iov_base), mr.iov[i].iov_len};
    });
    std::memcpy(slots.payload(), &reply, sizeof reply);
    return Consumed::done;
}

void Receiver::flush(int error) noexcept
{
    if (flushed)
        return;
    flushed = true;
    const SlotHeader none{};
    if (current.active)
        finish(none, error, 0);
    if (endpoint->shares_receives())
        return; // they are for the other endpoints
    while (receives->take_any(current.entry)) {
        current.total = 0;
        finish(none, error, 0);
    }
}

} // namespace vma::local
