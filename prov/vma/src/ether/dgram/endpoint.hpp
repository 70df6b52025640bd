// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_DGRAM over an Ethernet NIC: plain UDP to and from any peer, and multicast groups on the wire. Datagrams wait in
// the stack until there is a posted receive; completions tell of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <sys/uio.h>

#include "core/fifo.hpp"
#include "ether/fabric.hpp"
#include "ether/queue.hpp"
#include "ofi/av.hpp"
#include "ofi/info/attr.hpp"

namespace vma::ether {

// What fi_join() made: the endpoint in a group, as a receiver, or only to send to it.
struct Membership {
    fid_mc fid{}; // first
    Datagrams *endpoint = nullptr;
    inet::Endpoint group;
    bool receives = false;
};

class Datagrams
{
public:
    // `fid` is first: libfabric's pointer is to it, so the object is found from it by from().
    struct Handle {
        fid_ep fid{};
        Datagrams *self = nullptr;
    } handle;

    Datagrams(ofi::Domain &domain, const fi_info &info) noexcept;
    static Datagrams &from(struct fid *fid) noexcept { return *reinterpret_cast<Handle *>(fid)->self; }
    static Datagrams &from(fid_ep *fid) noexcept { return from(&fid->fid); }

    struct Outgoing {
        std::span<const iovec> parts;
        fi_addr_t to;
        void *context;
        bool completion;
    };

    // The calls; each takes the port context's lock.
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int set_name(const ofi::Address &wanted) noexcept;
    int get_name(void *address, std::size_t *length) noexcept;
    ssize_t send(const Outgoing &datagram) noexcept;
    ssize_t post(std::span<const iovec> parts, void *context, bool completion) noexcept;
    ssize_t cancel(void *context) noexcept;
    int join(const ofi::Address &group, std::uint64_t flags, fid_mc **mc, void *context) noexcept;
    void leave(Membership &membership) noexcept;
    int close() noexcept; // 0, or -FI_EBUSY: it is in groups
    std::size_t receives_left() noexcept;
    std::uint64_t dropped() noexcept; // for want of room

    // Flags of calls without flags say whether completions are wanted.
    bool wants_tx_completion(std::uint64_t flags) const noexcept { return !tx_selective_ || (flags & FI_COMPLETION); }
    bool wants_rx_completion(std::uint64_t flags) const noexcept { return !rx_selective_ || (flags & FI_COMPLETION); }
    ofi::Domain &domain() const noexcept { return domain_; }
    const ofi::AddressFormat &format() const noexcept { return format_; }
    bool enabled() const noexcept { return enabled_; }

    // For the port context, with its lock held.
    void take_arrived() noexcept;
    void read_kernel_sockets() noexcept; // fragments come by the kernel

    std::uint64_t tx_flags = 0; // of the calls that don't carry flags
    std::uint64_t rx_flags = 0;

private:
    // A peer or a group, as it was last found.
    struct Peer {
        std::uint32_t generation = 0; // of the address vector's place
        inet::Endpoint remote;
        inet::IpAddress source;
        inet::NextHopIndex next_hop = inet::kNoNextHop;
        inet::Nanos since = 0; // that its next hop is being found out
    };
    // Where datagrams come from: the endpoint's own address, or a group.
    struct Source {
        inet::Endpoint local;
        inet::UdpSocketId socket = inet::kNoUdpSocket;
        int kernel_socket = -1; // the port context's
    };
    struct Receive {
        iovec parts[ofi::kIovLimit];
        std::uint32_t count;
        bool completion;
        void *context;
    };

    int take_port() noexcept;
    Peer *peer_of(fi_addr_t to, int &error) noexcept;
    int find_peer(fi_addr_t to, Peer &peer) noexcept;
    int check_next_hop(inet::Nanos now, Peer &peer) noexcept;
    void forget(Peer &peer) noexcept;
    ofi::Completion entry_of(void *context, std::uint64_t which) const noexcept;
    void complete(const Receive &receive, std::size_t copied, std::size_t length,
                  const inet::Endpoint &source) noexcept;
    fi_addr_t place_of(const inet::Endpoint &source) noexcept;
    int open_source(const inet::Endpoint &local) noexcept;
    void close_source(const inet::Endpoint &local) noexcept;
    int join_to_receive(const inet::Endpoint &group) noexcept;
    void take_from_kernel(const Source &source) noexcept;

    ofi::Domain &domain_;
    PortContext &port_context_;
    // Protected by the port context's lock.
    ofi::Av *av_ = nullptr;
    Queue *tx_queue_ = nullptr;
    Queue *rx_queue_ = nullptr;
    bool tx_selective_ = false;
    bool rx_selective_ = false;
    bool tells_sources_ = false; // FI_SOURCE
    bool enabled_ = false;
    bool reserved_ = false;
    inet::Endpoint local_;
    const ofi::AddressFormat format_;
    std::vector<Source> sources_; // its own first
    core::Fifo<Receive> receives_;
    std::vector<Peer> peers_;                         // by place in the address vector
    std::vector<std::unique_ptr<Membership>> groups_; // by number
    std::vector<Peer> group_peers_;                   // of each
    inet::Endpoint last_source_;
    fi_addr_t last_place_ = FI_ADDR_NOTAVAIL;
    std::uint32_t last_generation_ = 0;
};

int open_datagrams(ofi::Domain &domain, const fi_info &info, fid_ep **ep, void *context) noexcept;

// calls.cpp
void set_datagram_calls(fid_ep &fid) noexcept;
void set_membership_calls(fid_mc &fid) noexcept;

} // namespace vma::ether
