// SPDX-License-Identifier: BSD-2-Clause
// The whole stack of one port: frames in, frames out, TCP and UDP between them. It owns the layers and hands packets
// from one to the next; what a program does with a connection or a socket it does with tcp() and udp() directly.
//
// Not thread-safe, as nothing in inet is. All memory is allocated by the constructor.
#pragma once

#include <array>
#include <span>

#include "prov/vma/src/inet/base/path_mtu.hpp"
#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/src/inet/udp/header.hpp"
#include "prov/vma/src/inet/udp/table.hpp"
#include "prov/vma/src/inet/wire/ethernet.hpp"
#include "prov/vma/src/inet/wire/fragment.hpp"
#include "prov/vma/src/inet/wire/frame.hpp"
#include "prov/vma/src/inet/wire/icmp.hpp"
#include "prov/vma/src/inet/wire/reassembly.hpp"

namespace vma::inet {

struct StackOptions {
    Mac mac;                  // of the port
    std::uint16_t mtu = 1500; // of the link
    HashKey secret{};         // random
    TcpLimits tcp;
    UdpTable::Limits udp;
    std::uint32_t udp_blocks = 4096; // of 2 KiB, for datagrams that wait to be read
    std::uint32_t datagrams = 64;    // that can be incomplete at a time: 64 KiB of address space each
    std::uint32_t path_mtus = 1024;  // peers whose path MTU is remembered
};

struct StackCounters {
    std::array<std::uint64_t, kParsedKinds> parsed{};   // frames, by Parsed
    std::array<std::uint64_t, kIcmpParsedKinds> icmp{}; // by IcmpParsed
    std::uint64_t other_protocols = 0;
    std::uint64_t too_big_ignored = 0; // ICMP that TCP did not believe
};

class Stack
{
public:
    Stack(const StackOptions &options, Nanos start);

    // ---- frames
    void input(Nanos now, std::span<const std::uint8_t> frame, const FrameInfo &info = {});
    // The same for one of a batch, after all of which flush() is called, before anything else: TCP segments that
    // continue one another are taken as one (generic receive offload). The frames stay as they are until then.
    void gather(Nanos now, std::span<const std::uint8_t> frame, const FrameInfo &info = {});
    void flush(Nanos now) { tcp_.flush(now); }

    // What the device does with frames to be sent; at first nothing.
    void set_offloads(const SendOffloads &offloads);
    // Writes the next frame that TCP has to send. `out`: room for kMaxEthernetHeader and the MTU. Its bytes; 0: nothing
    // now. The first of them is for a device without offloads alone.
    std::size_t output(Nanos now, std::span<std::uint8_t> out);
    std::size_t output(Nanos now, std::span<std::uint8_t> out, FrameWork &work);
    bool wants_output() const { return tcp_.wants_output(); }

    Nanos deadline() const;
    void advance(Nanos now);

    // ---- next hops, as data from outside. One that is used and not known, or known from a packet only, is wanted.
    NextHopIndex
    use_next_hop(Nanos now, const IpAddress &remote); // kNoNextHop: too many; release with tcp().next_hops().release()
    bool next_wanted(IpAddress &remote);
    bool wants_next_hops() const { return tcp_.next_hops().has_wanted(); } // next_wanted() has one to tell, perhaps
    void fail_next_hop(Nanos now, const IpAddress &remote); // its next hop is asked after, and does not answer
    void set_next_hop(Nanos now, const IpAddress &remote, const Mac &mac, std::uint16_t vlan, std::uint16_t link_mtu);

    // Ethernet and IP header towards a peer whose next hop is used and ready; 0: it is not. `out`: room for the
    // longest.
    std::size_t headers(const IpOut &ip, std::size_t payload, std::uint8_t *out);

    // ---- UDP
    //
    // The frames of one datagram, to be written one after the other. The next hop is ready; `parts` begins with a
    // header by udp_header(), and lives as long as what is returned.
    Fragmenter datagram(Nanos now, NextHopIndex next_hop, const IpOut &ip, std::span<const Bytes> parts);
    // The header of that datagram, which may leave its sum to the device if it is one frame.
    std::array<std::uint8_t, kUdpHeader> datagram_header(const Fragmenter &frames, const IpOut &ip, UdpPorts ports,
                                                         std::span<const Bytes> data, FrameWork &work) const;

    Tcp &tcp() { return tcp_; }
    UdpTable &udp() { return udp_; }
    const StackCounters &counters() const { return counters_; }
    const Reassembler::Counters &reassembly() const { return reassembler_.counters(); }

private:
    Parsed read(std::span<const std::uint8_t> frame, const FrameInfo &info, Packet &packet, FragmentInfo &fragment);
    void join(Nanos now, const Packet &packet, const FragmentInfo &fragment);
    void take(Nanos now, const Packet &packet);
    void take_icmp(Nanos now, const Packet &packet);
    std::uint16_t mtu_to(const IpAddress &remote, Nanos now) const;

    const Mac mac_;
    std::uint16_t mtu_;
    const HashKey secret_;
    Tcp tcp_;
    BlockPool udp_blocks_;
    UdpTable udp_;
    Reassembler reassembler_;
    PathMtus path_mtus_;
    FragmentIds ids_;
    SendOffloads offloads_;
    StackCounters counters_;
};

} // namespace vma::inet
