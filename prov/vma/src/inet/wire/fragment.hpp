// SPDX-License-Identifier: BSD-2-Clause
// A datagram cut into as many frames as its path's MTU asks for: RFC 791, 3.2 and RFC 8200, 4.5. Frames are written one
// at a time into the caller's memory, so none is held here.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "prov/vma/src/inet/wire/ethernet.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

// The frames of one datagram, in order; one frame without any sign of fragments if that is enough. The parts and what
// they point to stay as they are meanwhile.
class Fragmenter
{
public:
    // `parts`: the transport's header and data, in order, 65,535 bytes at most with the IP header (IPv6: without).
    // `mtu`: of the path, with the IP header: at least 68 for IPv4, 1,280 for IPv6. `id`: FragmentIds'; IPv4 takes 16
    // bits of it, and none if one frame is enough. `ip.dont_fragment` holds for one frame only: who may not fragment
    // doesn't come here with more.
    Fragmenter(const L2 &l2, const IpOut &ip, std::span<const Bytes> parts, std::uint32_t mtu, std::uint32_t id);

    // Writes the next frame and returns its bytes, 0: there is none left. `out`: room for kMaxEthernetHeader + mtu.
    std::size_t next(std::uint8_t *out);

    std::size_t frames() const // in all
    {
        const std::size_t step = largest_ & ~std::size_t{7};
        return total_ <= single_ ? 1 : 1 + (total_ - largest_ + step - 1) / step;
    }

    std::size_t headers() const // bytes before the transport's, in a frame that is no fragment
    {
        return ethernet_header_size(l2_.vlan) + ip_header_size(ip_.target);
    }

private:
    void copy_next(std::uint8_t *out, std::size_t length);

    const L2 l2_;
    const IpOut ip_;
    const std::span<const Bytes> parts_;
    const std::uint32_t id_;
    std::size_t total_ = 0;
    std::size_t single_ = 0;  // bytes that a frame holds which is no fragment
    std::size_t largest_ = 0; // bytes that a last fragment holds at most; the others, rounded down to a multiple of 8
    std::size_t sent_ = 0;
    std::size_t part_ = 0; // the next byte to be copied
    std::size_t part_at_ = 0;
    bool done_ = false;
};

// Ids that nobody can foresee and that don't come again soon between two hosts: RFC 7739, 5.3, which serves IPv4 as
// well (RFC 6864, 4.2).
class FragmentIds
{
public:
    // `hash`: of source, target and protocol, with a secret key (SipHash).
    std::uint32_t next(std::uint64_t hash) { return static_cast<std::uint32_t>(hash) + counters_[hash >> 56]++; }

private:
    std::array<std::uint32_t, 256> counters_{};
};

} // namespace vma::inet
