// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint (FI_EP_DGRAM): a ring (outlet) to each endpoint that it sends to, groups, a rate limit, and
// receives, besides what each RingEndpoint has. doc/local-device.md tells how they find each other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "local/pacing.hpp"
#include "local/ring/endpoint.hpp"
#include "local/ring/inlet.hpp"
#include "local/ring/outlet.hpp"
#include "local/rxqueue.hpp"
#include "ofi/domain.hpp"
#include "rdma/fi_ext_vma.h"
#include "vma/pacer.hpp"

namespace vma::local {

class DatagramEndpoint;

// What fi_join() made: an endpoint in a group, as a receiver, or only to send to it.
struct Membership {
    fid_mc fid{}; // first
    DatagramEndpoint *endpoint = nullptr;
    ofi::Address group;
    bool receives = false;
    // Whom a datagram to the group goes to; protected by the endpoint's sending lock.
    std::vector<Outlet *> members;
    std::int64_t looked_at = 0; // ns
    std::int64_t changed = 0;   // the directory, as it was looked at
    bool settled = false;       // and nothing can have changed since without a trace
};

// What a call sends.
struct Datagram {
    const iovec *iov;
    std::size_t count;
    const std::uint64_t *data; // FI_REMOTE_CQ_DATA, or nullptr
    fi_addr_t to;
    void *context;
    bool completion;
    bool tell = false;      // FI_VMA_TELL_DROP
    bool only_ring = false; // FI_VMA_TRY
};

class DatagramEndpoint final : public RingEndpoint
{
public:
    DatagramEndpoint(ofi::Domain &domain, const fi_info &info) noexcept;
    ~DatagramEndpoint();
    static DatagramEndpoint &from(struct fid *fid) noexcept
    {
        return static_cast<DatagramEndpoint &>(RingEndpoint::from(fid));
    }
    static DatagramEndpoint &from(fid_ep *fid) noexcept { return from(&fid->fid); }

    // The calls of the fi_ops tables.
    int set_option(int name, const void *value, std::size_t length) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    ssize_t post(const iovec *iov, std::size_t count, void *context, std::uint64_t flags) noexcept;
    ssize_t cancel(void *context) noexcept;
    ssize_t send(const Datagram &datagram) noexcept;
    std::size_t receives_left() noexcept { return receives_ ? receives_->left() : 0; }

    // Groups (group.cpp).
    int join(const ofi::Address &group, std::uint64_t flags, fid_mc **mc, void *context) noexcept;
    void leave(Membership &membership) noexcept;
    bool in_groups() const noexcept;

    // For inlets.
    bool is_member(const ofi::Address &group) const noexcept override;
    // As far as receives are posted and the queue has room, or as the program's taker likes.
    Took take(Inlet &inlet, KeptRing &ring, const Arrived &arrived) noexcept override;

private:
    int prepare() noexcept override;
    void left(Inlet &inlet) noexcept override;
    Outlet *outlet_of(fi_addr_t to) noexcept;
    Outlet *new_outlet(fi_addr_t to) noexcept;
    Membership *membership_of(fi_addr_t to) const noexcept;
    void find_members(Membership &group) noexcept;
    ssize_t send_locked(const Datagram &datagram, std::size_t length, Bell &bell) noexcept;
    ssize_t send_or_tell(Outlet &outlet, const Datagram &datagram, std::size_t length, Bell &bell) noexcept;
    bool is_due(std::size_t length) noexcept;
    int open_timer() noexcept;
    int set_limit(const void *value, std::size_t length) noexcept;
    int meet(const void *value, std::size_t length) noexcept;
    int warm(const void *value, std::size_t length) noexcept;
    void push_sent(const Datagram &datagram, std::size_t length) noexcept;
    bool write(Outlet &outlet, const Datagram &datagram, std::size_t length, Bell &bell) noexcept;
    void write_and_tell(Outlet *outlet, Membership *group, const Datagram &datagram, std::size_t length,
                        Bell &bell) noexcept;
    // With the queue's lock held.
    bool has_taker() const noexcept { return taker_.take != nullptr || taker_.keep != nullptr; }
    // The program's own function. False: it wants it later.
    bool offer(KeptRing &ring, const Arrived &arrived) noexcept;
    // False: there is none, and all inlets are visited once there is.
    bool take_receive(RxEntry &entry) noexcept;
    void deliver(Inlet &inlet, const Arrived &arrived, const RxEntry &entry) noexcept;

    // What fi_send() looks at, besides what the base has last.
    struct Place {
        std::uint32_t generation = 0; // of the address vector's
        Outlet *outlet = nullptr;
    };
    std::vector<Place> places_;  // by fi_addr_t
    bool paced_ = false;         // there is a rate limit
    bool source_errors_ = false; // FI_SOURCE_ERR
    std::uint64_t tx_dropped_ = 0;
    Pacer pacer_;
    std::uint64_t held_until_ = 0; // ns: when what was refused is due; 0: nothing was
    PacedTimer timer_;

    std::unique_ptr<RxQueue> receives_; // unless there is a taker
    fi_vma_taker taker_{};
    std::uint64_t rx_dropped_ = 0; // of inlets that are gone, protected by the queue's lock

    std::map<std::string, std::unique_ptr<Outlet>> outlets_; // by destination; protected by lock_
    std::vector<std::unique_ptr<Membership>> groups_;        // changed with both the CM lock and lock_ held; holes stay
    std::size_t rx_size_;
};

int open_datagram_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;

} // namespace vma::local
