// SPDX-License-Identifier: BSD-2-Clause
// The way of a reliable-datagram endpoint to peers on other hosts: an endpoint of another of libfabric's providers
// (ofi_rxm over our RDMA devices, else over TCP) that carries the packets which within a host go through rings. Nothing
// in here knows what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "core/fd.hpp"
#include "ofi/address.hpp"
#include "rdm/network_watch.hpp"
#include "rdm/packet.hpp"

namespace vma::rdm {

struct NetworkPeer;
struct Peer;

// Before each packet. It says all that has to be known of its sender, so that none has to have come before. A
// connection may be lost on the way, and made anew by the provider, without a word: so packets are counted. All numbers
// are in the byte order of x86-64 and of AArch64; a host of the other one is not understood.
struct NetworkHead {
    std::uint32_t magic;
    std::uint32_t epoch; // of the sender's towards the receiver; the packets of each are counted from 0
    std::uint32_t number;
    std::uint16_t flags;   // kNetworkData
    std::uint16_t family;  // 4 or 6
    std::uint8_t host[16]; // the first four of them where the family is 4
    std::uint64_t sender;  // the number that the sending endpoint has given itself
    std::uint64_t to;      // the same of the receiver; 0: it has not said
    std::uint64_t data;    // FI_REMOTE_CQ_DATA
    std::uint16_t port;
    std::uint16_t unused[3];
};
static_assert(sizeof(NetworkHead) == 64);
inline constexpr std::uint32_t kNetworkMagic = 0x564d4e31; // "VMN1"
inline constexpr std::uint16_t kNetworkData = 1;           // there is data

void set_name(NetworkHead &head, const ofi::Address &name) noexcept;
// False: it can't be anybody's.
bool name_in(const NetworkHead &head, ofi::Address &name) noexcept;

struct NetworkBuffer {
    fi_context2 context{}; // first: the provider's own, and what its completions name
    NetworkBuffer *next = nullptr;
    NetworkPeer *to = nullptr; // nullptr: it receives
    std::uint32_t epoch = 0;   // of the peer, when it was sent
    bool counted = false;      // of one that has come: it is the one that was to come next
    std::size_t length = 0;    // bytes, head and packet
    alignas(64) std::byte bytes[(sizeof(NetworkHead) + kLongestPacket + 63) / 64 * 64];

    std::byte *packet() noexcept { return bytes + sizeof(NetworkHead); }
};

struct NetworkBuffers {
    NetworkBuffer *first = nullptr;
    NetworkBuffer *last = nullptr;
    bool empty() const noexcept { return first == nullptr; }
    void push(NetworkBuffer &buffer) noexcept;
    NetworkBuffer *pop() noexcept; // nullptr: there is none
};

class Network
{
public:
    // `local` is what others know us by, with its port. nullptr: there is no other provider that reaches beyond this
    // host from there, or FI_VMA_NETWORK says that none is wanted; -FI_EADDRINUSE: another one has the port.
    static std::unique_ptr<Network> open(const ofi::Address &local, int &error) noexcept;
    Network(const Network &) = delete;
    Network &operator=(const Network &) = delete;
    ~Network();

    const ofi::Address &name() const noexcept { return name_; }
    std::uint64_t id() const noexcept { return id_; }
    const char *provider() const noexcept;

    // All below with the endpoint's lock held.

    // nullptr: without memory, or the provider doesn't take the address.
    std::unique_ptr<NetworkPeer> meet(const ofi::Address &address, Peer &peer) noexcept;
    // Where the next packet to the peer is to be written; nullptr: not now.
    std::byte *claim(NetworkPeer &to) noexcept;
    // What was claimed is sent, now or by progress().
    void publish(NetworkPeer &to, std::size_t length, bool has_data, std::uint64_t data) noexcept;
    // What is still to be sent to it is dropped, and errors of what was sent are none any more.
    void forget(NetworkPeer &to) noexcept;

    // Sends what waits, and takes in what came. Whether there was anything.
    bool progress() noexcept;
    // The packet that came first, until pop(). nullptr: none.
    NetworkBuffer *front() noexcept { return arrived_.first; }
    void pop() noexcept;
    // One whose packets can't be delivered, since it was met or forgotten; nullptr: none.
    NetworkPeer *take_lost() noexcept;
    // Until what was given to the provider has left, or a second has gone by without any of it having: before the
    // endpoint is closed.
    void drain() noexcept;

    // Whether there is nothing to do before wait_fd() is readable. `waits`: somebody waits for an answer, and comes
    // again after kSilence.
    bool may_sleep(bool waits) noexcept;
    int wait_fd() const noexcept { return wait_set_.get(); }

private:
    struct Close {
        void operator()(fid_fabric *object) const noexcept { fi_close(&object->fid); }
        void operator()(fid_domain *object) const noexcept { fi_close(&object->fid); }
        void operator()(fid_cq *object) const noexcept { fi_close(&object->fid); }
        void operator()(fid_av *object) const noexcept { fi_close(&object->fid); }
        void operator()(fid_ep *object) const noexcept { fi_close(&object->fid); }
    };

    Network() noexcept = default;
    int open_objects(fi_info &info) noexcept;
    int open_wait_set() noexcept;
    int make_buffers() noexcept;
    void receive_into(NetworkBuffer &buffer) noexcept;
    bool try_send(NetworkBuffer &buffer) noexcept;
    bool send_waiting() noexcept;
    void send_waiting_to(NetworkPeer &peer) noexcept;
    void ask_for(NetworkPeer &peer) noexcept;
    bool read_completions() noexcept;
    void read_error() noexcept;
    void take(NetworkBuffer &buffer, std::size_t length) noexcept;
    void lose(NetworkPeer &peer) noexcept;

    std::uint64_t id_ = 0;
    NetworkHead head_{}; // what all packets of ours begin with
    ofi::Address name_;
    fi_info *info_ = nullptr;
    std::unique_ptr<fid_fabric, Close> fabric_;
    std::unique_ptr<fid_domain, Close> domain_;
    std::unique_ptr<fid_cq, Close> cq_;
    std::unique_ptr<fid_av, Close> av_;
    std::unique_ptr<fid_ep, Close> ep_;
    std::unique_ptr<NetworkBuffer[]> buffers_;
    core::UniqueFd presence_; // that shows others that we are there
    core::UniqueFd wait_set_; // the provider's descriptor, and the alarm's
    Alarm alarm_;
    NetworkBuffers free_;                // to send
    NetworkBuffers arrived_;             // in order
    NetworkBuffers unposted_;            // the provider had no room for them
    std::vector<NetworkPeer *> waiting_; // that have something to be sent
    std::vector<NetworkPeer *> lost_;
    std::size_t in_flight_ = 0; // sends that have not completed
};

// Of a peer, what it is to the network.
struct NetworkPeer {
    Network &network;
    Peer &peer;
    ofi::Address name;
    fi_addr_t address = FI_ADDR_NOTAVAIL; // in the network's address vector
    std::uint64_t id = 0;                 // that it has given itself; 0: it has not said
    std::uint32_t epoch = 1;              // goes up when it is forgotten
    std::uint32_t sent = 0;               // packets of the epoch
    std::uint32_t left = 0;               // of them, those that the provider has no more to do with
    std::uint32_t its_epoch = 0;          // of the packets that come from it; 0: none has come
    std::uint32_t taken = 0;              // packets of that
    bool broken = false;                  // some of them are missing
    bool lost = false;
    NetworkBuffers unsent;
    std::size_t in_flight = 0;     // sends of this peer's that have not completed
    std::uint64_t waits_since = 0; // ns; 0: nothing is unsent
    std::uint64_t lost_at = 0;     // ns; 0: never, or it has said hello since
    Probe probe;
    std::uint32_t source_generation = 0; // of the program's address vector, for `source`
    fi_addr_t source = FI_ADDR_NOTAVAIL;

    NetworkPeer(Network &owner, Peer &of) noexcept : network(owner), peer(of) {}
};

} // namespace vma::rdm
