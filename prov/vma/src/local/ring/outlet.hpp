// SPDX-License-Identifier: BSD-2-Clause
// The sending half of an endpoint towards one name: a ring that it made and handed over, or none while nobody has the
// name. Everything here returns at once. A datagram that can't be placed is dropped; who drops nothing has its own
// calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include <rdma/fi_errno.h>

#include "core/fd.hpp"
#include "local/cm/event_source.hpp"
#include "local/doorbell.hpp"
#include "local/ring/writer.hpp"
#include "local/segment.hpp"
#include "ofi/address.hpp"

namespace vma::local {

class ConnectionManager;
class Directory;
class RingEndpoint;

// Some milliseconds late, and cheap: ns.
std::int64_t coarse_now() noexcept;

// Who sleeps for what was published. It is woken when the sender's lock is free again: it may run at once, in place of
// the thread that holds it.
class Bell
{
public:
    Bell() noexcept = default;
    Bell(const Bell &) = delete;
    Bell &operator=(const Bell &) = delete;
    ~Bell() { ring(); }
    void ring() noexcept
    {
        if (doorbell_) [[unlikely]] {
            doorbell_->ring(bit_, place_);
            doorbell_.reset();
        }
    }
    void set(std::shared_ptr<PeerDoorbell> doorbell, std::uint32_t bit, std::uint32_t place) noexcept
    {
        ring(); // another receiver's
        doorbell_ = std::move(doorbell);
        bit_ = bit;
        place_ = place;
    }

private:
    std::shared_ptr<PeerDoorbell> doorbell_;
    std::uint32_t bit_ = 0;
    std::uint32_t place_ = 0;
};

// Protected by the endpoint's sending lock, but for what on_ready() touches.
class Outlet final : public EventSource
{
public:
    // `name`: whose, in the directory. A destination that is a group has no address of the receiver in it. `met` is set
    // when it has connected to an endpoint of this process: its connection management then has something to do. `told`:
    // who is to attend() to news of the receiver, or nullptr: they wait until something is sent.
    Outlet(ConnectionManager &manager, Directory &directory, const ofi::Address &source,
           const ofi::Address &destination, std::string name, bool group, bool &met, RingEndpoint *told) noexcept
        : manager_(manager), directory_(directory), source_(source), destination_(destination), name_(std::move(name)),
          group_(group), met_(met), told_(told)
    {
    }
    ~Outlet() { disconnect(); } // with the CM lock held

    // Which endpoint the source is, of those that ever have its name: the receiver is told with the ring.
    void introduce_as(std::uint32_t incarnation) noexcept { incarnation_ = incarnation; }

    // Where a datagram of this length is to be written, or nullptr: it is dropped (and counted where there is a ring).
    // Or, with `only_ring`, neither, if the receiver is behind.
    std::byte *claim(std::size_t length, bool only_ring) noexcept
    {
        if (!connected_ || news_.load(std::memory_order_relaxed)) [[unlikely]] {
            if (!look_after())
                return nullptr;
        }
        std::byte *place = writer_.claim(length);
        if (place == nullptr) [[unlikely]]
            place = claim_again(length, only_ring);
        return place;
    }
    // False: the receiver is gone, and the datagram lost. `bell` is what the caller has to ring.
    bool publish(std::size_t length, bool has_data, std::uint64_t data, Bell &bell) noexcept
    {
        writer_.publish(length, has_data, data);
        if (writer_.state() != RingState::watching) [[unlikely]]
            take_bell(place_of(data), bell);
        return connected_;
    }

    // False: there is no ring, or its end is to be seen to.
    bool warm(std::size_t length) const noexcept
    {
        if (!connected_ || news_.load(std::memory_order_relaxed))
            return false;
        writer_.warm(length);
        return true;
    }

    // 0 once the receiver has taken the ring; -FI_EINPROGRESS until it has; or why there is none: refusal().
    int meet() noexcept;

    // Looks whether the receiver's socket has ended, if it was not looked at for some milliseconds, or now.
    void look_for_end() noexcept;
    void look_now() noexcept;
    // Why a datagram could not be placed: -FI_EAGAIN or -FI_ECONNREFUSED.
    int refusal() const noexcept { return connected_ ? -FI_EAGAIN : refusal_; }

    // For who drops nothing, and calls claim_kept() in place of claim(): a ring that was made stays until publish() or
    // look_ended() finds that the receiver is gone, and what was in it may be lost then.

    // 0 when there is a ring already, or now; else why not. -FI_EAGAIN also where it was tried a moment ago: somebody
    // may have come since.
    int open() noexcept;
    bool connected() const noexcept { return connected_; }
    // Of whose the ring is, or was last (identity_of()). 0: of nobody.
    std::uint64_t leads_to() const noexcept { return leads_to_; }
    // Whether who reads the ring certainly has the name no more. It asks by a connection: for rare cases.
    bool is_succeeded() noexcept;
    // The reader has closed its endpoint.
    bool left() const noexcept { return connected_ && writer_.left(); }
    // Somebody was heard of: the next open() tries, however short ago there was nobody.
    void expect_somebody() noexcept { next_try_ = 0; }
    pid_t pid() const noexcept { return peer_; } // the receiver's process; -1: not connected
    // Room in the ring that there is; nullptr: there is none, or the receiver is behind. Nothing is counted.
    std::byte *claim_kept(std::size_t length) noexcept { return connected_ ? writer_.claim_low(length) : nullptr; }
    // True: news of room will be rung for (RingWriter::wait_for_room()).
    bool wait_for_room() noexcept { return connected_ && writer_.wait_for_room(); }
    bool has_news() const noexcept { return news_.load(std::memory_order_relaxed); }
    // Sees to the news, if there are any. True: there is no ring, or no more.
    bool look_ended() noexcept;

    // The socket has an answer, or its end: whoever sends next sees to it.
    void on_ready(std::uint32_t events) noexcept override;

    // Nobody is there any more, says the directory.
    void disconnect() noexcept;

private:
    bool look_after() noexcept;
    bool connect() noexcept;
    bool hand_over(int socket) noexcept;
    bool read_answer() noexcept;
    bool look_at_socket() noexcept;
    std::byte *claim_again(std::size_t length, bool only_ring) noexcept;
    // Of who takes it (FI_VMA_PLACES).
    static std::uint32_t place_of(std::uint64_t data) noexcept
    {
        return static_cast<std::uint32_t>(data >> 32) % kPlaces;
    }
    void take_bell(std::uint32_t place, Bell &bell) noexcept;

    RingWriter writer_;
    bool connected_ = false;
    std::atomic<bool> news_{false};
    std::uint32_t bit_ = 0;
    std::shared_ptr<PeerDoorbell> doorbell_; // once the receiver has answered
    ConnectionManager &manager_;
    Directory &directory_;
    SharedMemory memory_;
    core::UniqueFd socket_;
    std::int64_t next_try_ = 0; // ns
    ofi::Address source_;
    ofi::Address destination_;
    std::string name_;
    bool group_;
    bool &met_;
    int refusal_ = -FI_ECONNREFUSED; // while not connected
    pid_t peer_ = -1;
    std::uint32_t incarnation_ = 0;
    std::uint64_t leads_to_ = 0;
    RingEndpoint *told_;
};

} // namespace vma::local
