// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint (FI_EP_DGRAM): a name in the user's directory, a ring (outlet) to each endpoint that it sends to,
// and the rings (inlets) of those that send to it. doc/local-device.md tells how they find each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "core/spinlock.hpp"
#include "local/directory.hpp"
#include "local/event_source.hpp"
#include "local/inlet.hpp"
#include "local/outlet.hpp"
#include "local/pacing.hpp"
#include "local/queue.hpp"
#include "local/rxqueue.hpp"
#include "ofi/domain.hpp"
#include "rdma/fi_ext_vma.h"
#include "vma/pacer.hpp"

namespace vma::ofi {
struct Av;
struct Eq;
} // namespace vma::ofi

namespace vma::local {

class ConnectionManager;
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

class DatagramEndpoint final : public EventSource, public BellHandler
{
public:
    // `fid` is first: libfabric's pointer is to it, so the object is found from it by from().
    struct Handle {
        fid_ep fid{};
        DatagramEndpoint *self = nullptr;
    } handle;

    DatagramEndpoint(ofi::Domain &domain, const fi_info &info) noexcept;
    ~DatagramEndpoint();
    static DatagramEndpoint &from(struct fid *fid) noexcept { return *reinterpret_cast<Handle *>(fid)->self; }
    static DatagramEndpoint &from(fid_ep *fid) noexcept { return from(&fid->fid); }

    // The calls of the fi_ops tables.
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    // An address with a port is taken at once, one without when the endpoint is enabled.
    int propose_name(const ofi::Address &wanted) noexcept;
    int set_name(const ofi::Address &wanted) noexcept;
    int get_name(void *addr, std::size_t *length) noexcept;
    int enable() noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    ssize_t post(const iovec *iov, std::size_t count, void *context, std::uint64_t flags) noexcept;
    ssize_t cancel(void *context) noexcept;
    ssize_t send(const Datagram &datagram) noexcept;
    bool wants_tx_completion(std::uint64_t flags) const noexcept { return !tx_selective_ || (flags & FI_COMPLETION); }
    std::size_t receives_left() noexcept { return receives_ ? receives_->left() : 0; }
    bool enabled() const noexcept { return enabled_; }

    // Groups (dgram_group.cpp).
    int join(const ofi::Address &group, std::uint64_t flags, fid_mc **mc, void *context) noexcept;
    void leave(Membership &membership) noexcept;
    bool in_groups() const noexcept;

    // For inlets.
    ConnectionManager &manager() const noexcept { return manager_; }
    ofi::Domain &domain() const noexcept { return domain_; }
    ofi::Av &av() const noexcept { return *av_; }
    Queue &rx_queue() const noexcept { return *rx_queue_; }
    bool accepts(const ofi::Address &destination) const noexcept;
    bool is_member(const ofi::Address &group) const noexcept;
    // With the CM lock held: its ring has come, or never will.
    void arrived(Inlet &inlet) noexcept;
    void refuse(Inlet &inlet) noexcept;
    // Somebody came or went: whoever reads the queue sees to it. Any lock may be held.
    void attend_soon() noexcept;
    // With the queue's lock held.
    bool has_taker() const noexcept { return taker_.take != nullptr || taker_.keep != nullptr; }
    // The program's own function. False: it wants it later.
    bool offer(KeptRing &ring, const Arrived &arrived) noexcept;
    // False: there is none, and all inlets are visited once there is.
    bool take_receive(RxEntry &entry) noexcept;
    void deliver(Inlet &inlet, const Arrived &arrived, const RxEntry &entry) noexcept;
    void cut(Inlet &inlet) noexcept;

    void on_ready(std::uint32_t events) noexcept override; // a new sender
    void on_bell() noexcept override;                      // attend_soon() was called

    std::uint64_t tx_flags = 0; // of the calls that don't carry flags
    std::uint64_t rx_flags = 0;

private:
    int join_queues() noexcept;
    int take_name(const ofi::Address &wanted) noexcept;
    void leave_queues() noexcept;
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
    [[gnu::cold]] void welcome() noexcept;
    void retire(Inlet &inlet) noexcept;
    void free_retired() noexcept;

    // What fi_send() looks at.
    core::SpinLock lock_; // the sending half; before a queue's lock
    struct Place {
        std::uint32_t generation = 0; // of the address vector's
        Outlet *outlet = nullptr;
    };
    std::vector<Place> places_; // by fi_addr_t
    Queue *tx_queue_ = nullptr;
    ofi::Cntr *send_counter_ = nullptr;
    bool enabled_ = false;
    bool paced_ = false; // there is a rate limit
    bool tx_selective_ = false;
    bool rx_selective_ = false;
    bool source_errors_ = false;       // FI_SOURCE_ERR
    std::atomic<bool> stalled_{false}; // datagrams wait for a receive to be posted
    bool met_ = false;                 // an outlet has connected to an endpoint of this process
    std::uint64_t tx_dropped_ = 0;
    Pacer pacer_;
    std::uint64_t held_until_ = 0; // ns: when what was refused is due; 0: nothing was
    PacedTimer timer_;

    Queue *rx_queue_ = nullptr;
    ofi::Cntr *receive_counter_ = nullptr;
    std::unique_ptr<RxQueue> receives_; // unless there is a taker
    fi_vma_taker taker_{};
    Inlet *inlets_ = nullptr;                       // of the queue, protected by its lock
    std::uint64_t rx_dropped_ = 0;                  // of inlets that are gone; likewise
    std::atomic<Inlet *> arrivals_{nullptr};        // from CM to the queue
    std::atomic<Inlet *> retired_{nullptr};         // from the queue to CM
    std::vector<std::unique_ptr<Inlet>> strangers_; // that have not greeted, protected by the CM lock
    std::uint32_t bit_ = 0;                         // of attend_soon()

    ofi::Domain &domain_;
    ConnectionManager &manager_;
    std::shared_ptr<Directory> directory_;
    std::map<std::string, std::unique_ptr<Outlet>> outlets_; // by destination; protected by lock_
    std::vector<std::unique_ptr<Membership>> groups_;        // changed with both the CM lock and lock_ held; holes stay
    ofi::Av *av_ = nullptr;
    ofi::Eq *eq_ = nullptr;
    std::unique_ptr<Queue> hidden_queue_; // where only counters are bound
    ofi::Address local_;                  // protected by the CM lock until enabled
    PortName name_;
    std::size_t rx_size_;
};

int open_datagram_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;

} // namespace vma::local
