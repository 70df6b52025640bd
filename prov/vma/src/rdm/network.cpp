// SPDX-License-Identifier: BSD-2-Clause
// Sending and receiving by the network's endpoint. Opening it is in network_open.cpp.
#include "rdm/network.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/spinlock.hpp"
#include "ofi/libfabric.hpp"

namespace vma::rdm {

namespace {

constexpr std::size_t kBurst = 16;        // completions at a time
constexpr std::size_t kMostInFlight = 48; // of one peer's, so that one that doesn't take any leaves some for the others
constexpr std::uint64_t kRetry = 1'000'000;        // ns: for who sleeps while something can't be sent
constexpr std::uint64_t kPatience = 1'000'000'000; // ns: of drain(), since something has left

} // namespace

void NetworkBuffers::push(NetworkBuffer &buffer) noexcept
{
    buffer.next = nullptr;
    (last != nullptr ? last->next : first) = &buffer;
    last = &buffer;
}

NetworkBuffer *NetworkBuffers::pop() noexcept
{
    NetworkBuffer *const buffer = first;
    if (buffer != nullptr && (first = buffer->next) == nullptr)
        last = nullptr;
    return buffer;
}

void set_name(NetworkHead &head, const ofi::Address &name) noexcept
{
    const bool v4 = name.sa.sa_family == AF_INET;
    head.family = v4 ? 4 : 6;
    head.port = name.port();
    std::memcpy(head.host, v4 ? static_cast<const void *>(&name.v4.sin_addr) : &name.v6.sin6_addr, v4 ? 4 : 16);
}

bool name_in(const NetworkHead &head, ofi::Address &name) noexcept
{
    if ((head.family != 4 && head.family != 6) || head.port == 0)
        return false;
    name.sa.sa_family = head.family == 4 ? AF_INET : AF_INET6;
    if (head.family == 4)
        std::memcpy(&name.v4.sin_addr, head.host, 4);
    else
        std::memcpy(&name.v6.sin6_addr, head.host, 16);
    name.set_port(head.port);
    return !name.is_wildcard();
}

std::unique_ptr<NetworkPeer> Network::meet(const ofi::Address &address, Peer &peer) noexcept
{
    std::unique_ptr<NetworkPeer> met(new (std::nothrow) NetworkPeer(*this, peer));
    if (!met)
        return nullptr;
    met->name = address;
    if (fi_av_insert(av_.get(), &address.v6, 1, &met->address, 0, nullptr) != 1)
        return nullptr;
    return met;
}

// ---- sending --------------------------------------------------------------------------------------------------------

std::byte *Network::claim(NetworkPeer &to) noexcept
{
    const bool may = !free_.empty() && to.unsent.empty() && !to.lost && to.in_flight < kMostInFlight;
    return may ? free_.first->packet() : nullptr;
}

void Network::publish(NetworkPeer &to, std::size_t length, bool has_data, std::uint64_t data) noexcept
{
    NetworkBuffer &buffer = *free_.pop();
    NetworkHead head = head_;
    head.epoch = to.epoch;
    head.number = to.sent++;
    head.flags = has_data ? kNetworkData : std::uint16_t{0};
    head.to = to.id;
    head.data = data;
    std::memcpy(buffer.bytes, &head, sizeof head);
    buffer.to = &to;
    buffer.epoch = to.epoch;
    buffer.length = sizeof head + length;
    if (try_send(buffer))
        return;
    to.unsent.push(buffer);
    waiting_.push_back(&to);
}

// False: later. What can't be sent at all is dropped, and its peer lost.
bool Network::try_send(NetworkBuffer &buffer) noexcept
{
    const ssize_t error = fi_send(ep_.get(), buffer.bytes, buffer.length, nullptr, buffer.to->address, &buffer.context);
    if (error == -FI_EAGAIN)
        return false;
    if (error == 0) {
        ++in_flight_;
        ++buffer.to->in_flight;
        buffer.to->waits_since = 0;
    } else {
        VMA_INFO(ep_data, "%s: %s", ofi::AddressText(buffer.to->name).c_str(),
                 ofi::libfabric_calls()->strerror(static_cast<int>(-error)));
        lose(*buffer.to);
        free_.push(buffer);
    }
    return true;
}

void Network::send_waiting_to(NetworkPeer &peer) noexcept
{
    while (!peer.unsent.empty()) {
        NetworkBuffer &buffer = *peer.unsent.first;
        NetworkBuffer *const following = buffer.next;
        if (!try_send(buffer)) { // which leaves its place in the list alone then
            ask_for(peer);
            return;
        }
        if ((peer.unsent.first = following) == nullptr)
            peer.unsent.last = nullptr;
    }
}

// Nothing can be sent to it: because it is busy, or since it is gone?
void Network::ask_for(NetworkPeer &peer) noexcept
{
    const std::uint64_t now = core::monotonic_ns();
    if (peer.waits_since == 0)
        peer.waits_since = now;
    if (now - peer.waits_since < kSilence || peer.probe.is_there(peer.name, now))
        return;
    VMA_INFO(ep_data, "%s: nobody is there", ofi::AddressText(peer.name).c_str());
    lose(peer);
}

bool Network::send_waiting() noexcept
{
    if (waiting_.empty())
        return false;
    const std::size_t before = waiting_.size();
    for (NetworkPeer *peer : waiting_)
        send_waiting_to(*peer);
    std::erase_if(waiting_, [](const NetworkPeer *peer) { return peer->unsent.empty(); });
    return waiting_.size() != before;
}

void Network::forget(NetworkPeer &to) noexcept
{
    while (NetworkBuffer *const buffer = to.unsent.pop())
        free_.push(*buffer);
    std::erase(waiting_, &to);
    std::erase(lost_, &to);
    to.lost = false;
    to.waits_since = 0;
    to.probe.reset();
    to.sent = to.left = 0;
    ++to.epoch;
}

void Network::lose(NetworkPeer &peer) noexcept
{
    if (!peer.lost)
        lost_.push_back(&peer);
    peer.lost = true;
    peer.lost_at = core::monotonic_ns();
}

NetworkPeer *Network::take_lost() noexcept
{
    if (lost_.empty())
        return nullptr;
    NetworkPeer *const peer = lost_.back();
    lost_.pop_back();
    return peer;
}

// ---- receiving ------------------------------------------------------------------------------------------------------

void Network::receive_into(NetworkBuffer &buffer) noexcept
{
    buffer.to = nullptr;
    buffer.counted = false;
    if (fi_recv(ep_.get(), buffer.bytes, sizeof buffer.bytes, nullptr, FI_ADDR_UNSPEC, &buffer.context) == 0)
        return;
    unposted_.push(buffer);
}

void Network::pop() noexcept
{
    receive_into(*arrived_.pop());
}

void Network::take(NetworkBuffer &buffer, std::size_t length) noexcept
{
    if (buffer.to != nullptr) {
        --in_flight_;
        --buffer.to->in_flight;
        if (buffer.epoch == buffer.to->epoch)
            ++buffer.to->left;
        free_.push(buffer);
        return;
    }
    buffer.length = std::min(length, sizeof buffer.bytes);
    arrived_.push(buffer);
}

void Network::read_error() noexcept
{
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(cq_.get(), &entry, 0) <= 0 || entry.op_context == nullptr)
        return;
    auto &buffer = *static_cast<NetworkBuffer *>(entry.op_context);
    if (buffer.to == nullptr) {
        receive_into(buffer);
        return;
    }
    --in_flight_;
    --buffer.to->in_flight;
    if (buffer.epoch == buffer.to->epoch) {
        VMA_INFO(ep_data, "%s: %s", ofi::AddressText(buffer.to->name).c_str(),
                 ofi::libfabric_calls()->strerror(entry.err));
        lose(*buffer.to);
    }
    free_.push(buffer);
}

bool Network::read_completions() noexcept
{
    fi_cq_msg_entry entries[kBurst];
    const ssize_t count = fi_cq_read(cq_.get(), entries, kBurst);
    if (count == -FI_EAVAIL) {
        read_error();
        return true;
    }
    for (ssize_t i = 0; i < count; ++i)
        take(*static_cast<NetworkBuffer *>(entries[i].op_context), entries[i].len);
    return count > 0;
}

bool Network::progress() noexcept
{
    alarm_.stop();
    bool any = read_completions();
    if (!waiting_.empty() || !unposted_.empty()) [[unlikely]] {
        for (NetworkBuffers again = std::exchange(unposted_, {}); NetworkBuffer *const buffer = again.pop();)
            receive_into(*buffer);
        any |= send_waiting();
    }
    return any;
}

void Network::drain() noexcept
{
    std::uint64_t since = core::monotonic_ns();
    while (in_flight_ != 0 || !waiting_.empty()) {
        const std::uint64_t now = core::monotonic_ns();
        if (progress())
            since = now;
        else if (now - since > kPatience)
            return;
        else
            core::cpu_relax();
        while (!arrived_.empty())
            pop(); // nobody reads it any more
    }
}

bool Network::may_sleep(bool waits) noexcept
{
    if (!unposted_.empty() || !lost_.empty())
        return false;
    // Not every provider wakes for it that a connection has come about.
    if (waits || !waiting_.empty())
        alarm_.start(waiting_.empty() ? kSilence : kRetry);
    fid *objects[] = {&cq_->fid};
    return fi_trywait(fabric_.get(), objects, 1) == 0;
}

} // namespace vma::rdm
