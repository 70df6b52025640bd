// SPDX-License-Identifier: BSD-2-Clause
// FI_VMA_UDP_OPS: a port's part of a UDP socket of the kernel's. Datagrams that come by the port are given away as they are parsed, in the
// frame; those to be sent leave in one frame each.
#pragma once

#include <array>
#include <span>

#include <rdma/fi_ext_vma.h>
#include <sys/uio.h>

#include "ether/ports.hpp"
#include "inet/udp_table.hpp"

namespace vma::ether {

extern fi_ops_vma_udp udp_ops;

class UdpTap final : public inet::UdpTaker
{
public:
    using Take = void (*)(void *context, const fi_vma_datagram *datagram);

    UdpTap(ofi::Domain &owner, Take taker, void *context) noexcept
        : domain_(owner), station_(station_of(owner)), take_(taker), context_(context)
    {
    }

    // Each takes the station's lock; 0 or as fi_ext_vma.h says.
    int open(int fd) noexcept;
    ssize_t send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept;
    void close() noexcept;

    ofi::Domain &domain() const noexcept { return domain_; }
    void take(const inet::DatagramInfo &info, inet::Bytes data) noexcept override;

private:
    static constexpr std::size_t kPeers = 64;

    // As a peer was last found; the place is its address' hash.
    struct Peer {
        inet::IpAddress remote;
        inet::IpAddress source;
        inet::PathIndex path = inet::kNoPath;
        std::uint64_t generation = 0; // of the network's configuration
        int error = 0;
        inet::Nanos until = 0; // that the error holds
    };

    int read_flow(int fd) noexcept;
    int steer() noexcept;
    Peer &peer_of(inet::Nanos now, const inet::IpAddress &remote) noexcept;
    void find(inet::Nanos now, const inet::IpAddress &remote, Peer &peer) noexcept;
    void forget(Peer &peer) noexcept;

    ofi::Domain &domain_;
    Station &station_;
    const Take take_;
    void *const context_;
    // Protected by the station's lock.
    inet::UdpSocketId socket_ = inet::kNoUdpSocket;
    inet::Flow flow_; // remote port 0: of any peer
    Vlans vlans_;
    bool other_family_ = false; // :: hears IPv4, too: that flow is a second one
    std::array<Peer, kPeers> peers_;
};

} // namespace vma::ether
