// SPDX-License-Identifier: BSD-2-Clause
// The receiving half of an endpoint towards one sender: the ring that this one made, and the socket whose end tells
// that it is gone. Connection management makes it, and hands it to the endpoint's queue once the ring has come.
#pragma once

#include <atomic>
#include <cstdint>
#include <sys/types.h>

#include <rdma/fabric.h>

#include "core/fd.hpp"
#include "core/spinlock.hpp"
#include "local/cm/directory.hpp"
#include "local/cm/event_source.hpp"
#include "local/ring/inlets.hpp"
#include "local/ring/kept.hpp"
#include "ofi/address.hpp"

namespace vma::local {

class RingEndpoint;

class Inlet final : public EventSource, public BellHandler
{
public:
    Inlet(RingEndpoint &endpoint, core::UniqueFd socket) noexcept : endpoint_(endpoint), socket_(std::move(socket)) {}
    ~Inlet();

    // With the CM lock held.
    bool start() noexcept;
    void on_ready(std::uint32_t events) noexcept override;

    // With the queue's lock held.
    bool ready() const noexcept { return ring_->reader.ready(); }
    bool stalled() const noexcept { return stalled_; }
    std::uint32_t bit() const noexcept { return bit_; }
    void set_watched(bool watched) noexcept;
    void visit() noexcept;
    void on_bell() noexcept override;
    // Joins the queue and answers; what is there by now is to be looked at after it. False: it can't be used.
    bool attach() noexcept;
    // Leaves the queue, for ever.
    void detach() noexcept;
    bool attached() const noexcept { return attached_; }
    bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
    std::uint64_t dropped() const noexcept { return ring_ != nullptr ? ring_->reader.dropped() : 0; }
    // Who made the ring: the process, from start() on, its name in the address vector, and that name itself.
    pid_t pid() const noexcept { return pid_; }
    fi_addr_t source() noexcept;
    const ofi::Address &raw_source() const noexcept { return source_; }
    const ofi::Address &group() const noexcept { return group_; }
    // Which endpoint of those that ever have that name (identity_of()); of its incarnation it may say nothing.
    std::uint64_t identity() const noexcept { return identity_of(pid_, incarnation_); }

    Inlet *next = nullptr; // in one of the endpoint's lists
    void *user = nullptr;  // the endpoint's own

private:
    // What a visit leaves in the ring.
    enum class Rest { nothing, more, stalled, lie };

    bool take_greeting() noexcept;
    Rest take_records() noexcept;
    void ask_for_ring() noexcept;
    void cut(const char *why) noexcept;
    void leave_socket(bool close) noexcept;

    KeptRing *ring_ = nullptr; // once it has come, until detach()
    RingEndpoint &endpoint_;
    bool watched_ = false; // the queue looks at it itself
    bool stalled_ = false; // waits for a receive
    bool attached_ = false;
    bool greeted_ = false; // protected by the CM lock
    bool writer_joins_barriers_ = false;
    std::atomic<bool> ended_{false}; // the sender is gone
    std::uint32_t bit_ = 0;
    std::uint32_t source_generation_ = 0;
    fi_addr_t source_addr_ = FI_ADDR_NOTAVAIL;
    core::SpinLock socket_lock_; // under the CM lock and the queue's
    core::UniqueFd socket_;
    pid_t pid_ = -1;                // unknown
    std::uint32_t incarnation_ = 0; // as it says
    ofi::Address source_;
    ofi::Address group_; // empty unless the ring is for datagrams to one
};

} // namespace vma::local
