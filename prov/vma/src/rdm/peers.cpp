// SPDX-License-Identifier: BSD-2-Clause
// Who a reliable-datagram endpoint talks with: finding and greeting a peer, and what becomes of what was under way when it is gone.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/inlet.hpp"
#include "ofi/av.hpp"

namespace vma::rdm {

using local::Bell;
using local::Inlet;

Peer *RdmEndpoint::new_peer(fi_addr_t address) noexcept
{
    const std::uint32_t generation = av_->generation_of(address);
    ofi::Address known;
    if (!av_->address_of(address, known))
        return nullptr;
    Peer *const peer = peer_at(known);
    if (peer == nullptr)
        return nullptr;
    if (places_.size() <= address)
        places_.resize(address + 1);
    places_[address] = {generation, peer};
    return peer;
}

// One port is one endpoint, whatever address of the host it goes by. Another host's is nobody's here.
Peer *RdmEndpoint::peer_at(const ofi::Address &address) noexcept
{
    const ofi::Address reachable = address.reachable();
    const std::uint16_t port = reachable.is_local() ? reachable.port() : std::uint16_t{0};
    if (port == 0)
        VMA_WARN(ep_ctrl,
                 "%s is not of this host, beyond which this endpoint doesn't reach: ofi_rxm over an RDMA device does "
                 "(FI_PROVIDER=vma,ofi_rxm)",
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
    if (const int error = peer.out->open())
        return error;
    std::byte *const place = peer.out->claim_kept(sizeof(Packet) + sizeof(Hello));
    if (place == nullptr)
        return -FI_EAGAIN;
    const Packet packet{.op = PacketOp::hello, .flags = 0, .error = 0, .id = 0, .tag = 0, .size = sizeof(Hello)};
    const Hello hello{kHelloMagic, kHelloVersion, reinterpret_cast<std::uintptr_t>(&nonce_), nonce_};
    std::memcpy(place, &packet, sizeof packet);
    std::memcpy(place + sizeof packet, &hello, sizeof hello);
    peer.greeted = true;
    peer.it_reaches_us = Peer::Reach::unknown;
    VMA_INFO(ep_ctrl, "port %u: a ring of %zu KiB to process %d", static_cast<unsigned>(peer.port),
             local::kRingBytes >> 10, static_cast<int>(peer.out->pid()));
    publish(peer, sizeof packet + sizeof hello, false, 0, bell);
    return 0;
}

// Whether the ring to it has come to its end.
void RdmEndpoint::look_after(Peer &peer) noexcept
{
    if (peer.out->has_news())
        static_cast<void>(peer.out->look_ended());
    if (peer.greeted && !peer.out->connected())
        lost(peer);
}

// Nobody reads our ring any more. What the peer has said before it went may still be to be read in its own ring, so what waits for an answer does so
// until that has come to its end too.
void RdmEndpoint::lost(Peer &peer) noexcept
{
    VMA_INFO(ep_data, "the endpoint at port %u is gone", static_cast<unsigned>(peer.port));
    peer.greeted = false;
    peer.it_reaches_us = Peer::Reach::unknown;
    peer.out->disconnect();
    peer.replies.clear();
    while (Operation *const operation = peer.first_writing) {
        peer.first_writing = operation->next;
        finish(*operation, FI_ECONNRESET);
    }
    peer.last_writing = nullptr;
    if (peer.inlet == nullptr)
        fail_waiting(peer);
}

void RdmEndpoint::fail_waiting(Peer &peer) noexcept
{
    if (peer.outstanding == 0)
        return;
    operations_.for_each([&](Operation &operation) {
        if (operation.peer == &peer && operation.state == Operation::State::waiting)
            finish(operation, FI_ECONNRESET);
    });
}

// ---- the queue's side, with its lock held ------------------------------------------------------------------------------

void RdmEndpoint::joined(Inlet &inlet) noexcept
{
    Peer *const peer = peer_at(inlet.raw_source());
    inlet.user = peer;
    if (peer != nullptr)
        peer->inlet = &inlet;
}

void RdmEndpoint::left(Inlet &inlet) noexcept
{
    Peer *const peer = static_cast<Peer *>(inlet.user);
    if (peer == nullptr || closing_)
        return;
    drop_streams(*peer, inlet);
    if (peer->inlet != &inlet)
        return; // another process has its port by now
    peer->inlet = nullptr;
    peer->we_reach_it = Peer::Reach::unknown;
    look_after(*peer);
    if (!peer->greeted)
        fail_waiting(*peer);
}

// Messages of which nothing more comes.
void RdmEndpoint::drop_streams(Peer &peer, const Inlet &inlet) noexcept
{
    for (Message **at = &peer.streams; *at != nullptr;) {
        Message &message = **at;
        if (message.inlet != &inlet) {
            at = &message.next;
            continue;
        }
        *at = message.next;
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
    Bell bell;
    std::erase_if(busy_, [&](Peer *peer) {
        if (!peer->greeted && !peer->replies.empty() && greet(*peer, bell) != 0 && peer->out->refusal() != -FI_EAGAIN)
            peer->replies.clear(); // there is nobody to be told
        if (peer->greeted)
            flush(*peer, bell);
        peer->busy = peer->has_work();
        return !peer->busy;
    });
    if (!busy_.empty())
        attend_soon();
}

} // namespace vma::rdm
