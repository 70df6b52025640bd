// SPDX-License-Identifier: BSD-2-Clause
// What a reliable-datagram endpoint writes into its peers' rings: messages, and the records of operations that take
// several.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <rdma/fi_errno.h>

#include "local/cma.hpp"
#include "local/msg/slots.hpp"
#include "ofi/cntr.hpp"
#include "rdm/record.hpp"

namespace vma::rdm {

using local::Bell;

namespace {

constexpr std::uint64_t kDelivery = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

// False: more than any message may have, or a list without a place.
bool sum_up(const iovec *iov, std::size_t count, std::uint64_t &length) noexcept
{
    length = 0;
    if (count > ofi::kIovLimit || (count != 0 && iov == nullptr))
        return false;
    for (std::size_t i = 0; i < count; ++i) {
        if (__builtin_add_overflow(length, iov[i].iov_len, &length) || length > ofi::kMaxMessageSize)
            return false;
    }
    return true;
}

void keep_buffers(Operation &operation, const iovec *iov, std::size_t count) noexcept
{
    std::copy_n(iov, count, operation.iov);
    operation.iov_count = static_cast<std::uint32_t>(count);
}

BufferList buffers_of(const Operation &operation) noexcept
{
    BufferList list{};
    list.count = operation.iov_count;
    std::copy_n(operation.iov, operation.iov_count, list.parts);
    return list;
}

} // namespace

// ---- messages -------------------------------------------------------------------------------------------------------

ssize_t RdmEndpoint::send(const Outgoing &out) noexcept
{
    std::uint64_t length = 0;
    if (!sum_up(out.iov, out.count, length)) [[unlikely]]
        return -FI_EINVAL;
    if ((out.flags & FI_INJECT) != 0 && length > ofi::kInjectSize) [[unlikely]]
        return -FI_EMSGSIZE;
    return write_locked([&](Bell &bell) { return looked_into(send_locked(out, length, bell)); });
}

ssize_t RdmEndpoint::send_locked(const Outgoing &out, std::uint64_t length, Bell &bell) noexcept
{
    if (!enabled_) [[unlikely]]
        return -FI_EOPBADSTATE;
    Peer *const peer = peer_of(out.to);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    if (const int error = ready(*peer, bell)) [[unlikely]]
        return error;
    if ((out.flags & FI_FENCE) != 0 && peer->outstanding != 0) [[unlikely]]
        return -FI_EAGAIN;
    // What another host is sent has to leave by itself once the program was told that it is sent.
    const bool eager = peer->net == nullptr || (!out.completion && counters_.send == nullptr);
    if (length <= kEager && (out.flags & kDelivery) == 0 && eager) [[likely]]
        return send_eager(*peer, out, length, bell);
    return send_operation(*peer, out, length, bell);
}

ssize_t RdmEndpoint::send_eager(Peer &peer, const Outgoing &out, std::uint64_t length, Bell &bell) noexcept
{
    const ssize_t error = put_eager(peer, out, length, bell);
    return error == 0 ? 0 : refused(peer, bell);
}

ssize_t RdmEndpoint::put_eager(Peer &peer, const Outgoing &out, std::uint64_t length, Bell &bell) noexcept
{
    if (!out.completion)
        return write_eager(peer, out, length, bell);
    if (tx_queue_->owners.any()) [[unlikely]]
        return send_eager_for_owner(peer, out, length, bell);
    const core::SpinGuard guard(tx_queue_->lock);
    if (tx_queue_->entries.full()) [[unlikely]]
        return -FI_EAGAIN;
    if (const ssize_t error = write_eager(peer, out, length, bell)) [[unlikely]]
        return error;
    ofi::Completion entry;
    entry.context = out.context;
    entry.flags = FI_SEND | (out.tagged ? FI_TAGGED : FI_MSG);
    entry.owner = owner();
    tx_queue_->push(entry);
    return 0;
}

ssize_t RdmEndpoint::write_eager(Peer &peer, const Outgoing &out, std::uint64_t length, Bell &bell) noexcept
{
    const std::size_t head = sizeof(Packet) + padding_of(length);
    std::byte *const place = peer.claim(head + length);
    if (place == nullptr) [[unlikely]]
        return -FI_EAGAIN;
    const unsigned flags = (out.tagged ? kTagged : 0U) | (head != sizeof(Packet) ? kPadded : 0U);
    const Packet packet{PacketOp::message, static_cast<std::uint8_t>(flags), 0, 0, out.tag, length};
    std::memcpy(place, &packet, sizeof packet);
    std::byte *const body = place + head;
    if (out.count == 1 && length <= local::kSlotPayload)
        local::copy_small(body, static_cast<const std::byte *>(out.iov[0].iov_base), length);
    else if (out.count == 1)
        std::memcpy(body, out.iov[0].iov_base, length);
    else
        local::gather(body, out.iov, static_cast<unsigned>(out.count), 0, length);
    publish(peer, head + length, out.data != nullptr, out.data != nullptr ? *out.data : 0, bell);
    if (!peer.connected()) [[unlikely]]
        return -FI_ECONNRESET; // who read the ring has left it before
    if (counters_.send != nullptr)
        counters_.send->count();
    return 0;
}

// What doesn't end by being written into the ring at once.
ssize_t RdmEndpoint::send_operation(Peer &peer, const Outgoing &out, std::uint64_t length, Bell &bell) noexcept
{
    if (const int error = ready_to_wait(peer, bell))
        return error;
    // How a long one goes depends on what the peer has found out about our memory.
    if (length > kEager && peer.it_reaches_us == Peer::Reach::unknown)
        return -FI_EAGAIN;
    const std::uint64_t flags = FI_SEND | (out.tagged ? FI_TAGGED : FI_MSG);
    Operation *const operation = begin(peer, out.context, out.completion, flags, counters_.send);
    if (operation == nullptr)
        return -FI_EAGAIN;
    const bool offered = length > kEager && peer.it_reaches_us == Peer::Reach::yes;
    keep_buffers(*operation, out.iov, out.count);
    // Within a host it is pushed through the ring, which holds up nobody but this peer when it is full.
    const bool announced = length > kAnnounced && peer.net != nullptr;
    operation->answered = offered || announced || (out.flags & kDelivery) != 0;
    operation->length = length;
    operation->has_data = out.data != nullptr;
    operation->data = out.data != nullptr ? *out.data : 0;
    operation->packet = {length <= kEager ? PacketOp::message
                         : offered        ? PacketOp::offer
                         : announced      ? PacketOp::announce
                                          : PacketOp::first,
                         static_cast<std::uint8_t>((out.tagged ? kTagged : 0) | (operation->answered ? kAck : 0)),
                         0,
                         operation->id(),
                         out.tag,
                         length};
    return start(*operation, bell);
}

// ---- operations -----------------------------------------------------------------------------------------------------

Operation *RdmEndpoint::begin(Peer &peer, void *context, bool completion, std::uint64_t cq_flags,
                              ofi::Cntr *counter) noexcept
{
    Operation *const operation = operations_.used() < tx_size_ ? operations_.take() : nullptr;
    if (operation == nullptr)
        return nullptr;
    operation->state = Operation::State::writing;
    operation->completion = completion;
    operation->answered = true;
    operation->has_data = operation->lost = false;
    operation->cq_flags = cq_flags;
    operation->length = operation->done = 0;
    operation->context = context;
    operation->counter = counter;
    operation->peer = &peer;
    operation->to = peer.reader();
    operation->iov_count = 0;
    operation->targets.count = 0;
    operation->next = nullptr;
    ++peer.outstanding;
    unstall();
    return operation;
}

ssize_t RdmEndpoint::start(Operation &operation, Bell &bell) noexcept
{
    Peer &peer = *operation.peer;
    if (!write_next(operation, bell)) {
        release(operation);
        return refused(peer, bell);
    }
    if (operation.packet.op == PacketOp::announce) {
        operation.state = Operation::State::waiting;
    } else if (operation.done < operation.length) {
        append(operation, bell);
    } else if (operation.answered) {
        operation.state = Operation::State::waiting;
    } else {
        written(operation);
    }
    return 0;
}

// One that ends with its last record.
void RdmEndpoint::written(Operation &operation) noexcept
{
    Peer &peer = *operation.peer;
    if (peer.net == nullptr) {
        finish(operation, 0);
        return;
    }
    operation.state = Operation::State::leaving;
    operation.leaves_by = peer.net->sent;
    operation.next = nullptr;
    (peer.last_leaving != nullptr ? peer.last_leaving->next : peer.first_leaving) = &operation;
    peer.last_leaving = &operation;
}

// What is left of it is written as soon as there is room.
void RdmEndpoint::append(Operation &operation, Bell &bell) noexcept
{
    Peer &peer = *operation.peer;
    (peer.last_writing != nullptr ? peer.last_writing->next : peer.first_writing) = &operation;
    peer.last_writing = &operation;
    flush(peer, bell);
    if (peer.has_work())
        make_busy(peer);
}

// One record more. False: there is no room.
bool RdmEndpoint::write_next(Operation &operation, Bell &bell) noexcept
{
    const PacketOp op = operation.packet.op;
    const bool pieces =
        op == PacketOp::first || op == PacketOp::piece || (op == PacketOp::write && operation.length > kEager);
    return pieces ? write_piece(operation, bell) : write_whole(operation, bell);
}

bool RdmEndpoint::write_piece(Operation &operation, Bell &bell) noexcept
{
    Peer &peer = *operation.peer;
    const std::uint64_t part = std::min<std::uint64_t>(operation.length - operation.done, kEager);
    const bool last = operation.done + part == operation.length;
    Packet packet = operation.packet;
    TargetList targets{};
    std::size_t head = sizeof packet;
    if (packet.op == PacketOp::write) {
        targets = part_of(operation.targets, operation.done, part);
        head += bytes_of(targets);
        packet.flags = last ? packet.flags : packet.flags | kMore;
    } else if (padding_of(part) != 0) {
        head += kPadding;
        packet.flags |= kPadded;
    }
    std::byte *const place = peer.claim(head + part);
    if (place == nullptr)
        return false;
    RecordWriter record(place);
    if (packet.op == PacketOp::piece)
        packet.size = operation.done;
    record.put(&packet, sizeof packet);
    if (packet.op == PacketOp::write)
        record.put(&targets, bytes_of(targets));
    else if ((packet.flags & kPadded) != 0)
        record.skip(kPadding);
    record.put_from(operation.iov, operation.iov_count, operation.done, part);
    // Data goes with what the receiver hears of first, or last.
    const bool with_data = operation.has_data && (packet.op == PacketOp::write ? last : packet.op == PacketOp::first);
    publish(peer, head + part, with_data, with_data ? operation.data : 0, bell);
    operation.done += part;
    if (packet.op == PacketOp::first)
        operation.packet.op = PacketOp::piece;
    return true;
}

bool RdmEndpoint::write_whole(Operation &operation, Bell &bell) noexcept
{
    Peer &peer = *operation.peer;
    const PacketOp op = operation.packet.op;
    const bool has_targets = op == PacketOp::write || op == PacketOp::write_offer || op == PacketOp::read;
    const bool has_buffers = op == PacketOp::offer || op == PacketOp::write_offer || op == PacketOp::read;
    const BufferList buffers = has_buffers ? buffers_of(operation) : BufferList{};
    const bool bare = op == PacketOp::announce;
    const std::size_t body = has_buffers ? bytes_of(buffers) : bare ? 0 : operation.length;
    const std::size_t head = sizeof(Packet) + (has_targets ? bytes_of(operation.targets) : 0);
    std::byte *const place = peer.claim(head + body);
    if (place == nullptr)
        return false;
    RecordWriter record(place);
    record.put(&operation.packet, sizeof(Packet));
    if (has_targets)
        record.put(&operation.targets, bytes_of(operation.targets));
    if (has_buffers)
        record.put(&buffers, body);
    else
        record.put_from(operation.iov, operation.iov_count, 0, body);
    publish(peer, head + body, operation.has_data, operation.data, bell);
    operation.done = bare ? 0 : operation.length;
    return true;
}

// The peer is behind, or gone: then another one may have its name, to which the next call writes. -FI_ECONNRESET:
// nobody has. It is not called with the transmit queue's lock, as what is under way may end.
ssize_t RdmEndpoint::refused(Peer &peer, Bell &bell) noexcept
{
    if (peer.net == nullptr)
        peer.out->look_for_end();
    const int error = find_successor(peer, bell);
    return error == 0 ? -FI_EAGAIN : error;
}

// As ready(), for what is written and then waits for an answer: whoever has left the ring gives none.
int RdmEndpoint::ready_to_wait(Peer &peer, Bell &bell) noexcept
{
    if (peer.net == nullptr && peer.out->left()) {
        peer.out->disconnect();
        if (const int error = find_successor(peer, bell))
            return error;
    }
    return ready(peer, bell);
}

void RdmEndpoint::flush(Peer &peer, Bell &bell) noexcept
{
    while (!peer.replies.empty() &&
           (!peer.leads_to(peer.replies.front().to) || write_reply(peer, peer.replies.front(), bell)))
        peer.replies.pop_front();
    if (!peer.replies.empty())
        return;
    while (Operation *const operation = peer.first_writing) {
        while (operation->done < operation->length) {
            if (!write_next(*operation, bell))
                return;
        }
        peer.first_writing = operation->next;
        if (peer.first_writing == nullptr)
            peer.last_writing = nullptr;
        operation->state = Operation::State::waiting;
        if (!operation->answered)
            written(*operation);
    }
}

// Where the receiver has left the ring, attend() ends what is under way to it.
void RdmEndpoint::publish(Peer &peer, std::size_t length, bool has_data, std::uint64_t data, Bell &bell) noexcept
{
    if (!peer.publish(length, has_data, data, bell)) [[unlikely]]
        attend_soon();
}

void RdmEndpoint::finish(Operation &operation, int error) noexcept
{
    if (operation.counter != nullptr)
        error != 0 ? operation.counter->count_error() : operation.counter->count();
    if (error != 0 || operation.completion) {
        ofi::Completion entry;
        entry.context = operation.context;
        entry.flags = operation.cq_flags;
        entry.error = error;
        entry.owner = owner();
        push_tx(entry);
    }
    release(operation);
}

void RdmEndpoint::release(Operation &operation) noexcept
{
    --operation.peer->outstanding;
    operation.state = Operation::State::free;
    ++operation.turn;
    operation.peer = nullptr;
    operations_.give_back(operation);
}

// ---- remote memory --------------------------------------------------------------------------------------------------

ssize_t RdmEndpoint::access(const Access &access) noexcept
{
    std::uint64_t length = 0;
    if (!sum_up(access.iov, access.count, length) || access.remote == nullptr || access.remote_count == 0 ||
        access.remote_count > ofi::kRmaIovLimit)
        return -FI_EINVAL;
    TargetList targets{};
    std::uint64_t there = 0;
    for (std::size_t i = 0; i < access.remote_count; ++i) {
        if (__builtin_add_overflow(there, access.remote[i].len, &there))
            return -FI_EINVAL;
        targets.targets[targets.count++] = {access.remote[i].addr, access.remote[i].len, access.remote[i].key};
    }
    if (there != length || ((access.flags & FI_INJECT) != 0 && (!access.write || length > ofi::kInjectSize)))
        return -FI_EINVAL;
    return write_locked([&](Bell &bell) { return looked_into(access_locked(access, targets, length, bell)); });
}

ssize_t RdmEndpoint::access_locked(const Access &access, const TargetList &targets, std::uint64_t length,
                                   Bell &bell) noexcept
{
    if (!enabled_)
        return -FI_EOPBADSTATE;
    Peer *const peer = peer_of(access.to);
    if (peer == nullptr)
        return -FI_EINVAL;
    if (const int error = ready_to_wait(*peer, bell))
        return error;
    const bool unknown = length > kEager && peer->it_reaches_us == Peer::Reach::unknown;
    if (unknown || ((access.flags & FI_FENCE) != 0 && peer->outstanding != 0))
        return -FI_EAGAIN;
    const std::uint64_t flags = FI_RMA | (access.write ? FI_WRITE : FI_READ);
    Operation *const operation =
        begin(*peer, access.context, access.completion, flags, access.write ? counters_.write : counters_.read);
    if (operation == nullptr)
        return -FI_EAGAIN;
    keep_buffers(*operation, access.iov, access.count);
    operation->length = length;
    operation->targets = targets;
    operation->has_data = access.data != nullptr;
    operation->data = access.data != nullptr ? *access.data : 0;
    const bool offered = length > kEager && peer->it_reaches_us == Peer::Reach::yes;
    operation->packet = {access.write ? (offered ? PacketOp::write_offer : PacketOp::write) : PacketOp::read,
                         0,
                         0,
                         operation->id(),
                         0,
                         length};
    return start(*operation, bell);
}

} // namespace vma::rdm
