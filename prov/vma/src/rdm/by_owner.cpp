// SPDX-License-Identifier: BSD-2-Clause
// A reliable-datagram endpoint as the peer of an owner (fi_peer(3)): whom a message is for, the owner says; completions
// are written into its queue; what came without a receive waits here until the owner has one for it. Its calls are made
// with the endpoint's lock held, and it may call from there.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/cntr.hpp"
#include "ofi/noop.hpp"

namespace vma::rdm {

namespace peer = ofi::peer;

namespace {

// Its first bytes are here, and more come whether it is asked for or not.
bool has_begun(const Message &message) noexcept
{
    return message.form == Message::Form::stream && !message.announced;
}

const void *this_thread() noexcept
{
    return reinterpret_cast<const void *>(pthread_self());
}

// ---- what an owner calls --------------------------------------------------------------------------------------------

template <SrxLayout Layout> Message *message_of(peer::RxEntry *entry) noexcept
{
    const auto *const tail =
        reinterpret_cast<const peer::EntryTail *>(reinterpret_cast<const std::byte *>(entry) + entry_tail(Layout));
    return static_cast<Message *>(tail->peer_context);
}

template <SrxLayout Layout> int start(peer::RxEntry *entry)
{
    Message *const message = message_of<Layout>(entry);
    if (message == nullptr)
        return -FI_EINVAL;
    message->at->start_waiting(entry, *message);
    return 0;
}

template <SrxLayout Layout> int discard(peer::RxEntry *entry)
{
    Message *const message = message_of<Layout>(entry);
    if (message == nullptr)
        return -FI_EINVAL;
    message->at->discard_waiting(*message);
    return 0;
}

template <SrxLayout Layout>
constinit peer::SrxPeerOps g_peer_ops = {
    .size = sizeof(peer::SrxPeerOps),
    .start_msg = start<Layout>,
    .start_tag = start<Layout>,
    .discard_msg = discard<Layout>,
    .discard_tag = discard<Layout>,
};

} // namespace

peer::SrxPeerOps &peer_ops(SrxLayout layout) noexcept
{
    switch (layout) {
    case SrxLayout::v1_17:
        return g_peer_ops<SrxLayout::v1_17>;
    case SrxLayout::v1_19:
        return g_peer_ops<SrxLayout::v1_19>;
    case SrxLayout::v2_0:
        return g_peer_ops<SrxLayout::v2_0>;
    default:
        return g_peer_ops<SrxLayout::v2_3>;
    }
}

// Around each call of the owner's, with the lock held: this thread, when it calls us from there, has it already.
class RdmEndpoint::Outside
{
public:
    explicit Outside(RdmEndpoint &endpoint) noexcept
        : endpoint_(endpoint), before_(endpoint.outside_.load(std::memory_order_relaxed))
    {
        endpoint_.outside_.store(this_thread(), std::memory_order_relaxed);
    }
    ~Outside() { endpoint_.outside_.store(before_, std::memory_order_relaxed); }
    Outside(const Outside &) = delete;
    Outside &operator=(const Outside &) = delete;

private:
    RdmEndpoint &endpoint_;
    const void *before_;
};

template <typename Call> void RdmEndpoint::with_lock(Call &&call) noexcept
{
    const bool inside = outside_.load(std::memory_order_relaxed) == this_thread();
    if (!inside)
        lock_.lock();
    call();
    if (!inside)
        lock_.unlock();
}

int RdmEndpoint::bind(struct fid *what, std::uint64_t flags) noexcept
{
    PeerSrx *const srx = what->fclass == FI_CLASS_PEER_SRX ? peer_srx_of(what) : nullptr;
    if (srx == nullptr)
        return RingEndpoint::bind(what, flags);
    if (enabled_ || accompanied_)
        return -FI_EOPBADSTATE;
    if (srx_ != nullptr || &srx->domain != &domain_)
        return -FI_EINVAL;
    srx_ = srx;
    srx->refs.fetch_add(1, std::memory_order_relaxed);
    // Receives are posted with the owner.
    srx->msg_ops = *handle.fid.msg;
    srx->tagged_ops = *handle.fid.tagged;
    srx->msg_ops.recv = ofi::no_op;
    srx->msg_ops.recvv = ofi::no_op;
    srx->msg_ops.recvmsg = ofi::no_op;
    srx->tagged_ops.recv = ofi::no_op;
    srx->tagged_ops.recvv = ofi::no_op;
    srx->tagged_ops.recvmsg = ofi::no_op;
    handle.fid.msg = &srx->msg_ops;
    handle.fid.tagged = &srx->tagged_ops;
    return 0;
}

// ---- what arrives ---------------------------------------------------------------------------------------------------

// An entry that the owner has given can't be given back without having been queued, and what isn't asked for isn't
// known to be wanted: so nothing is held up here beyond a certain amount, as it is where we match ourselves.
RdmEndpoint::Took RdmEndpoint::take_for_owner(const Incoming &in, Message::Form form,
                                              const BufferList *offered) noexcept
{
    Message *const message = messages_.take();
    if (message == nullptr)
        return Took::later;
    const bool tagged = (in.packet.flags & kTagged) != 0;
    const peer::MatchAttr attr{in.source(), in.packet.size, tagged ? in.packet.tag : 0};
    peer::RxEntry *entry = nullptr;
    const int answered = [&] {
        const Outside outside(*this);
        return srx_->owner.get(tagged, attr, entry);
    }();
    if (answered == -FI_ENOMEM || answered == -FI_EAGAIN) {
        messages_.give_back(*message);
        return Took::later;
    }
    describe(message, in, form, 0);
    message->at = this;
    if (offered != nullptr) {
        std::copy_n(offered->parts, offered->count, message->iov);
        message->iov_count = static_cast<std::uint32_t>(offered->count);
    }
    message->announced = in.packet.op == PacketOp::announce;
    if (form == Message::Form::stream)
        link_stream(*message);
    if (answered == 0) [[likely]]
        matched_by_owner(in, *message, entry);
    else if (answered == -FI_ENOENT)
        queue_with_owner(in, *message, entry);
    else
        refused_by_owner(in, *message, -answered);
    return Took::taken;
}

void RdmEndpoint::matched_by_owner(const Incoming &in, Message &message, peer::RxEntry *entry) noexcept
{
    Receive *const receive = stand_for(entry, message.tagged);
    if (receive == nullptr) [[unlikely]] {
        fail_entry(entry, message, FI_ENOMEM);
        if (has_begun(message))
            fill(message, in);
        discard(message);
        return;
    }
    switch (message.form) {
    case Message::Form::whole:
        free_message(message);
        deliver(*receive, in);
        return;
    case Message::Form::stream:
        if (message.announced) {
            meet(*receive, message);
            return;
        }
        land(*receive, message.length, message.landing);
        fill(message, in);
        return;
    case Message::Form::offer:
        meet(*receive, message);
        return;
    }
}

// From when it is queued on, the message may be started, and be gone, at any time, also in that call.
void RdmEndpoint::queue_with_owner(const Incoming &in, Message &message, peer::RxEntry *entry) noexcept
{
    if ((message.form == Message::Form::whole || has_begun(message)) && message.length != 0) {
        message.bytes.reset(static_cast<std::byte *>(std::malloc(message.length)));
        message.failed = message.bytes ? 0 : FI_ENOMEM;
        message.held += message.length;
        held_ += message.length;
    }
    if (has_begun(message))
        fill(message, in);
    else if (message.bytes)
        std::memcpy(message.bytes.get(), in.body, in.length);
    message.entry = entry;
    waiting_.append(message, kInOrder);
    const SrxOwner &owner = srx_->owner;
    owner.head(entry).size = message.length;
    owner.tail(entry).peer_context = &message;
    if (message.has_data)
        owner.give_data(entry, message.data);
    const bool tagged = message.tagged;
    const Outside outside(*this);
    const int error = owner.queue(tagged, entry);
    if (error == 0) [[likely]]
        return;
    waiting_.remove(message, kInOrder);
    message.entry = nullptr;
    owner.free(entry);
    refused_by_owner(in, message, -error);
}

// An owner without messages of this kind, as lnx has none without tags.
void RdmEndpoint::refused_by_owner(const Incoming &in, Message &message, int error) noexcept
{
    if (!told_of_refusal_)
        VMA_WARN(ep_data, "the owner takes no message %s tag (%s): what comes so is dropped",
                 message.tagged ? "with a" : "without a", std::strerror(error));
    told_of_refusal_ = true;
    if (has_begun(message)) {
        if (message.arrived == 0)
            fill(message, in);
        discard(message);
        return;
    }
    if (message.announced)
        unlink_stream(message);
    end_message(message, error);
}

// ---- receives -------------------------------------------------------------------------------------------------------

// nullptr: there is no memory, or it has more buffers than we said to take.
Receive *RdmEndpoint::stand_for(peer::RxEntry *entry, bool tagged) noexcept
{
    const peer::EntryTail &given = srx_->owner.tail(entry);
    Receive *const receive = given.count <= ofi::kIovLimit ? receives_.take() : nullptr;
    if (receive == nullptr)
        return nullptr;
    receive->source = nullptr;
    receive->tag = receive->ignore = 0;
    receive->length = receive->used = 0;
    for (std::size_t i = 0; i < given.count; ++i) {
        receive->iov[i] = given.iov[i];
        receive->length += given.iov[i].iov_len;
    }
    receive->iov_count = static_cast<std::uint32_t>(given.count);
    receive->completion = !rx_selective_ || (given.flags & FI_COMPLETION) != 0;
    receive->multi = receive->used_up = receive->cancelled = receive->posted = false;
    receive->tagged = tagged;
    receive->users = 0;
    receive->context = given.context;
    receive->entry = entry;
    return receive;
}

// Of an entry that there is no receive for.
void RdmEndpoint::fail_entry(peer::RxEntry *entry, const Message &message, int error) noexcept
{
    VMA_WARN(ep_data, "a receive of the owner's has too many buffers, or there is no memory: it fails");
    ofi::Completion completion;
    completion.context = srx_->owner.tail(entry).context;
    completion.flags = FI_RECV | (message.tagged ? FI_TAGGED : FI_MSG);
    completion.excess = message.length;
    completion.error = error;
    completion.source = message.from;
    completion.owner = owner();
    if (counters_.receive != nullptr)
        counters_.receive->count_error();
    tell_rx(completion, message.tag);
    const Outside outside(*this);
    srx_->owner.free(entry);
}

// The completion comes first, as the owner may tell of the entry's buffer itself when it gets that back.
void RdmEndpoint::landed_by_owner(Receive &receive, const ofi::Completion &completion, std::uint64_t tag,
                                  bool ends) noexcept
{
    if (receive.completion || completion.error != 0 || (ends && receive.cancelled))
        tell_rx(completion, tag);
    if (!ends)
        return;
    peer::RxEntry *const entry = std::exchange(receive.entry, nullptr);
    receives_.give_back(receive);
    if (entry == nullptr)
        return;
    const Outside outside(*this);
    srx_->owner.free(entry);
}

void RdmEndpoint::tell_rx(const ofi::Completion &completion, std::uint64_t tag) noexcept
{
    if (rx_queue_->owners.any())
        tell_owner(*rx_queue_, completion, tag);
    else
        push_own_rx(completion);
}

void RdmEndpoint::tell_owner(local::Queue &queue, const ofi::Completion &completion, std::uint64_t tag) noexcept
{
    const Outside outside(*this);
    queue.owners.tell(completion, tag);
}

ssize_t RdmEndpoint::send_eager_for_owner(Peer &peer, const Outgoing &out, std::uint64_t length,
                                          local::Bell &bell) noexcept
{
    if (const ssize_t error = write_eager(peer, out, length, bell))
        return error;
    ofi::Completion completion;
    completion.context = out.context;
    completion.flags = FI_SEND | (out.tagged ? FI_TAGGED : FI_MSG);
    completion.owner = owner();
    tell_owner(*tx_queue_, completion, 0);
    return 0;
}

// ---- messages that wait ---------------------------------------------------------------------------------------------

void RdmEndpoint::start_waiting(peer::RxEntry *entry, Message &message) noexcept
{
    with_lock([&] {
        waiting_.remove(message, kInOrder);
        message.entry = nullptr;
        srx_->owner.tail(entry).peer_context = nullptr;
        Receive *const receive = stand_for(entry, message.tagged);
        if (receive != nullptr && message.failed == 0) {
            meet(*receive, message);
            return;
        }
        if (receive != nullptr) {
            Landing landing;
            land(*receive, message.length, landing);
            landed(landing, message.told(), message.failed);
        } else {
            fail_entry(entry, message, FI_ENOMEM);
        }
        discard(message);
    });
}

void RdmEndpoint::discard_waiting(Message &message) noexcept
{
    with_lock([&] {
        waiting_.remove(message, kInOrder);
        message.entry = nullptr;
        discard(message);
    });
}

// Its sender is gone, in the middle of it. The owner can't be told: there is no call for it, so whoever receives it
// hears of it.
void RdmEndpoint::lose_for_owner(Message &message) noexcept
{
    message.form = Message::Form::whole;
    message.ack = message.announced = false;
    message.failed = FI_ECONNRESET;
    let_go(message);
}

// ---- sources --------------------------------------------------------------------------------------------------------

namespace {

thread_local RdmEndpoint *t_asked = nullptr; // the thread's, so without a lock: whose owner goes through its entries

} // namespace

ofi::Av::Watcher RdmEndpoint::watcher() noexcept
{
    return {this, [](void *object) noexcept { static_cast<RdmEndpoint *>(object)->find_sources(); }};
}

// The owner matches receives that name a source by what it knows of the entries, so it has to hear of who has got a
// name.
void RdmEndpoint::find_sources() noexcept
{
    with_lock([&] {
        const Arrival *one = waiting_.first;
        while (one != nullptr && static_cast<const Message *>(one)->from != FI_ADDR_NOTAVAIL)
            one = Matcher::next(*one);
        if (one == nullptr)
            return;
        const Outside outside(*this);
        t_asked = this;
        asked_ = nullptr;
        srx_->owner.for_each_unknown([](peer::RxEntry *entry) { return t_asked->source_of(entry); });
        t_asked = nullptr;
    });
}

// Entries are asked for in the order in which they were queued, so the next one is the next of ours. lnx asks for those
// of its other peers as well.
fi_addr_t RdmEndpoint::source_of(const peer::RxEntry *entry) noexcept
{
    Arrival *const first = asked_ != nullptr ? asked_ : waiting_.first;
    for (Arrival *one = first; one != nullptr;) {
        auto &message = static_cast<Message &>(*one);
        Arrival *next = Matcher::next(*one);
        if (next == nullptr)
            next = waiting_.first;
        if (message.entry == entry) {
            asked_ = next;
            const NetworkPeer *const net = message.peer->net.get();
            message.from = av_->place_of(net != nullptr ? net->name : message.peer->name);
            return message.from;
        }
        one = next != first ? next : nullptr;
    }
    return FI_ADDR_UNSPEC;
}

// ---- the end --------------------------------------------------------------------------------------------------------

void RdmEndpoint::leave_owner() noexcept
{
    if (srx_ == nullptr)
        return;
    for (Arrival *one = waiting_.first; one != nullptr; one = Matcher::next(*one))
        srx_->owner.free(static_cast<Message *>(one)->entry);
    for (const std::unique_ptr<Peer> &peer : peers_) {
        for (const Message *message = peer->streams; message != nullptr; message = message->next) {
            const Receive *const receive = message->landing.receive;
            if (receive != nullptr && receive->entry != nullptr)
                srx_->owner.free(receive->entry);
        }
    }
    srx_->refs.fetch_sub(1, std::memory_order_relaxed);
}

} // namespace vma::rdm
