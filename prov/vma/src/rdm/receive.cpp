// SPDX-License-Identifier: BSD-2-Clause
// Receiving with a reliable-datagram endpoint: what fi_recv() and fi_trecv() post, find, claim and cancel, and how a
// message gets into a receive.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include <rdma/fi_errno.h>

#include "local/cma.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/cntr.hpp"

namespace vma::rdm {

// ---- the calls ------------------------------------------------------------------------------------------------------

ssize_t RdmEndpoint::post(const Wanted &wanted) noexcept
{
    if (wanted.count > ofi::kIovLimit || (wanted.count != 0 && wanted.iov == nullptr))
        return -FI_EINVAL;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < wanted.count; ++i) {
        if (__builtin_add_overflow(length, wanted.iov[i].iov_len, &length))
            return -FI_EINVAL;
    }
    // Who looks again and again reads nothing but that there was nothing, and a read that finds an entry makes no
    // progress.
    if ((wanted.flags & FI_PEEK) != 0 && enabled_) [[unlikely]]
        rx_queue_->progress();
    const core::SpinGuard guard(lock_);
    if (!enabled_) [[unlikely]]
        return -FI_EOPBADSTATE;
    Peer *from = nullptr;
    if (directed_ && wanted.from != FI_ADDR_UNSPEC) {
        from = peer_of(wanted.from);
        if (from == nullptr) [[unlikely]]
            return -FI_EINVAL;
    }
    if ((wanted.flags & (FI_PEEK | FI_CLAIM)) != 0) [[unlikely]]
        return (wanted.flags & FI_PEEK) != 0 ? peek(wanted, from) : take_claimed(wanted);
    return post_new(wanted, from, length);
}

Receive *RdmEndpoint::make_receive(const Wanted &wanted, const Peer *from, std::uint64_t length) noexcept
{
    Receive *const receive = receives_.used() < rx_size_ ? receives_.take() : nullptr;
    if (receive == nullptr)
        return nullptr;
    receive->source = from;
    receive->tag = wanted.tag;
    receive->ignore = wanted.ignore;
    for (std::size_t i = 0; i < wanted.count; ++i)
        receive->iov[i] = wanted.iov[i];
    receive->iov_count = static_cast<std::uint32_t>(wanted.count);
    receive->completion = !rx_selective_ || (wanted.flags & FI_COMPLETION) != 0;
    receive->multi = (wanted.flags & FI_MULTI_RECV) != 0 && wanted.count == 1;
    receive->used_up = receive->cancelled = receive->posted = false;
    receive->tagged = wanted.tagged;
    receive->users = 0;
    receive->length = length;
    receive->used = 0;
    receive->context = wanted.context;
    return receive;
}

ssize_t RdmEndpoint::post_new(const Wanted &wanted, const Peer *from, std::uint64_t length) noexcept
{
    if ((wanted.flags & FI_MULTI_RECV) != 0 && wanted.count != 1)
        return -FI_EINVAL;
    Receive *const receive = make_receive(wanted, from, length);
    if (receive == nullptr) [[unlikely]]
        return -FI_EAGAIN;
    Matcher &list = matcher(wanted.tagged);
    while (list.any_arrival()) {
        auto *const message = static_cast<Message *>(list.find_arrival(from, wanted.tag, wanted.ignore));
        if (message == nullptr)
            break;
        list.remove(*message);
        const bool goes_on = receive->multi;
        meet(*receive, *message);
        if (!goes_on || receive->used_up || !receive->multi)
            return 0;
    }
    receive->posted = true;
    list.post(*receive);
    unstall();
    return 0;
}

ssize_t RdmEndpoint::peek(const Wanted &wanted, const Peer *from) noexcept
{
    Matcher &list = matcher(wanted.tagged);
    auto *const message = static_cast<Message *>(list.find_arrival(from, wanted.tag, wanted.ignore));
    if (message == nullptr) {
        look_further();
        ofi::Completion entry;
        entry.context = wanted.context;
        entry.flags = FI_RECV | (wanted.tagged ? FI_TAGGED : FI_MSG);
        entry.error = FI_ENOMSG;
        entry.owner = owner();
        push_rx(entry);
        return 0;
    }
    tell_found(*message, wanted);
    if ((wanted.flags & FI_DISCARD) != 0) {
        list.remove(*message);
        discard(*message);
    } else if ((wanted.flags & FI_CLAIM) != 0) {
        list.remove(*message);
        message->claimed_by = wanted.context;
        claimed_.push_back(message);
    }
    return 0;
}

void RdmEndpoint::tell_found(const Message &message, const Wanted &wanted) noexcept
{
    if (rx_selective_ && (wanted.flags & FI_COMPLETION) == 0)
        return;
    ofi::Completion entry;
    entry.context = wanted.context;
    entry.flags = FI_RECV | (message.tagged ? FI_TAGGED : FI_MSG) | (message.has_data ? FI_REMOTE_CQ_DATA : 0);
    entry.length = message.length;
    entry.data = message.data;
    entry.tag = message.tag;
    entry.source = message.from;
    entry.owner = owner();
    push_rx(entry);
}

// FI_CLAIM: who found the message with this context takes it, or drops it.
ssize_t RdmEndpoint::take_claimed(const Wanted &wanted) noexcept
{
    const auto found = std::find_if(claimed_.begin(), claimed_.end(), [&](const Message *message) {
        return message->claimed_by == wanted.context && message->tagged == wanted.tagged;
    });
    if (found == claimed_.end())
        return -FI_EINVAL;
    Message &message = **found;
    if ((wanted.flags & FI_DISCARD) != 0) {
        claimed_.erase(found);
        tell_found(message, wanted);
        discard(message);
        return 0;
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < wanted.count; ++i)
        length += wanted.iov[i].iov_len;
    Receive *const receive = make_receive(wanted, nullptr, length);
    if (receive == nullptr)
        return -FI_EAGAIN;
    claimed_.erase(found);
    receive->used_up = true; // also a multiple one is given back with this message
    message.claimed_by = nullptr;
    meet(*receive, message);
    return 0;
}

ssize_t RdmEndpoint::cancel(void *context) noexcept
{
    if (srx_ != nullptr)
        return -FI_ENOSYS; // what is posted is with its owner
    const core::SpinGuard guard(lock_);
    for (Matcher *list : {&tagged_, &untagged_}) {
        for (Posted *posted = list->first_posted(); posted != nullptr; posted = Matcher::next(*posted)) {
            auto &receive = static_cast<Receive &>(*posted);
            if (receive.context != context)
                continue;
            list->remove(receive);
            receive.posted = false;
            receive.used_up = receive.cancelled = true;
            if (receive.users != 0)
                return 0; // what is on its way into it says that it has ended
            ofi::Completion entry;
            entry.context = context;
            entry.flags = FI_RECV | (receive.tagged ? FI_TAGGED : FI_MSG) | (receive.multi ? FI_MULTI_RECV : 0);
            entry.buffer = receive.iov_count != 0 ? receive.iov[0].iov_base : nullptr;
            entry.error = FI_ECANCELED;
            entry.owner = owner();
            push_rx(entry);
            receives_.give_back(receive);
            return 0;
        }
    }
    return -FI_ENOENT;
}

// ---- messages and receives ------------------------------------------------------------------------------------------

void RdmEndpoint::land(Receive &receive, std::uint64_t length, Landing &landing) noexcept
{
    landing.receive = &receive;
    landing.room = std::min(length, receive.length - receive.used);
    landing.iov_count = receive.iov_count;
    bool ends = true;
    if (receive.multi) {
        landing.iov[0] = {static_cast<std::byte *>(receive.iov[0].iov_base) + receive.used, landing.room};
        receive.used += landing.room;
        ++receive.users;
        receive.used_up |= receive.length - receive.used < std::max<std::size_t>(least_multi_, 1);
        ends = receive.used_up;
    } else {
        std::copy_n(receive.iov, receive.iov_count, landing.iov);
    }
    if (ends && receive.posted) {
        matcher(receive.tagged).remove(receive);
        receive.posted = false;
    }
}

// A message is where it belongs, or will never be.
void RdmEndpoint::landed(const Landing &landing, const Told &what, int error) noexcept
{
    Receive &receive = *landing.receive;
    ofi::Completion entry;
    entry.context = receive.context;
    entry.flags = FI_RECV | (receive.tagged ? FI_TAGGED : FI_MSG) | (what.has_data ? FI_REMOTE_CQ_DATA : 0);
    entry.length = landing.room;
    entry.buffer = landing.iov_count != 0 ? landing.iov[0].iov_base : nullptr;
    entry.data = what.data;
    entry.tag = what.tag;
    entry.source = what.from;
    entry.owner = owner();
    if (error == 0 && what.length > landing.room)
        error = FI_ETRUNC;
    if (error != 0) [[unlikely]] {
        entry.error = error;
        entry.excess = what.length - landing.room;
    }
    if (counters_.receive != nullptr)
        error != 0 ? counters_.receive->count_error() : counters_.receive->count();
    bool ends = true;
    if (receive.multi) {
        --receive.users;
        ends = receive.used_up && receive.users == 0;
        if (ends)
            entry.flags |= FI_MULTI_RECV;
    }
    if (by_owner_) [[unlikely]] {
        landed_by_owner(receive, entry, what.tag, ends);
        return;
    }
    if (receive.completion || error != 0 || (ends && receive.cancelled))
        push_own_rx(entry);
    if (ends)
        receives_.give_back(receive);
}

void RdmEndpoint::meet(Receive &receive, Message &message) noexcept
{
    Landing landing;
    land(receive, message.length, landing);
    switch (message.form) {
    case Message::Form::whole:
        local::scatter(landing.iov, landing.iov_count, 0, message.bytes.get(), landing.room);
        landed(landing, message.told(), 0);
        end_message(message, 0);
        return;
    case Message::Form::offer: {
        const int error = pull(message, landing);
        landed(landing, message.told(), error);
        end_message(message, error);
        return;
    }
    case Message::Form::stream:
        if (message.arrived != 0)
            local::scatter(landing.iov, landing.iov_count, 0, message.bytes.get(),
                           std::min(message.arrived, landing.room));
        message.landing = landing;
        let_go(message);
        if (message.announced)
            ask_for(message);
        return;
    }
}

int RdmEndpoint::pull(const Message &message, const Landing &landing) noexcept
{
    if (landing.room == 0)
        return 0;
    // What a ring says of memory is said of that of who made it, whoever else has the port.
    const Peer::Sender *const sender = message.peer->find_ring(message.ring);
    if (sender == nullptr || sender->we_reach_it != Peer::Reach::yes)
        return FI_ECONNRESET; // it is gone since
    return local::cma_copy(local::CmaDirection::read, sender->memory, landing.iov, landing.iov_count, message.iov,
                           message.iov_count, landing.room);
}

void RdmEndpoint::discard(Message &message) noexcept
{
    if (message.announced)
        unlink_stream(message);
    if (message.form != Message::Form::stream || message.announced) {
        end_message(message, 0);
        return;
    }
    message.discarded = true; // its pieces are still to come
    let_go(message);
}

void RdmEndpoint::ask_for(Message &message) noexcept
{
    message.announced = false;
    Reply said;
    said.packet = {PacketOp::go, 0, 0, message.id, 0, 0};
    reply(message.whom(), std::move(said));
}

void RdmEndpoint::link_stream(Message &message) noexcept
{
    message.next = message.peer->streams;
    message.peer->streams = &message;
}

void RdmEndpoint::unlink_stream(Message &message) noexcept
{
    for (Message **at = &message.peer->streams; *at != nullptr; at = &(*at)->next) {
        if (*at == &message) {
            *at = message.next;
            return;
        }
    }
}

void RdmEndpoint::end_message(Message &message, int error) noexcept
{
    if (message.ack)
        answer(message.whom(), message.id, error);
    free_message(message);
}

void RdmEndpoint::let_go(Message &message) noexcept
{
    message.bytes.reset();
    held_ -= message.held;
    if (held_ < kMostHeld)
        most_held_ = kMostHeld;
    message.held = 0;
    unstall();
}

void RdmEndpoint::free_message(Message &message) noexcept
{
    let_go(message);
    message.landing.receive = nullptr;
    message.claimed_by = nullptr;
    message.discarded = message.announced = false;
    message.failed = 0;
    messages_.give_back(message);
}

} // namespace vma::rdm
