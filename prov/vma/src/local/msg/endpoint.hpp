// SPDX-License-Identifier: BSD-2-Clause
// A connected message endpoint of the local device: what libfabric's calls reach it through, what it is bound to, and
// the two halves that move data. Connection management (local/cm/ep_cm.cpp) joins it with a peer by make_offer() and
// attach().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "core/fd.hpp"
#include "local/cm/ep_cm.hpp"
#include "local/cm/link_peer.hpp"
#include "local/cm/offer.hpp"
#include "local/msg/receiver.hpp"
#include "local/msg/sender.hpp"
#include "local/queue.hpp"
#include "local/rxqueue.hpp"
#include "ofi/domain.hpp"
#include "ofi/memory/mr.hpp"

namespace vma::local {

struct SharedReceive;

class Endpoint
{
public:
    fid_ep fid{}; // first
    CmState cm;

    Endpoint(ofi::Domain &domain, const fi_info *info) noexcept;
    ~Endpoint();
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;

    static Endpoint &from(struct fid *fid) noexcept { return *reinterpret_cast<Endpoint *>(fid); }
    static Endpoint &from(fid_ep *fid) noexcept { return *reinterpret_cast<Endpoint *>(fid); }

    ofi::Domain &domain() const noexcept { return domain_; }
    void *context() const noexcept { return fid.fid.context; }
    bool enabled() const noexcept { return enabled_; }
    const CmaPeer &peer_memory() const noexcept { return peer_memory_; }
    ofi::MrTable &mrs() const noexcept { return *mrs_; }
    ofi::MrObserver &mr_observer() noexcept { return mr_observer_; }
    bool shares_receives() const noexcept { return shared_ != nullptr; }

    // What the peer needs to reach us. The descriptors are ours and live until release_offer(). After enable().
    // `guest_link`: the number of its link where the peer is another user's, who is `user`, else 0. `segments`: what
    // the link keeps. A descriptor of -1 is one that the peer has.
    int make_offer(EndpointOffer &offer, int fds[kOfferFdCount], std::uint64_t guest_link, uid_t user = 0,
                   const std::shared_ptr<LinkSegments> &segments = nullptr) noexcept;
    // The peer has them: a connection keeps no descriptor of its own.
    void release_offer() noexcept;
    // Joins us with the peer that made this offer. Nothing is changed when it fails.
    int attach(const EndpointOffer &offer, PeerParts parts, const LinkPeer &peer) noexcept;
    // The peer is gone or has said so: what it published is delivered, what is left over ends with errors.
    void on_peer_shutdown() noexcept;
    // We said so.
    void on_local_shutdown() noexcept;

    // The calls of the fi_ops tables.
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    ssize_t cancel(void *context) noexcept;

    // The peer broke the rules: reported to connection management when no lock is held. Any lock may be held now.
    void fail(const char *why) noexcept;
    // Makes the receiving queue look at us, and wakes it.
    void ring_self() noexcept;
    // Consumed slots whose writer wants to be told of it.
    void wake_writer() noexcept { peer_tx_doorbell_->wake_if_sleeping(); }

    // Whether a call with these flags makes a completion.
    bool wants_tx_completion(std::uint64_t flags) const noexcept { return !tx_selective_ || (flags & FI_COMPLETION); }
    bool wants_rx_completion(std::uint64_t flags) const noexcept { return !rx_selective_ || (flags & FI_COMPLETION); }
    // Whether error entries tell of operations without a completion that end with the connection. Without
    // FI_SELECTIVE_COMPLETION they were injected, have no context, and the program need not expect entries without one:
    // ofi_rxm follows nullptr.
    bool reports_silent_ends() const noexcept { return tx_selective_; }

    Receiver receiver;
    Sender sender;
    std::uint64_t tx_flags = 0; // of the calls that don't carry flags
    std::uint64_t rx_flags = 0;
    std::size_t inject_size = 0;

    // Links and states of the queues this endpoint is in.
    std::atomic<bool> stalled{false}; // waits for a receive to be posted; protected by RxQueue's lock
    Endpoint *stalled_next = nullptr; // likewise
    bool is_active = false;           // this and what follows is protected by receiver.queue->lock
    bool is_rung = false;             // in the queue's list of those that have rung
    bool rings_often = false;
    unsigned passed_at = 0; // the queue's read in which it could not go on
    Endpoint *passed_next = nullptr;
    unsigned consumed = 0;        // slots, in this lap of their ring
    std::uint64_t lap = 0;        // the stamp of its beginning
    std::uint64_t not_before = 0; // of the lap before: what is unread was published after it
    void (*report)(Endpoint &, const char *why) noexcept = cm_abort; // what to do then; without any lock
    std::atomic<bool> failing{false};                                // the peer broke the rules
    std::atomic<bool> attention{false}; // something of failing and ending is to be looked at
    std::atomic<int> ending{0};         // the error of operations that the peer did not take
    bool reported = false;              // that was put into the queue's `failed` list
    const char *failure = nullptr;
    Endpoint *failed_next = nullptr;
    std::uint32_t bit = 0;
    GuestDoorbell *guest = nullptr; // of its link, where the peer is another user's
    std::uint32_t guest_bit = 0;    // there

private:
    fi_vma_region own_region() const noexcept
    {
        return {region_bytes_ != 0 ? receiver.region : nullptr, region_bytes_, FI_VMA_REGION_KEY};
    }
    friend struct Queue;
    int use_guest_doorbell(std::uint64_t guest_link, uid_t user) noexcept;
    int check_offer(const EndpointOffer &peer) const noexcept;
    int open_timer() noexcept;
    int set_limit(const void *value, std::size_t length) noexcept;
    int warm(const void *value, std::size_t length) noexcept;
    int give_view(void *value, std::size_t *length) noexcept;
    int discard(const void *value, std::size_t length) noexcept;
    int cut() noexcept;
    void for_counters(void (ofi::Cntr::*action)(const ofi::ProgressSource &) noexcept) noexcept;
    void end(int error) noexcept;
    void request_end(int error) noexcept;
    static void revoke_grants(void *object) noexcept;

    ofi::Domain &domain_;
    ofi::MrTable *mrs_ = nullptr;
    ofi::MrObserver mr_observer_;
    std::unique_ptr<RxQueue> own_receives_;
    SharedReceive *shared_ = nullptr;
    std::unique_ptr<Queue> hidden_queue_; // where only counters are bound
    std::shared_ptr<PeerDoorbell> peer_tx_doorbell_;
    std::uint64_t region_bytes_ = 0;
    std::size_t rx_size_ = 0;
    CmaPeer peer_memory_;
    bool enabled_ = false;
    bool attached_ = false;
    bool tx_selective_ = false;
    bool rx_selective_ = false;
    bool queue_added_ = false;
    std::uint64_t caps_ = 0;
};

int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;

extern fi_ops_msg endpoint_msg_ops;
extern fi_ops_rma endpoint_rma_ops;

} // namespace vma::local
