// SPDX-License-Identifier: BSD-2-Clause
// Who a reliable-datagram endpoint talks with: finding and greeting a peer, and what becomes of what was under way when
// it is gone.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/av.hpp"

namespace vma::rdm {

using local::Bell;
using local::Inlet;

namespace {

constexpr unsigned kRestAfter = 256; // polls of the network that found nothing before most are left out
constexpr unsigned kRestFor =
    1024; // reads: some tens of microseconds, as asking another provider may take a system call

} // namespace

Peer *RdmEndpoint::new_peer(fi_addr_t address) noexcept
{
    const std::uint32_t generation = av_->generation_of(address);
    ofi::Address known;
    if (!av_->address_of(address, known))
        return nullptr;
    Peer *const peer = peer_at(known);
    if (peer == nullptr)
        return nullptr;
    // It may be inserted as another process has its address by now. One that was killed has said nothing.
    if (peer->net == nullptr) {
        peer->out->look_now();
        look_after(*peer);
        peer->out->expect_somebody();
    }
    if (places_.size() <= address)
        places_.resize(address + 1);
    places_[address] = {generation, peer};
    return peer;
}

// One port is one endpoint, whatever address of the host it goes by. Another host's is the network's, or else nobody's.
Peer *RdmEndpoint::peer_at(const ofi::Address &address) noexcept
{
    const ofi::Address reachable = address.reachable();
    const bool here = !all_remote_ && reachable.is_local();
    if (!here && network_ != nullptr)
        return network_peer(reachable);
    const std::uint16_t port = here ? reachable.port() : std::uint16_t{0};
    if (!here)
        VMA_WARN(ep_ctrl,
                 "%s is not of this host, beyond which this endpoint doesn't reach: for that it takes an address that "
                 "others can reach, and an RDMA device there or the provider tcp beside vma in FI_PROVIDER",
                 ofi::AddressText(address).c_str());
    Peer *&place = by_port_[port];
    if (place != nullptr)
        return place;
    std::unique_ptr<Peer> peer(new (std::nothrow) Peer);
    if (peer)
        peer->out = make_outlet(reachable, true);
    if (!peer || !peer->out)
        return nullptr;
    peer->port = port;
    place = peer.get();
    peers_.push_back(std::move(peer));
    return place;
}

int RdmEndpoint::make_ready(Peer &peer, Bell &bell) noexcept
{
    look_after(peer);
    if (!peer.greeted) {
        if (const int error = greet(peer, bell))
            return error;
    }
    if (!peer.has_work())
        return 0;
    flush(peer, bell);
    return peer.greeted && !peer.has_work() ? 0 : -FI_EAGAIN;
}

int RdmEndpoint::greet(Peer &peer, Bell &bell) noexcept
{
    if (peer.net != nullptr)
        return greet_network(peer);
    if (const int error = peer.out->open())
        return error;
    std::byte *const place = peer.claim(sizeof(Packet) + sizeof(Hello));
    if (place == nullptr)
        return -FI_EAGAIN;
    const Packet packet{.op = PacketOp::hello, .flags = 0, .error = 0, .id = 0, .tag = 0, .size = sizeof(Hello)};
    const Hello hello{kHelloMagic, kHelloVersion, reinterpret_cast<std::uintptr_t>(&nonce_),
                      nonce_.load(std::memory_order_relaxed)};
    std::memcpy(place, &packet, sizeof packet);
    std::memcpy(place + sizeof packet, &hello, sizeof hello);
    peer.greeted = true;
    peer.it_reaches_us = Peer::Reach::unknown;
    VMA_INFO(ep_ctrl, "port %u: a ring of %zu KiB to process %d", static_cast<unsigned>(peer.port),
             local::kRingBytes >> 10, static_cast<int>(peer.out->pid()));
    publish(peer, sizeof packet + sizeof hello, false, 0, bell);
    return 0;
}

// Whether the ring to it has come to its end, or the network has lost it.
void RdmEndpoint::look_after(Peer &peer) noexcept
{
    if (peer.net == nullptr && peer.out->has_news())
        static_cast<void>(peer.out->look_ended());
    if (peer.connected())
        return;
    if (peer.greeted)
        lost(peer);
    else if (peer.net != nullptr)
        network_->forget(*peer.net);
}

// Nobody reads our ring any more. What the peer has said before it went may still be to be read in its own ring, so
// what waits for an answer does so until that has come to its end too.
void RdmEndpoint::lost(Peer &peer) noexcept
{
    VMA_INFO(ep_data, "the endpoint at port %u is gone", static_cast<unsigned>(peer.port));
    peer.greeted = false;
    if (peer.net != nullptr) {
        network_->forget(*peer.net);
    } else {
        peer.it_reaches_us = Peer::Reach::unknown;
        peer.out->disconnect();
    }
    peer.replies.clear();
    while (Operation *const operation = peer.first_writing) {
        peer.first_writing = operation->next;
        finish(*operation, FI_ECONNRESET);
    }
    peer.last_writing = nullptr;
    if (peer.net != nullptr || peer.find_sender(peer.reader()) == nullptr) {
        fail_waiting(peer, peer.reader());
        return;
    }
    operations_.for_each([&](Operation &operation) { operation.lost |= operation.peer == &peer; });
}

// What waits for an answer of an endpoint of which nothing more comes, but for what was written into a ring that it
// still reads.
void RdmEndpoint::fail_waiting(Peer &peer, std::uint64_t identity) noexcept
{
    peer.first_leaving = peer.last_leaving = nullptr;
    if (peer.outstanding == 0)
        return;
    const bool reads = peer.greeted && peer.leads_to(identity);
    operations_.for_each([&](Operation &operation) {
        const bool its = operation.peer == &peer && (peer.net != nullptr || local::may_be(operation.to, identity));
        if (its && operation.state >= Operation::State::leaving && (operation.lost || !reads))
            finish(operation, FI_ECONNRESET);
    });
}

// The reader of our ring has left it, or is behind. 0: another one has its name, and is greeted.
int RdmEndpoint::find_successor(Peer &peer, Bell &bell) noexcept
{
    look_after(peer);
    if (peer.greeted)
        return -FI_EAGAIN;
    const int error = peer.net == nullptr ? greet(peer, bell) : -FI_ECONNRESET;
    return error == 0 || error == -FI_EAGAIN ? error : -FI_ECONNRESET;
}

// ---- the queue's side, with its lock held ---------------------------------------------------------------------------

void RdmEndpoint::joined(Inlet &inlet) noexcept
{
    Peer *const peer = peer_at(inlet.raw_source());
    inlet.user = peer;
    if (peer == nullptr)
        return;
    ++rings_joined_;
    if (peer->net == nullptr) {
        look_after(*peer);
        end_predecessor(*peer, inlet.identity());
    }
    peer->senders.push_back({.inlet = &inlet, .identity = inlet.identity(), .number = rings_joined_});
    peer->name = inlet.raw_source();
}

// Somebody writes to us from the port. Where our own ring leads to another endpoint, the one of them that has the name
// now is the later one, whatever we have heard of either's end, and in which order.
void RdmEndpoint::end_predecessor(Peer &peer, std::uint64_t identity) noexcept
{
    if (peer.greeted && !peer.leads_to(identity) && peer.out->is_succeeded())
        lost(peer);
    peer.out->expect_somebody();
}

void RdmEndpoint::left(Inlet &inlet) noexcept
{
    Peer *const peer = static_cast<Peer *>(inlet.user);
    if (peer == nullptr || closing_)
        return;
    drop_streams(*peer, &inlet);
    std::erase_if(peer->senders, [&inlet](const Peer::Sender &sender) { return sender.inlet == &inlet; });
    look_after(*peer);
    if (peer->find_sender(inlet.identity()) == nullptr)
        fail_waiting(*peer, inlet.identity());
}

// Messages of which nothing more comes.
void RdmEndpoint::drop_streams(Peer &peer, const Inlet *inlet) noexcept
{
    for (Message **at = &peer.streams; *at != nullptr;) {
        Message &message = **at;
        if (message.inlet != inlet) {
            at = &message.next;
            continue;
        }
        *at = message.next;
        if (message.entry != nullptr) [[unlikely]] {
            lose_for_owner(message);
            continue;
        }
        if (message.landing.receive != nullptr) {
            landed(message.landing, message.told(), FI_ECONNRESET);
        } else if (!message.discarded) {
            if (message.claimed_by != nullptr)
                std::erase(claimed_, &message);
            else
                matcher(message.tagged).remove(message);
        }
        free_message(message);
    }
}

void RdmEndpoint::make_busy(Peer &peer) noexcept
{
    if (!peer.busy) {
        peer.busy = true;
        busy_.push_back(&peer);
    }
    attend_soon();
}

void RdmEndpoint::attend() noexcept
{
    if (closing_)
        return;
    if (!deferred_.empty())
        push_deferred();
    for (const std::unique_ptr<Peer> &peer : peers_)
        look_after(*peer);
    flush_busy();
}

void RdmEndpoint::flush_busy() noexcept
{
    Bell bell;
    std::erase_if(busy_, [&](Peer *peer) {
        if (!peer->replies.empty() && is_nobody(*peer, bell))
            peer->replies.clear(); // there is nobody to be told
        if (peer->greeted)
            flush(*peer, bell);
        peer->busy = peer->has_work();
        return !peer->busy;
    });
    flushing_ = !busy_.empty();
    set_polled(flushing_ || network_ != nullptr);
}

// A peer whose ring to us is empty again has slept for it.
void RdmEndpoint::made_room(Inlet &inlet) noexcept
{
    auto *const peer = static_cast<Peer *>(inlet.user);
    if (peer == nullptr)
        return;
    tell(*peer, PacketOp::ping, 0);
}

// ---- in each read of the queue, with its lock held ------------------------------------------------------------------

void RdmEndpoint::set_polled(bool wanted) noexcept
{
    if (polled_ == wanted)
        return;
    polled_ = wanted;
    if (wanted)
        rx_queue_->inlets.add(*this);
    else
        rx_queue_->inlets.remove(*this);
}

void RdmEndpoint::poll() noexcept
{
    const bool rests = !flushing_ && idle_polls_ > kRestAfter && ++idle_polls_ % kRestFor != 0;
    if (rests || (visits_ == 0 && !lock_.try_lock())) // whoever has it may wait for the queue's
        return;
    ++visits_;
    if (network_ != nullptr)
        progress_network();
    if (flushing_)
        flush_busy();
    if (--visits_ == 0)
        lock_.unlock();
}

// Whoever has our lock may change what is looked at: then the queue is read again first.
bool RdmEndpoint::may_sleep() noexcept
{
    if (!lock_.try_lock())
        return false;
    const auto waits_for_room = [](Peer *peer) { return peer->net != nullptr || peer->out->wait_for_room(); };
    const bool may = (network_ == nullptr || network_->may_sleep(operations_.used() != 0)) &&
                     std::all_of(busy_.begin(), busy_.end(), waits_for_room);
    lock_.unlock();
    idle_polls_ = 0;
    return may;
}

} // namespace vma::rdm
