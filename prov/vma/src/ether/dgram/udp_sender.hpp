// SPDX-License-Identifier: BSD-2-Clause
// What leaves by a NIC for UDP sockets of the kernel's, in one frame each. Alone it is the sender that all sockets of a
// process share for groups; a UdpTap is one, too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <rdma/fi_ext_vma.h>
#include <sys/uio.h>

#include "ether/fabric.hpp"
#include "inet/base/next_hops.hpp"
#include "inet/udp/header.hpp"

namespace vma::ether {

class UdpSender
{
public:
    // `sets`: of peers that are remembered, kWays each; a power of two.
    UdpSender(ofi::Domain &owner, std::uint32_t sets) noexcept;
    virtual ~UdpSender() = default;
    UdpSender(const UdpSender &) = delete;
    UdpSender &operator=(const UdpSender &) = delete;

    bool has_room() const noexcept { return peers_ != nullptr; } // false: no memory

    // Each takes the port context's lock; results as fi_ext_vma.h says.
    virtual ssize_t send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept;
    virtual void close() noexcept;
    int drain() noexcept;

    ofi::Domain &domain() const noexcept { return domain_; }

protected:
    ssize_t send_from(const inet::Endpoint &local, std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept;
    void forget_peers() noexcept; // port context's lock held

    ofi::Domain &domain_;
    PortContext &port_context_;

private:
    static constexpr std::size_t kWays = 4;

    // As a peer was last found; its set is its address' hash.
    struct Peer {
        inet::IpAddress remote;
        inet::IpAddress local; // for which it was looked for
        inet::IpAddress source;
        inet::NextHopIndex next_hop = inet::kNoNextHop;
        std::uint64_t generation = 0; // of the network's configuration
        int error = 0;
        inet::Nanos until = 0; // that the error holds
    };

    Peer &peer_of(inet::Nanos now, const inet::IpAddress &local, const inet::IpAddress &remote) noexcept;
    void find(inet::Nanos now, const inet::IpAddress &local, const inet::IpAddress &remote, Peer &peer) noexcept;
    void forget(Peer &peer) noexcept;
    int write(inet::Nanos recent, const Peer &peer, const inet::IpOut &ip, inet::UdpPorts ports,
              std::span<inet::Bytes> pieces) noexcept;
    int write_behind(const Peer &peer, const inet::IpOut &ip, inet::UdpPorts ports,
                     std::span<inet::Bytes> pieces) noexcept;

    // Protected by the port context's lock.
    const std::uint32_t sets_;
    std::uint32_t next_ = 0; // place in a set that is given up
    std::unique_ptr<Peer[]> peers_;
};

} // namespace vma::ether
