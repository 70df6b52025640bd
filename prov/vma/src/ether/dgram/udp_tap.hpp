// SPDX-License-Identifier: BSD-2-Clause
// FI_VMA_UDP_OPS: a NIC's part of a UDP socket of the kernel's. Datagrams that come by the NIC are given away as they
// are parsed, in the frame; those to be sent leave in one frame each.
#pragma once

#include <span>

#include <rdma/fi_ext_vma.h>
#include <sys/uio.h>

#include "ether/dgram/udp_sender.hpp"
#include "inet/udp/table.hpp"

namespace vma::ether {

extern fi_ops_vma_udp udp_ops;

class UdpTap final : public UdpSender, public inet::UdpTaker
{
public:
    using Take = int (*)(void *context, const fi_vma_datagram *datagram);

    UdpTap(ofi::Domain &owner, std::uint32_t flags, Take taker, void *context) noexcept;

    // Each takes the port context's lock; 0 or as fi_ext_vma.h says.
    int open(int fd) noexcept;
    ssize_t send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept override;
    void close() noexcept override;

    void take(const inet::DatagramInfo &info, inet::Bytes data) noexcept override;

private:
    int read_flow(int fd) noexcept;
    int steer() noexcept;
    // What take_group() says is all that it gets.
    bool hears_groups_only() const noexcept { return groups_only_ || flow_.local.address.is_multicast(); }

    const bool groups_only_;
    const Take take_;
    void *const context_;
    // Protected by the port context's lock.
    inet::UdpSocketId socket_ = inet::kNoUdpSocket;
    inet::Flow flow_; // remote port 0: of any peer
    Vlans vlans_;
    bool other_family_ = false; // :: hears IPv4, too: that flow is a second one
};

} // namespace vma::ether
