// SPDX-License-Identifier: BSD-2-Clause
// What endpoints have in common that write into each other's rings: a name in the user's directory, queues, counters,
// and the rings (inlets) of those that send to it. What stands in the rings, and whom it writes to, is the derived
// class's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "core/spinlock.hpp"
#include "local/cm/directory.hpp"
#include "local/cm/event_source.hpp"
#include "local/queue.hpp"
#include "local/ring/inlet.hpp"
#include "local/ring/inlets.hpp"
#include "local/ring/kept.hpp"
#include "local/ring/outlet.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"
#include "ofi/cntr.hpp"
#include "ofi/domain.hpp"

namespace vma::ofi {
struct Av;
struct Eq;
} // namespace vma::ofi

namespace vma::local {

class ConnectionManager;

// Locks are taken in this order: connection management's (CM), the endpoint's sending lock, a queue's.
class RingEndpoint : public EventSource, public BellHandler
{
public:
    // `fid` is first: libfabric's pointer is to it, so the object is found from it by from().
    struct Handle {
        fid_ep fid{};
        RingEndpoint *self = nullptr;
    } handle;
    std::uint64_t tx_flags = 0; // of the calls that don't carry flags
    std::uint64_t rx_flags = 0;

    // What becomes of a record that take() was shown.
    enum class Took {
        taken,   // it is consumed
        later,   // it stays, and is shown again soon
        stalled, // it stays until unstall(): stalled_ was set, and then no receive was found once more
        lie,     // its sender breaks the rules, and the inlet is cut
    };

    static RingEndpoint &from(struct fid *fid) noexcept { return *reinterpret_cast<Handle *>(fid)->self; }
    static RingEndpoint &from(fid_ep *fid) noexcept { return from(&fid->fid); }

    // The calls of the fi_ops tables.
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    // An address with a port is taken at once, one without when the endpoint is enabled.
    int propose_name(const ofi::Address &wanted) noexcept;
    int set_name(const ofi::Address &wanted) noexcept;
    int get_name(void *addr, std::size_t *length) noexcept;
    int enable() noexcept;
    bool wants_tx_completion(std::uint64_t flags) const noexcept { return !tx_selective_ || (flags & FI_COMPLETION); }
    bool wants_rx_completion(std::uint64_t flags) const noexcept { return !rx_selective_ || (flags & FI_COMPLETION); }
    bool enabled() const noexcept { return enabled_; }
    // Of its completions, which go with it.
    const void *owner() const noexcept { return this; }

    // For inlets.
    ConnectionManager &manager() const noexcept { return manager_; }
    ofi::Domain &domain() const noexcept { return domain_; }
    const ofi::AddressFormat &format() const noexcept { return format_; }
    ofi::Av &av() const noexcept { return *av_; }
    Queue &rx_queue() const noexcept { return *rx_queue_; }
    // With the CM lock held. Whether it is for us what is sent to this address, or to this group.
    bool accepts(const ofi::Address &destination) const noexcept;
    virtual bool is_member(const ofi::Address &group) const noexcept;
    // With the CM lock held: its ring has come, or never will.
    void arrived(Inlet &inlet) noexcept;
    void refuse(Inlet &inlet) noexcept;
    // Somebody came or went, or there is something to do: whoever reads the queue sees to it. Any lock may be held.
    void attend_soon() noexcept;
    // Of a socket that connection management watches: as long as it is readable, it wakes who sleeps on the endpoint's
    // queues. False, with errno: it can't.
    bool let_wake(int fd) noexcept;
    void let_wake_no_more(int fd) noexcept;

    // All below with the queue's lock held. The inlet may be cut in each of them; it is not freed before the lock was
    // let go.

    // Around each visit of an inlet. False: not now; it counts as one that has more, and end_visit() is not called.
    virtual bool begin_visit(Inlet &inlet) noexcept;
    virtual void end_visit(Inlet &inlet) noexcept;
    // The record that stands in front in the inlet's ring. Where it is and how long was checked; the rest is the peer's
    // word.
    virtual Took take(Inlet &inlet, KeptRing &ring, const Arrived &arrived) noexcept = 0;
    // It sleeps until it is told that there is room in its ring, which there is by now.
    virtual void made_room(Inlet &inlet) noexcept;
    // Nothing of it is taken any more.
    void cut(Inlet &inlet) noexcept { retire(inlet); }

    void on_ready(std::uint32_t events) noexcept override; // a new sender
    void on_bell() noexcept override;                      // attend_soon() was called

protected:
    struct Counters {
        ofi::Cntr *send = nullptr;
        ofi::Cntr *receive = nullptr;
        ofi::Cntr *read = nullptr;
        ofi::Cntr *write = nullptr;
        ofi::Cntr *remote_read = nullptr;
        ofi::Cntr *remote_write = nullptr;
    };

    // `counted`: the events (FI_SEND ...) that counters can be bound for.
    RingEndpoint(ofi::Domain &domain, const fi_info &info, NameKind kind, std::uint64_t counted) noexcept;
    ~RingEndpoint();

    // Without locks: enable() has the queues, and is about to take a name. It is called again if that has failed, and
    // it is tried again. 0 or a negative fi_errno.
    virtual int prepare() noexcept;
    // With the queue's lock held. An inlet is in the queue, and is visited next; it may be cut in here.
    virtual void joined(Inlet &inlet) noexcept;
    // Likewise. One leaves, perhaps without having joined, and still has its ring. No other may be cut in here.
    virtual void left(Inlet &inlet) noexcept;
    // Likewise. attend_soon() was called, and who came and went has been seen to.
    virtual void attend() noexcept;

    // With the CM lock held. A name is taken if there is none yet: 0 or a negative fi_errno. And given back again, for
    // another one.
    int ensure_name() noexcept;
    void drop_name() noexcept;

    // Each derived class's destructor calls it, with the CM lock held, before it lets go of what the calls above need:
    // nobody comes from then on, and all inlets have left. The outlets are freed after it, with that lock still held.
    void close() noexcept;

    // With the sending lock held. To an address that is reachable(); nullptr without memory. `told`: the endpoint is to
    // attend() when the receiver has answered, or is gone.
    std::unique_ptr<Outlet> make_outlet(const ofi::Address &address, bool told) noexcept;
    // Without locks, when met_ was found to be set.
    [[gnu::cold]] void welcome() noexcept;
    // A call that may write: `call(Bell &)` with the sending lock held. Who sleeps for it is woken, and one of this
    // process is met, when the lock is free again.
    template <typename Call> auto write_locked(Call &&call) noexcept
    {
        bool met = false;
        Bell bell; // rings last
        const auto result = [&] {
            const core::SpinGuard guard(lock_);
            const auto done = call(bell);
            met = met_;
            return done;
        }();
        if (met) [[unlikely]]
            welcome();
        return result;
    }
    // A receive was posted.
    void unstall() noexcept
    {
        if (stalled_.load(std::memory_order_relaxed)) [[unlikely]] {
            stalled_.store(false, std::memory_order_relaxed);
            attend_soon();
        }
    }
    // With the queue's lock held.
    void retire(Inlet &inlet) noexcept;

    ofi::Domain &domain_;
    ConnectionManager &manager_;
    std::shared_ptr<Directory> directory_;
    ofi::Address local_; // protected by the CM lock until enabled
    const ofi::AddressFormat format_;
    PortName name_;
    Inlet *inlets_ = nullptr; // of the queue, protected by its lock

private:
    int take_name(const ofi::Address &wanted) noexcept;
    int open_gate() noexcept;
    int join_queues() noexcept;
    void leave_queues() noexcept;
    void free_retired() noexcept;
    template <typename Act> void for_counters(Act &&act) noexcept;

    std::atomic<Inlet *> arrivals_{nullptr};        // from CM to the queue
    std::atomic<Inlet *> retired_{nullptr};         // from the queue to CM
    std::vector<std::unique_ptr<Inlet>> strangers_; // that have not greeted, protected by the CM lock
    core::UniqueFd gate_; // epoll: what wakes who sleeps on the queues, beside their doorbells. From enable() on
    bool deaf_ = false;   // nobody can be taken, for want of descriptors: protected by the CM lock
    std::unique_ptr<Queue> hidden_queue_; // where only counters are bound
    ofi::Eq *eq_ = nullptr;
    std::uint64_t counted_;
    NameKind kind_;
    std::uint32_t bit_ = 0; // of attend_soon()

protected:
    // What is looked at all the time is last, so that the derived class's own of that kind comes right behind it.
    Queue *rx_queue_ = nullptr;
    Queue *tx_queue_ = nullptr;
    ofi::Av *av_ = nullptr;
    core::SpinLock lock_; // the sending half; before a queue's lock
    bool enabled_ = false;
    bool tx_selective_ = false;
    bool rx_selective_ = false;
    bool met_ = false;                 // an outlet has connected to an endpoint of this process
    std::atomic<bool> stalled_{false}; // records wait for a receive to be posted
    Counters counters_;
};

} // namespace vma::local
