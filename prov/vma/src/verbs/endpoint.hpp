// SPDX-License-Identifier: BSD-2-Clause
// A connected message endpoint over a reliable queue pair: its two halves that move data, what it is bound to, and how
// it is joined with a peer (connect.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "core/spinlock.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"
#include "ofi/cntr.hpp"
#include "ofi/domain.hpp"
#include "ofi/eq.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/device_memory.hpp"
#include "verbs/domain.hpp"
#include "verbs/fast.hpp"
#include "verbs/manager.hpp"
#include "verbs/queue.hpp"
#include "verbs/region.hpp"
#include "verbs/watch.hpp"
#include "verbs/wire.hpp"
#include "verbs/work.hpp"
#include "vma/pacer.hpp"

namespace vma::verbs {

struct SharedReceive;

inline constexpr std::size_t kMostIov = ofi::kIovLimit;

// Sends that wait for the call that ends a row of FI_MORE, so that the device's doorbell rings once for all.
struct Batch {
    static constexpr unsigned kMost = 16;
    unsigned count = 0;
    ibv_send_wr wr[kMost];
    ibv_sge sge[kMost][kMostIov];
};

struct Endpoint {
    enum class Phase : std::uint8_t {
        idle,       // opened
        requested,  // made from a connection request that waits for fi_accept
        connecting, // fi_connect was called
        accepting,  // fi_accept was called
        connected,
        closed, // shut down by either side, or refused
    };

    fid_ep fid{}; // first
    ofi::Domain &domain;
    Manager &manager;

    Endpoint(ofi::Domain &owner, const fi_info *info) noexcept;
    ~Endpoint();

    static Endpoint &from(struct fid *fid) noexcept { return *reinterpret_cast<Endpoint *>(fid); }
    static Endpoint &from(fid_ep *fid) noexcept { return *reinterpret_cast<Endpoint *>(fid); }

    // ---- the calls of the fi_ops tables
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;

    // Whether a call with these flags makes a completion.
    bool wants_tx_completion(std::uint64_t flags) const noexcept { return !tx_selective || (flags & FI_COMPLETION); }
    bool wants_rx_completion(std::uint64_t flags) const noexcept { return !rx_selective || (flags & FI_COMPLETION); }
    // Whether an error entry may tell of an operation without a completion. Without FI_SELECTIVE_COMPLETION that was
    // injected, has no context, and the program need not expect entries without one: ofi_rxm follows nullptr.
    bool reports_silent_sends() const noexcept { return tx_selective; }

    // Posts a work request whose sge list may be the caller's. `flags` are the operation's. 0 or a negative fi_errno.
    ssize_t post(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept;
    ssize_t post_receive(const iovec *iov, void **desc, std::size_t count, void *context, bool wanted) noexcept;

    // A write to the peer's region (region.cpp).
    ssize_t write_region(const iovec *iov, std::size_t count, std::uint64_t offset, const std::uint64_t *data,
                         const Work &work) noexcept;
    std::size_t sends_left() const noexcept;

    // The rate limit (rate.cpp). The last two with tx_lock held.
    int set_limit(const void *value, std::size_t length) noexcept;
    void apply_limit() noexcept;
    bool may_go(std::uint64_t bytes) noexcept;

    // Keep-alive and the send time-out (watch.cpp): FI_OPT_VMA_KEEPALIVE_TIMEOUT, FI_OPT_VMA_SEND_TIMEOUT.
    int set_timeout(int name, const void *value, std::size_t length) noexcept;
    std::uint64_t timeout(int name) noexcept; // us
    void start_watch() noexcept;              // with the manager's mutex held
    void look_at_peer() noexcept;             // with the manager's mutex held

    // ---- for the completion queues, with the queue's lock held: what a completed work request was
    Work complete_sends(std::uint64_t number) noexcept;
    Work complete_receive(std::uint64_t number) noexcept;
    bool take_note(const ibv_wc &wc, ofi::Completion &entry) noexcept;
    void take_fast(std::size_t room) noexcept; // fast_receive.cpp
    // The queue pair broke; connection management hears of it when no lock is held.
    void note_broken(Queue &queue, const char *why) noexcept;

    // ---- connection management (connect.cpp), with the manager's mutex held if it doesn't say otherwise
    int open_connection(const fi_info &info) noexcept;
    void on_event(CmEvent &event) noexcept;
    void join_fast() noexcept;
    void on_broken(const char *why) noexcept;
    void report_broken() noexcept; // takes the mutex
    void close_connection() noexcept;

    // ---- data path
    ibv_qp *qp = nullptr;
    std::atomic<bool> open_for_sends{false};
    core::SpinLock tx_lock; // protects posting: tx, unsignaled, batch; taken with a queue's lock held by nobody
    WorkRing tx;
    unsigned unsignaled = 0; // since the last one that makes the device tell
    std::unique_ptr<Batch> batch;
    DeviceMemory device_memory;
    std::atomic<std::uint64_t> memory_done{0}; // what the device has sent of it
    Pacer pacer;                               // limited where the device is not
    std::uint64_t due = 0;                     // ns of CLOCK_MONOTONIC: when what was refused may go; 0: nothing was
    fi_vma_rate_limit limit{};                 // as the program set it
    bool device_limited = false;               // the device keeps it
    core::SpinLock rx_lock;
    WorkRing rx;
    SharedReceive *shared = nullptr;
    std::unique_ptr<RegionLink> region; // or none
    std::unique_ptr<Fast> fast;         // or none
    Fast *fast_out = nullptr;           // the same once the peer has agreed; protected by tx_lock
    // The first receive that the device does not get; protected by rx_lock.
    std::uint64_t hold_from = UINT64_MAX;
    Queue *tx_queue = nullptr;
    Queue *rx_queue = nullptr;
    std::uint64_t tx_flags = 0; // of the calls that don't carry flags
    std::uint64_t rx_flags = 0;
    std::uint32_t max_inline = 0; // bytes of a program's data that go inline; its tx_attr->inject_size says so
    bool tx_selective = false;
    bool rx_selective = false;
    bool cq_data = false; // remote writes may carry data: the peer's program has agreed to lose a receive by it
    ofi::Cntr *send_counter = nullptr;
    ofi::Cntr *write_counter = nullptr;
    ofi::Cntr *read_counter = nullptr;
    ofi::Cntr *receive_counter = nullptr;

    // ---- its end on the data path
    std::atomic<const char *> broken_why{nullptr};
    Endpoint *broken_next = nullptr;
    std::atomic<bool> broken{false};
    std::atomic<std::uint64_t> overdue{0}; // sends before this number that are flushed have timed out

    // ---- connection, protected by the manager's mutex
    Phase phase = Phase::idle;
    ofi::Eq *eq = nullptr;
    IdPtr id;
    CmHandler handler;
    ofi::Address local;
    ofi::Address peer;
    const ofi::AddressFormat format; // of addresses, as the program writes them
    ConnectMessage outgoing;         // of a connection on its way up
    ConnectMessage incoming;
    std::uint8_t responder_resources = 0; // reads that the peer may have under way here
    std::uint8_t initiator_depth = 0;     // reads that we may have under way there
    bool is_enabled = false;
    std::unique_ptr<Watch> watch; // or none

private:
    int create_qp() noexcept;
    int move_to_init() noexcept;
    int open_region() noexcept;
    int keep_region(void *value, std::size_t *length) noexcept;
    void for_counters(void (ofi::Cntr::*action)(const ofi::ProgressSource &) noexcept) noexcept;
    int join_queues() noexcept;
    int reserve_receives() noexcept;
    void release_receives() noexcept;
    void leave_queues() noexcept;
    ssize_t flush(std::uint64_t last) noexcept;
    ssize_t flush_row() noexcept;
    void make_room() noexcept;
    ssize_t post_open(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept;
    ssize_t post_slow(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept;
    int limit_device() noexcept;
    void release_memory(const Work &work) noexcept;
    void number(ibv_send_wr &wr, const Work &work) noexcept;
    ssize_t post_locked(ibv_send_wr &wr, const Work &work) noexcept;
    void put_on_device(ibv_send_wr &wr, ibv_sge &place, Work &work) noexcept;
    ssize_t write_region_locked(std::uint64_t offset, std::size_t length, const std::uint64_t *data,
                                const Work &work) noexcept;
    void need_locks() noexcept;
    std::uint64_t probe() noexcept;
    bool is_silent(std::uint64_t now, std::uint64_t done, bool may_probe) noexcept;
    int post_note(std::uint64_t number) noexcept;
    int post_notes() noexcept;
    void tell_taken() noexcept;

    // Fast connections: fast.cpp, fast_receive.cpp.
    void open_fast() noexcept;
    ssize_t post_fast(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept;
    ssize_t steer(bool small) noexcept;
    ssize_t leave_ring(Fast::Phase then) noexcept;
    ssize_t write_slot(const ibv_send_wr &wr, std::size_t length, const Work &work) noexcept;
    ssize_t write_fast(ibv_sge &list, std::uint64_t to, unsigned send_flags, const Work &work) noexcept;
    ssize_t tell_word(std::size_t offset, std::uint64_t value) noexcept;
    ssize_t tell_in_order(std::size_t offset, std::uint64_t value) noexcept;
    bool tell_sender(std::size_t offset, std::uint64_t value) noexcept;
    void hold(std::uint64_t number, const ibv_sge *list, std::size_t count) noexcept;
    void hear_ask() noexcept;
    void hear_leave() noexcept;
    bool take_slot() noexcept;
    void deliver_fast(const Work &work, const FastTrailer &trailer, int error) noexcept;

    std::size_t region_bytes_ = 0;
    std::size_t device_memory_bytes_ = 0;
    std::size_t tx_size_ = 0;
    std::size_t rx_size_ = 0;
    bool joined_ = false;                 // the queues have room for us
    std::unique_ptr<Queue> hidden_queue_; // where only counters are bound
};

int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept;

extern fi_ops_cm endpoint_cm_ops;
extern fi_ops_msg endpoint_msg_ops;
extern fi_ops_rma endpoint_rma_ops;

} // namespace vma::verbs
