// SPDX-License-Identifier: BSD-2-Clause
#include "ether/dgram/udp_sender.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "ether/dgram/group.hpp"
#include "ether/port_context.hpp"
#include "inet/base/hash.hpp"

namespace vma::ether {
namespace {

constexpr inet::Nanos kErrorHolds = inet::kSecond;      // then the route is asked for again
constexpr inet::Nanos kPatience = inet::kMillisecond;   // with a NIC that takes no more
constexpr std::uint64_t kHashKey = 0x6a09e667f3bcc908U; // whoever chooses peers harms himself only
constexpr std::size_t kMostParts = 8;

inet::IpAddress address_of(const std::uint8_t (&bytes)[16]) noexcept
{
    inet::IpAddress address;
    std::memcpy(address.bytes.data(), bytes, sizeof bytes);
    return address;
}

} // namespace

UdpSender::UdpSender(ofi::Domain &owner, std::uint32_t sets) noexcept
    : domain_(owner), port_context_(port_context_of(owner)), sets_(sets), peers_(new (std::nothrow) Peer[sets * kWays])
{
}

void UdpSender::close() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    forget_peers();
}

void UdpSender::forget_peers() noexcept
{
    std::for_each_n(peers_.get(), sets_ * kWays, [this](Peer &peer) { forget(peer); });
}

int UdpSender::drain() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    const inet::Nanos start = now_ns();
    for (inet::Nanos now = start; !port_context_.net_if().send(now); now = now_ns())
        if (now - start > kPatience)
            return -FI_EAGAIN;
    return 0;
}

// ---- hot path -------------------------------------------------------------------------------------------------------

UdpSender::Peer &UdpSender::peer_of(inet::Nanos now, const inet::IpAddress &local,
                                    const inet::IpAddress &remote) noexcept
{
    const std::uint64_t hash = inet::address_hash(remote, kHashKey) >> 32;
    Peer *const set = &peers_[(hash & (sets_ - 1)) * kWays];
    Peer *const end = set + kWays;
    Peer *peer = std::find_if(set, end, [&](const Peer &one) { return one.remote == remote && one.local == local; });
    if (peer == end) [[unlikely]] {
        peer = set + next_++ % kWays;
        find(now, local, remote, *peer);
        return *peer;
    }
    const bool holds = peer->generation == port_context_.net_if().net().generation() &&
                       (peer->error == 0 ? peer->next_hop != inet::kNoNextHop : now < peer->until);
    if (!holds) [[unlikely]]
        find(now, local, remote, *peer);
    return *peer;
}

void UdpSender::find(inet::Nanos now, const inet::IpAddress &local, const inet::IpAddress &remote, Peer &peer) noexcept
{
    forget(peer);
    peer.remote = remote;
    peer.local = local;
    peer.generation = port_context_.net_if().net().generation();
    const bool bound = !local.is_multicast();
    peer.error =
        find_next_hop_to(port_context_.net_if(), bound ? local : inet::IpAddress{}, remote, peer.source, peer.next_hop);
    peer.until = now + kErrorHolds;
    if (peer.error == 0 && remote.is_multicast())
        port_context_.net_if().find_group_next_hop(now, remote);
}

void UdpSender::forget(Peer &peer) noexcept
{
    if (peer.next_hop != inet::kNoNextHop)
        port_context_.tcp().next_hops().release(peer.next_hop);
    peer = {};
}

// A NIC that is behind is waited for: what the kernel sent instead would overtake what is in the NIC's queue.
[[gnu::noinline]] int UdpSender::write_behind(const Peer &peer, const inet::IpOut &ip, inet::UdpPorts ports,
                                              std::span<inet::Bytes> pieces) noexcept
{
    const inet::Nanos start = now_ns();
    inet::Nanos now = start;
    int error = 0;
    do {
        static_cast<void>(port_context_.net_if().send(now));
        error = port_context_.net_if().write_datagram(now, peer.next_hop, ip, ports, pieces);
        now = now_ns();
    } while (error == -FI_EAGAIN && now - start < kPatience);
    return error;
}

int UdpSender::write(inet::Nanos recent, const Peer &peer, const inet::IpOut &ip, inet::UdpPorts ports,
                     std::span<inet::Bytes> pieces) noexcept
{
    int error = port_context_.net_if().write_datagram(recent, peer.next_hop, ip, ports, pieces);
    if (error == -FI_EAGAIN) [[unlikely]]
        error = write_behind(peer, ip, ports, pieces);
    if (error == 0)
        static_cast<void>(port_context_.net_if().send_datagrams());
    return error;
}

ssize_t UdpSender::send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept
{
    return send_from({address_of(to.source), ntohs(to.source_port)}, parts, to);
}

ssize_t UdpSender::send_from(const inet::Endpoint &local, std::span<const iovec> parts,
                             const fi_vma_udp_to &to) noexcept
{
    if (parts.size() > kMostParts) [[unlikely]]
        return -FI_EMSGSIZE;
    std::size_t length = 0;
    std::array<inet::Bytes, 1 + kMostParts> pieces;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (__builtin_add_overflow(length, parts[i].iov_len, &length)) [[unlikely]]
            return -FI_EMSGSIZE;
        pieces[1 + i] = {static_cast<const std::uint8_t *>(parts[i].iov_base), parts[i].iov_len};
    }
    const core::SpinGuard guard(port_context_.lock());
    const inet::Nanos recent = port_context_.net_if().recent(); // exact enough for what is remembered of next hops
    const Peer &peer = peer_of(recent, local.address, address_of(to.address));
    if (peer.error != 0) [[unlikely]]
        return peer.error;
    const inet::NextHop &next_hop = port_context_.tcp().next_hops()[peer.next_hop];
    if (!next_hop.ready) [[unlikely]]
        return -FI_EAGAIN;
    if (length + inet::kUdpHeader + inet::ip_header_size(peer.remote) > next_hop.mtu) [[unlikely]]
        return -FI_EMSGSIZE;
    inet::IpOut ip;
    ip.source = peer.source;
    ip.target = peer.remote;
    ip.protocol = inet::Protocol::kUdp;
    ip.traffic_class = to.traffic_class;
    ip.hop_limit = to.hop_limit;
    const int error = write(recent, peer, ip, {local.port, ntohs(to.port)}, {pieces.data(), 1 + parts.size()});
    return error != 0 ? error : static_cast<ssize_t>(length);
}

} // namespace vma::ether
