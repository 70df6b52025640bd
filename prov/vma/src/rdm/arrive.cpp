// SPDX-License-Identifier: BSD-2-Clause
// What comes out of a peer's ring into a reliable-datagram endpoint. This is the border: each length, number and offset
// in a packet is checked here, after its header was copied, and before anything is done with it.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/uio.h>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/cma.hpp"
#include "local/msg/slots.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/cntr.hpp"

namespace vma::rdm {

using local::Arrived;
using local::Inlet;
using local::KeptRing;

namespace {

// One message without a receive: bytes. What is said to be longer is as if there was no memory for it.
constexpr std::uint64_t kLongestKept = std::uint64_t{1} << 32;
// A look that finds nothing lets in so many bytes more of what it has to look through.
constexpr std::uint64_t kMoreHeld = std::uint64_t{1} << 20;
// Entries of the receiving queue, where the program awaits what is behind them and doesn't read that queue.
constexpr std::size_t kMostUnread = std::size_t{1} << 20;
// Answers to a peer that its ring has no room for. Who has more operations under way than an endpoint can have, never
// reads them.
constexpr std::size_t kMostReplies = 3 * ofi::kRdmTxSize;

} // namespace

RdmEndpoint::Took RdmEndpoint::take(Inlet &inlet, KeptRing &, const Arrived &arrived) noexcept
{
    auto *const peer = static_cast<Peer *>(inlet.user);
    if (peer == nullptr || arrived.length < sizeof(Packet) || arrived.length > kLongestPacket) [[unlikely]]
        return Took::lie;
    Incoming in{&inlet,
                *peer,
                {},
                arrived.payload + sizeof(Packet),
                arrived.length - sizeof(Packet),
                arrived.has_data,
                arrived.has_data ? arrived.data : 0};
    std::memcpy(&in.packet, arrived.payload, sizeof(Packet));
    return take_from(in);
}

RdmEndpoint::Took RdmEndpoint::take_from(Incoming &in) noexcept
{
    if ((in.packet.flags & kPadded) != 0) {
        if (in.length < kPadding) [[unlikely]]
            return Took::lie;
        in.body += kPadding;
        in.length -= kPadding;
    }
    if ((in.packet.flags & ~kKnownFlags) != 0) [[unlikely]]
        return Took::lie;
    if (in.packet.op == PacketOp::message && (in.packet.flags & kAck) == 0) [[likely]]
        return take_message(in);
    return in.peer.replies.size() < kMostReplies ? take_packet(in) : Took::lie;
}

RdmEndpoint::Took RdmEndpoint::take_packet(const Incoming &in) noexcept
{
    switch (in.packet.op) {
    case PacketOp::message:
        return take_message(in);
    case PacketOp::hello:
        return take_hello(in);
    case PacketOp::greeted:
        return take_greeted(in);
    case PacketOp::first:
        return take_first(in);
    case PacketOp::piece:
        return take_piece(in);
    case PacketOp::offer:
        return take_offer(in);
    case PacketOp::write:
        return take_write(in);
    case PacketOp::write_offer:
        return take_write_offer(in);
    case PacketOp::read:
        return take_read(in);
    case PacketOp::atomic:
        return take_atomic(in);
    case PacketOp::answer:
        return take_answer(in);
    case PacketOp::announce:
        return take_announced(in);
    case PacketOp::go:
        return take_go(in);
    case PacketOp::ping:
        return Took::taken;
    case PacketOp::broken:
        return take_broken(in);
    default:
        return Took::lie;
    }
}

// ---- who it is ------------------------------------------------------------------------------------------------------

// Reading the number that the peer names shows both that the kernel allows single copy, and that the process is the one
// that is talking.
RdmEndpoint::Took RdmEndpoint::take_hello(const Incoming &in) noexcept
{
    Hello hello{};
    if (in.length != sizeof hello || in.inlet == nullptr)
        return Took::lie;
    std::memcpy(&hello, in.body, sizeof hello);
    if (hello.magic != kHelloMagic || hello.version != kHelloVersion)
        return Took::lie;
    const local::CmaPeer memory{in.inlet->pid(), {hello.probe_address, hello.probe_nonce}};
    const bool reached = may_reach_ && local::cma_finds(memory);
    in.sender().we_reach_it = reached ? Peer::Reach::yes : Peer::Reach::no;
    in.sender().memory = memory;
    if (!reached)
        VMA_INFO(ep_data, "process %d can't be read from: its long messages go through the ring",
                 static_cast<int>(memory.process));
    Reply said;
    said.packet = {PacketOp::greeted, 0, static_cast<std::uint16_t>(reached ? 0 : FI_EACCES), 0, 0, 0};
    reply(in.whom(), std::move(said));
    return Took::taken;
}

RdmEndpoint::Took RdmEndpoint::take_greeted(const Incoming &in) noexcept
{
    if (in.length != 0 || in.inlet == nullptr)
        return Took::lie;
    if (!in.peer.leads_to(in.whom().identity))
        return Took::taken; // of a predecessor of who reads our ring now
    in.peer.it_reaches_us = in.packet.error == 0 ? Peer::Reach::yes : Peer::Reach::no;
    VMA_INFO(ep_ctrl, "port %u: to %zu KiB in one record, beyond %s", static_cast<unsigned>(in.peer.port), kEager >> 10,
             in.packet.error == 0 ? "by single copy" : "in several, as it may not read our memory");
    return Took::taken;
}

// ---- messages -------------------------------------------------------------------------------------------------------

Receive *RdmEndpoint::find_receive(const Incoming &in) noexcept
{
    return static_cast<Receive *>(matcher((in.packet.flags & kTagged) != 0).find_posted(&in.peer, in.packet.tag));
}

RdmEndpoint::Took RdmEndpoint::take_message(const Incoming &in) noexcept
{
    if (in.packet.size != in.length || in.length > kEager) [[unlikely]]
        return Took::lie;
    if (has_to_wait_for_queue()) [[unlikely]]
        return Took::later;
    if (Receive *const receive = find_receive(in)) [[likely]] {
        deliver(*receive, in);
        return Took::taken;
    }
    if (srx_ != nullptr) [[unlikely]]
        return take_for_owner(in, Message::Form::whole, nullptr);
    Message *const message = keep_message(in, Message::Form::whole, in.length);
    if (message == nullptr) [[unlikely]]
        return Took::stalled;
    if (in.length != 0)
        std::memcpy(message->bytes.get(), in.body, in.length);
    matcher(message->tagged).keep(*message);
    return Took::taken;
}

void RdmEndpoint::deliver(Receive &receive, const Incoming &in) noexcept
{
    Landing landing;
    land(receive, in.length, landing);
    if (landing.iov_count == 1) {
        auto *const to = static_cast<std::byte *>(landing.iov[0].iov_base);
        if (landing.room <= local::kSlotPayload)
            local::copy_small(to, in.body, landing.room);
        else
            std::memcpy(to, in.body, landing.room);
    } else {
        local::scatter(landing.iov, landing.iov_count, 0, in.body, landing.room);
    }
    landed(landing, {in.length, in.packet.tag, in.data, in.source(), in.has_data}, 0);
    if ((in.packet.flags & kAck) != 0)
        answer(in.whom(), in.packet.id, 0);
}

// Something that may be behind any number of messages: one of them, an answer, or what a peer does with memory that is
// there for it. Of the last nothing tells but that memory, which another thread may register right now: that one sees
// that the rings stand still, or its memory is seen here.
bool RdmEndpoint::awaits_something() noexcept
{
    if (tagged_.any_posted() || untagged_.any_posted() || operations_.used() != 0 || mrs_->exposes())
        return true;
    if (stalled_.exchange(true, std::memory_order_seq_cst) || !mrs_->exposes())
        return false;
    stalled_.store(false, std::memory_order_relaxed);
    return true;
}

// The bound is for who receives slower than others send. Whoever waits for one certain thing may find it behind any
// number of messages only, so that the rings go on then.
bool RdmEndpoint::has_room_for(std::uint64_t bytes) noexcept
{
    if (held_ == 0 || held_ + bytes <= most_held_) [[likely]]
        return true;
    if (!told_of_bound_)
        VMA_WARN(ep_data, "%llu MiB of messages wait for receives: more are taken only while something else is awaited",
                 static_cast<unsigned long long>(held_ >> 20));
    told_of_bound_ = true;
    if (bytes <= kMostHeld)
        return awaits_something(); // where nothing is, `stalled_` is set, or was already taken back by who registered
    stalled_.store(true, std::memory_order_relaxed); // no peer has us take memory for whatever length it says
    return false;
}

// Who looks, or tries, again and again, and posts nothing.
void RdmEndpoint::look_further() noexcept
{
    if (!stalled_.load(std::memory_order_relaxed))
        return;
    most_held_ = std::max(most_held_, held_ + kMoreHeld);
    unstall();
}

// What a call that writes is about to return. One that is to be made again may wait for the answer to a greeting, which
// lies behind what nobody receives; or each peer's ring is full, and both wait for the other to read.
ssize_t RdmEndpoint::looked_into(ssize_t result) noexcept
{
    if (result == -FI_EAGAIN) [[unlikely]]
        look_further();
    return result;
}

// There is no place for a completion. An answer that an operation waits for may lie behind what has to wait, and the
// program reads another queue for it.
bool RdmEndpoint::has_to_wait_for_queue() const noexcept
{
    return rx_queue_->entries.full() && (operations_.used() == 0 || rx_queue_->entries.size() >= kMostUnread);
}

// The bytes are the caller's to fill. Whoever frees some looks at `stalled_` under the same lock, so nobody is
// forgotten.
Message *RdmEndpoint::keep_message(const Incoming &in, Message::Form form, std::uint64_t bytes) noexcept
{
    // What a receive waits for, and an offer, of which a peer has as many as it has operations, are not held up by what
    // waits for receives. Nor is what comes from other hosts, all by one way: the next one there may be what the
    // program waits for. Long messages are announced there.
    const bool bound = in.inlet != nullptr && (form == Message::Form::whole || bytes != 0);
    if (bound && !has_room_for(bytes + sizeof(Message)))
        return nullptr;
    Message *const message = messages_.take();
    if (message != nullptr && bytes != 0) {
        if (bytes <= kLongestKept)
            message->bytes.reset(static_cast<std::byte *>(std::malloc(bytes)));
        if (!message->bytes) {
            messages_.give_back(*message);
            stalled_.store(true, std::memory_order_relaxed);
            return nullptr;
        }
    }
    if (message == nullptr) {
        stalled_.store(true, std::memory_order_relaxed);
        return nullptr;
    }
    describe(message, in, form, bytes);
    return message;
}

// It is new, and its bytes count from now on.
void RdmEndpoint::describe(Message *message, const Incoming &in, Message::Form form, std::uint64_t bytes) noexcept
{
    message->source = &in.peer;
    message->tag = in.packet.tag;
    message->form = form;
    message->tagged = (in.packet.flags & kTagged) != 0;
    message->has_data = in.has_data;
    message->data = in.data;
    message->ack = (in.packet.flags & kAck) != 0;
    message->id = in.packet.id;
    message->length = in.packet.size;
    message->arrived = 0;
    message->held = bytes + sizeof(Message);
    held_ += message->held;
    message->peer = &in.peer;
    message->sender = in.whom().identity;
    message->ring = form == Message::Form::offer ? in.sender().number : 0;
    message->inlet = in.inlet;
    message->from = in.source();
    message->next = nullptr;
}

RdmEndpoint::Took RdmEndpoint::take_first(const Incoming &in) noexcept
{
    if (in.length == 0 || in.length > kEager || in.packet.size <= in.length ||
        in.packet.size > (in.inlet != nullptr ? ofi::kMaxMessageSize : kAnnounced))
        return Took::lie;
    if (srx_ != nullptr) [[unlikely]]
        return take_for_owner(in, Message::Form::stream, nullptr);
    Receive *const receive = find_receive(in);
    Message *const message = keep_message(in, Message::Form::stream, receive != nullptr ? 0 : in.packet.size);
    if (message == nullptr)
        return Took::stalled;
    link_stream(*message);
    if (receive != nullptr)
        land(*receive, message->length, message->landing);
    else
        matcher(message->tagged).keep(*message);
    fill(*message, in);
    return Took::taken;
}

// The next bytes of a stream go where they belong.
void RdmEndpoint::fill(Message &message, const Incoming &in) noexcept
{
    const Landing &landing = message.landing;
    if (landing.receive != nullptr && message.arrived < landing.room)
        local::scatter(landing.iov, landing.iov_count, message.arrived, in.body,
                       std::min<std::uint64_t>(in.length, landing.room - message.arrived));
    else if (message.bytes)
        std::memcpy(message.bytes.get() + message.arrived, in.body, in.length);
    message.arrived += in.length;
}

RdmEndpoint::Took RdmEndpoint::take_piece(const Incoming &in) noexcept
{
    Message **at = &in.peer.streams;
    while (*at != nullptr && ((*at)->id != in.packet.id || (*at)->inlet != in.inlet))
        at = &(*at)->next;
    Message *const message = *at;
    if (message == nullptr || message->announced || in.packet.size != message->arrived ||
        in.length > message->length - message->arrived || in.length == 0)
        return Took::lie;
    if (has_to_wait_for_queue())
        return Took::later;
    fill(*message, in);
    if (message->arrived != message->length)
        return Took::taken;
    *at = message->next;
    message->next = nullptr;
    message->form = Message::Form::whole;
    if (message->landing.receive != nullptr) {
        landed(message->landing, message->told(), 0);
        end_message(*message, 0);
    } else if (message->discarded) {
        end_message(*message, 0);
    }
    return Took::taken;
}

RdmEndpoint::Took RdmEndpoint::take_offer(const Incoming &in) noexcept
{
    BufferList list{};
    if (!read_list(in.body, in.length, list) || in.packet.size > ofi::kMaxMessageSize || in.length != bytes_of(list) ||
        total_of(list) != in.packet.size)
        return Took::lie;
    if (has_to_wait_for_queue())
        return Took::later;
    if (srx_ != nullptr) [[unlikely]]
        return take_for_owner(in, Message::Form::offer, &list);
    Receive *const receive = find_receive(in);
    Message *const message = keep_message(in, Message::Form::offer, 0);
    if (message == nullptr)
        return Took::stalled;
    std::copy_n(list.parts, list.count, message->iov);
    message->iov_count = static_cast<std::uint32_t>(list.count);
    if (receive != nullptr)
        meet(*receive, *message);
    else
        matcher(message->tagged).keep(*message);
    return Took::taken;
}

// A long one from another host: it is asked for once a receive has it, so that it takes neither our memory nor the
// place of what comes behind it.
RdmEndpoint::Took RdmEndpoint::take_announced(const Incoming &in) noexcept
{
    if (in.inlet != nullptr || in.length != 0 || in.packet.size <= kAnnounced ||
        in.packet.size > ofi::kMaxMessageSize || (in.packet.flags & kAck) == 0)
        return Took::lie;
    if (srx_ != nullptr) [[unlikely]]
        return take_for_owner(in, Message::Form::stream, nullptr);
    Receive *const receive = find_receive(in);
    Message *const message = keep_message(in, Message::Form::stream, 0);
    if (message == nullptr)
        return Took::stalled;
    message->announced = true;
    link_stream(*message);
    if (receive != nullptr)
        meet(*receive, *message);
    else
        matcher(message->tagged).keep(*message);
    return Took::taken;
}

// ---- answers --------------------------------------------------------------------------------------------------------

// Of ours, that the packet answers. nullptr: it has ended already, as its peer was gone for a while, or is none.
Operation *RdmEndpoint::waiting_operation(const Incoming &in) noexcept
{
    Operation *const operation = operations_.find(in.packet.id & 0xffff);
    const bool meant = operation != nullptr && operation->id() == in.packet.id && operation->peer == &in.peer &&
                       local::may_be(operation->to, in.whom().identity) &&
                       operation->state == Operation::State::waiting;
    return meant ? operation : nullptr;
}

RdmEndpoint::Took RdmEndpoint::take_answer(const Incoming &in) noexcept
{
    Operation *const operation = waiting_operation(in);
    if (operation == nullptr)
        return Took::taken;
    const bool reads = (operation->cq_flags & FI_READ) != 0;
    if (in.packet.error == 0 && in.length != 0) {
        if (!reads || in.packet.size > operation->length || in.length > operation->length - in.packet.size)
            return Took::lie;
        local::scatter(operation->iov, operation->iov_count, in.packet.size, in.body, in.length);
    }
    if ((in.packet.flags & kMore) == 0 || in.packet.error != 0)
        finish(*operation, in.packet.error);
    return Took::taken;
}

// The receiver wants what was announced; or no more, as the operation has ended.
RdmEndpoint::Took RdmEndpoint::take_go(const Incoming &in) noexcept
{
    Operation *const operation = waiting_operation(in);
    if (operation == nullptr || operation->packet.op != PacketOp::announce)
        return Took::taken;
    operation->packet.op = PacketOp::piece;
    operation->state = Operation::State::writing;
    operation->next = nullptr;
    local::Bell bell;
    append(*operation, bell);
    return Took::taken;
}

RdmEndpoint::Took RdmEndpoint::take_broken(const Incoming &in) noexcept
{
    if (in.inlet != nullptr)
        return Took::lie;
    if (in.peer.greeted && in.packet.size == in.peer.net->epoch)
        lost(in.peer);
    return Took::taken;
}

} // namespace vma::rdm
