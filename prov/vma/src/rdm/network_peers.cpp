// SPDX-License-Identifier: BSD-2-Clause
// Peers on other hosts: how a reliable-datagram endpoint opens its way to them, who says which number is whose, and
// what comes from there.
#include "rdm/endpoint.hpp"

#include <cstring>
#include <new>
#include <string>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "ofi/av.hpp"
#include "ofi/info/host_addresses.hpp"
#include "ofi/libfabric.hpp"

namespace vma::rdm {

using local::Bell;

namespace {

constexpr unsigned kPortTries = 8; // ports of our choice that others of this host might have
constexpr unsigned kBurst = 64;    // packets from other hosts before the rings have their turn

} // namespace

// ---- opening --------------------------------------------------------------------------------------------------------

// Of a wildcard, the address by which others most likely know this host.
static bool network_address(const ofi::Address &local, ofi::Address &address)
{
    address = local;
    if (!local.is_wildcard())
        return !local.is_loopback();
    const std::vector<ofi::Address> best = ofi::reachable_addresses(local.sa.sa_family);
    if (best.empty() || best.front().is_loopback())
        return false;
    address = best.front();
    address.set_port(local.port());
    return true;
}

// The same port as within the host, as that is all that others know of us. One that we have chosen ourselves may be
// another's out there.
int RdmEndpoint::open_network() noexcept
{
    const bool ours_to_choose = !name_;
    for (unsigned tries = 0; tries < kPortTries; ++tries) {
        {
            const std::lock_guard guard(manager_.mutex());
            if (const int error = ensure_name())
                return error;
        }
        ofi::Address address;
        if (!network_address(local_, address) && !all_remote_)
            return 0; // nobody else can reach us
        int error = 0;
        network_ = Network::open(address, error);
        if (network_ != nullptr) {
            VMA_INFO(ep_ctrl, "%s: other hosts are reached by %s", ofi::AddressText(address).c_str(),
                     network_->provider());
            break;
        }
        if (error == 0)
            return 0;
        if (error != -FI_EADDRINUSE || !ours_to_choose) {
            VMA_WARN(ep_ctrl, "%s: no way to other hosts: %s", ofi::AddressText(address).c_str(),
                     ofi::libfabric_calls()->strerror(-error));
            return 0;
        }
        const std::lock_guard guard(manager_.mutex());
        drop_name();
    }
    if (network_ == nullptr)
        return 0;
    const core::SpinGuard guard(rx_queue_->lock);
    if (const int error = rx_queue_->watch_fd(network_->wait_fd()))
        return error;
    set_polled(true);
    return 0;
}

void RdmEndpoint::close_network() noexcept
{
    if (network_ == nullptr)
        return;
    {
        const core::SpinGuard guard(rx_queue_->lock);
        rx_queue_->unwatch_fd(network_->wait_fd());
        set_polled(false);
    }
    const core::SpinGuard guard(lock_);
    network_->drain();
    for (const std::unique_ptr<Peer> &peer : peers_) {
        if (peer->net == nullptr)
            continue;
        network_->forget(*peer->net);
        peer->greeted = false;
        peer->replies.clear();
        peer->first_writing = peer->last_writing = peer->first_leaving = peer->last_leaving = nullptr;
        std::erase(busy_, peer.get());
    }
    network_.reset();
}

// ---- who is who -----------------------------------------------------------------------------------------------------

Peer *RdmEndpoint::network_peer(const ofi::Address &address) noexcept
{
    Peer *&place = by_address_[address.key()];
    if (place != nullptr)
        return place;
    std::unique_ptr<Peer> peer(new (std::nothrow) Peer);
    if (peer)
        peer->net = network_->meet(address, *peer);
    if (!peer || !peer->net)
        return nullptr;
    peer->port = address.port();
    peer->it_reaches_us = Peer::Reach::no;
    peer->senders.push_back({.we_reach_it = Peer::Reach::no});
    place = peer.get();
    peers_.push_back(std::move(peer));
    return place;
}

int RdmEndpoint::greet_network(Peer &peer) noexcept
{
    // Else who sends again and again would never hear of it.
    if (peer.net->lost_at != 0 && core::monotonic_ns() - peer.net->lost_at < kSilence)
        return -FI_ECONNREFUSED;
    peer.greeted = true;
    VMA_INFO(ep_ctrl, "%s: to %zu KiB in one packet, beyond in several, by %s",
             ofi::AddressText(peer.net->name).c_str(), kEager >> 10, network_->provider());
    return 0;
}

// Who says so in a packet's head. nullptr: nobody can be.
Peer *RdmEndpoint::network_sender(const NetworkHead &head) noexcept
{
    if (const auto found = by_id_.find(head.sender); found != by_id_.end()) [[likely]]
        return found->second;
    ofi::Address name;
    if (head.sender == 0 || !name_in(head, name) || (name.is_loopback() && !all_remote_))
        return nullptr;
    Peer *const peer = network_peer(name);
    if (peer == nullptr)
        return nullptr;
    NetworkPeer &net = *peer->net;
    if (net.id != 0) {
        by_id_.erase(net.id); // another endpoint has its address by now
        lose_network(*peer);
        peer->senders.front().failed_write_error = 0;
    }
    net.id = head.sender;
    net.its_epoch = 0;
    net.lost_at = 0;
    by_id_[head.sender] = peer;
    return peer;
}

// Whether it is the next one of the packets that its sender has sent us.
bool RdmEndpoint::is_next(const NetworkHead &head, Peer &peer) noexcept
{
    NetworkPeer &net = *peer.net;
    if (head.to != 0 && head.to != network_->id()) { // whoever had our address before us was meant
        tell(peer, PacketOp::ping, 0);
        return false;
    }
    if (head.epoch != net.its_epoch) {
        drop_streams(peer, nullptr);
        net.its_epoch = head.epoch;
        net.taken = 0;
        net.broken = false;
        if (head.to == 0) // it doesn't know our number yet, by which it would tell us from another at our address
            tell(peer, PacketOp::ping, 0);
    }
    if (net.broken)
        return false;
    net.broken = head.number != net.taken++;
    if (net.broken) {
        VMA_INFO(ep_data, "%s: packets were lost with a connection", ofi::AddressText(net.name).c_str());
        drop_streams(peer, nullptr);
        tell(peer, PacketOp::broken, head.epoch);
    }
    return !net.broken;
}

void RdmEndpoint::tell(Peer &peer, PacketOp op, std::uint64_t size) noexcept
{
    Reply said;
    said.packet = {op, 0, 0, 0, 0, size};
    reply({peer, 0}, std::move(said));
}

// Whoever had the address is there no more.
void RdmEndpoint::lose_network(Peer &peer) noexcept
{
    drop_streams(peer, nullptr);
    if (peer.greeted)
        lost(peer);
    else
        fail_waiting(peer, peer.reader());
}

// ---- what comes -----------------------------------------------------------------------------------------------------

RdmEndpoint::Took RdmEndpoint::take_from_network(NetworkBuffer &buffer) noexcept
{
    NetworkHead head{};
    constexpr std::size_t kLeast = sizeof head + sizeof(Packet);
    std::memcpy(&head, buffer.bytes, sizeof head);
    if (buffer.length < kLeast || head.magic != kNetworkMagic || head.epoch == 0)
        return Took::lie;
    Peer *const peer = network_sender(head);
    if (peer == nullptr)
        return Took::lie;
    if (!buffer.counted && !is_next(head, *peer))
        return Took::taken;
    buffer.counted = true; // it may be shown again
    NetworkPeer &net = *peer->net;
    const std::uint32_t generation = av_->generation.load(std::memory_order_acquire);
    if (generation != net.source_generation) {
        net.source_generation = generation;
        net.source = av_->place_of(net.name);
    }
    const bool has_data = (head.flags & kNetworkData) != 0;
    Incoming in{nullptr,
                *peer,
                {},
                buffer.packet() + sizeof(Packet),
                buffer.length - kLeast,
                has_data,
                has_data ? head.data : 0};
    std::memcpy(&in.packet, buffer.packet(), sizeof(Packet));
    return take_from(in);
}

void RdmEndpoint::progress_network() noexcept
{
    if (network_->progress())
        idle_polls_ = 0;
    else
        ++idle_polls_;
    while (NetworkPeer *const net = network_->take_lost())
        look_after(net->peer);
    if (operations_.used() != 0) {
        for (const std::unique_ptr<Peer> &peer : peers_)
            finish_left(*peer);
        ask_after_silent();
    }
    for (unsigned done = 0; done < kBurst && network_->front() != nullptr; ++done) {
        NetworkBuffer &buffer = *network_->front();
        const Took took = take_from_network(buffer);
        if (took == Took::later || took == Took::stalled)
            return;
        if (took == Took::lie && !told_of_strangers_) {
            told_of_strangers_ = true; // once, as there may be many
            VMA_WARN(ep_data,
                     "a packet from another host is dropped, as are more of the kind: it is malformed, or of an "
                     "unknown sender");
        }
        network_->pop();
    }
}

void RdmEndpoint::finish_left(Peer &peer) noexcept
{
    while (Operation *const operation = peer.first_leaving) {
        if (static_cast<std::int32_t>(peer.net->left - operation->leaves_by) < 0)
            return;
        if ((peer.first_leaving = operation->next) == nullptr)
            peer.last_leaving = nullptr;
        finish(*operation, 0);
    }
}

// Peers that owe us an answer and have nothing to be sent would not be missed if they were gone.
void RdmEndpoint::ask_after_silent() noexcept
{
    const std::uint64_t now = core::monotonic_ns();
    if (now - asked_after_ < kSilence)
        return;
    asked_after_ = now;
    Bell bell;
    for (const std::unique_ptr<Peer> &peer : peers_) {
        if (peer->net == nullptr || peer->outstanding == 0 || !peer->greeted)
            continue;
        std::byte *const place = peer->claim(sizeof(Packet));
        if (place == nullptr)
            continue;
        const Packet packet{.op = PacketOp::ping, .flags = 0, .error = 0, .id = 0, .tag = 0, .size = 0};
        std::memcpy(place, &packet, sizeof packet);
        publish(*peer, sizeof packet, false, 0, bell);
    }
}

} // namespace vma::rdm
