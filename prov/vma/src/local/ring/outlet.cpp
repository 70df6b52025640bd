// SPDX-License-Identifier: BSD-2-Clause
#include "local/ring/outlet.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/barrier.hpp"
#include "core/log.hpp"
#include "core/probes.hpp"
#include "local/cm/directory.hpp"
#include "local/cm/fdmsg.hpp"
#include "local/cm/manager.hpp"
#include "local/layout.hpp"
#include "local/ring/endpoint.hpp"

namespace vma::local {
namespace {

constexpr std::int64_t kRetryInterval = 2'000'000; // ns between looks at a name that nobody has, and at a full ring

} // namespace

std::int64_t coarse_now() noexcept
{
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void Outlet::on_ready(std::uint32_t) noexcept
{
    news_.store(true, std::memory_order_release); // one-shot: rings no more until it was looked at
    if (told_ != nullptr)
        told_->attend_soon();
}

bool Outlet::look_ended() noexcept
{
    if (connected_ && news_.exchange(false, std::memory_order_acquire)) {
        if (look_at_socket())
            manager_.watch(*this, socket_.get(), EPOLLIN | EPOLLONESHOT, false);
        else
            disconnect();
    }
    return !connected_;
}

bool Outlet::look_after() noexcept
{
    return !look_ended() || connect();
}

int Outlet::meet() noexcept
{
    if (!look_after())
        return refusal();
    if (!doorbell_ && !read_answer()) {
        disconnect();
        return -FI_ECONNREFUSED;
    }
    return doorbell_ ? 0 : -FI_EINPROGRESS;
}

int Outlet::open() noexcept
{
    if (connected_)
        return 0;
    const bool tried = coarse_now() < next_try_;
    if (connect())
        return 0;
    return tried ? -FI_EAGAIN : refusal_;
}

bool Outlet::connect() noexcept
{
    const std::int64_t now = coarse_now();
    if (now < next_try_)
        return false;
    next_try_ = now + kRetryInterval;
    int error = 0;
    core::UniqueFd socket = directory_.connect_name(name_, &error);
    // A queue of senders that is full, or a lack of our own, doesn't mean that nobody is there.
    refusal_ = socket || error == -FI_ECONNREFUSED ? -FI_ECONNREFUSED : -FI_EAGAIN;
    const pid_t peer = socket ? peer_of_our_user(socket.get()) : -1;
    if (peer < 0 || !hand_over(socket.get()))
        return false;
    socket_ = std::move(socket);
    peer_ = peer;
    leads_to_ = identity_of(peer, incarnation_behind(socket_.get()));
    connected_ = manager_.watch(*this, socket_.get(), EPOLLIN | EPOLLONESHOT, true) &&
                 (told_ == nullptr || told_->let_wake(socket_.get()));
    next_try_ = 0; // a receiver that goes and comes back is found at once
    if (!connected_)
        disconnect();
    else if (peer == ::getpid())
        met_ = true;
    return connected_;
}

bool Outlet::hand_over(int socket) noexcept
{
    memory_ = {};
    if (create_shared("vma-datagrams", sizeof(RingMemory), memory_) != 0) {
        VMA_WARN(ep_ctrl, "no memory for a ring of datagrams");
        return false;
    }
    RingGreeting greeting{};
    greeting.magic = kGreetingMagic;
    greeting.is_group = group_ ? 1 : 0;
    // Not for datagrams: their programs may be in a sandbox that ends who makes a call it doesn't know.
    greeting.barriers = told_ != nullptr && core::join_barriers() ? 1 : 0;
    greeting.incarnation = incarnation_;
    greeting.ring_size = memory_.mapping.size();
    std::memcpy(&greeting.source, &source_.v6, source_.size());
    std::memcpy(&greeting.destination, &destination_.v6, destination_.size());
    const int fd = memory_.fd.get();
    if (!send_packet(socket, &greeting, sizeof(greeting), {&fd, 1}))
        return false;
    memory_.fd.reset();
    writer_.attach(reinterpret_cast<RingMemory *>(memory_.mapping.data()));
    return true;
}

void Outlet::look_for_end() noexcept
{
    const std::int64_t now = coarse_now();
    if (!connected_ || now < next_try_)
        return;
    next_try_ = now + kRetryInterval;
    look_now();
}

void Outlet::look_now() noexcept
{
    if (connected_ && !look_at_socket()) {
        disconnect();
        next_try_ = 0;
    }
}

bool Outlet::is_succeeded() noexcept
{
    if (!connected_)
        return true;
    int error = 0;
    const core::UniqueFd socket = directory_.connect_name(name_, &error);
    if (!socket)
        return error == -FI_ECONNREFUSED;
    const std::uint32_t present = incarnation_behind(socket.get());
    return present != 0 && present != static_cast<std::uint32_t>(leads_to_);
}

void Outlet::disconnect() noexcept
{
    if (socket_) {
        if (told_ != nullptr)
            told_->let_wake_no_more(socket_.get());
        manager_.unwatch(socket_.get());
    }
    socket_.reset();
    doorbell_.reset();
    memory_ = {};
    news_.store(false, std::memory_order_relaxed);
    connected_ = false;
    peer_ = -1;
}

// Its end may stand behind its answer.
bool Outlet::look_at_socket() noexcept
{
    const bool met = doorbell_ != nullptr;
    return read_answer() && (met || !doorbell_ || read_answer());
}

// Nothing yet is fine too. False: the receiver is gone, or talks nonsense.
bool Outlet::read_answer() noexcept
{
    RingAnswer answer{};
    core::UniqueFd fds[2];
    const Packet packet = receive_packet(socket_.get(), &answer, sizeof(answer), fds);
    if (packet == Packet::nothing)
        return true;
    if (packet == Packet::end || doorbell_ || answer.magic != kGreetingMagic || answer.doorbell_bit >= kDoorbellBits)
        return false;
    bit_ = answer.doorbell_bit;
    if (answer.fences != 0)
        writer_.leave_fences_to_reader();
    return open_peer_doorbell({peer_of_our_user(socket_.get()), 0}, std::move(fds[0]), std::move(fds[1]), doorbell_) ==
           0;
}

// No room: the receiver is slow, or dead, in which case another may have its name.
std::byte *Outlet::claim_again(std::size_t length, bool only_ring) noexcept
{
    look_for_end();
    if (!connected_)
        return connect() ? writer_.claim(length) : nullptr;
    std::byte *place = writer_.claim_behind(length, !only_ring);
    if (place == nullptr && !only_ring) {
        writer_.count_drop();
        probe::drop(0, length, probe::Cause::kRingFull);
    }
    return place;
}

void Outlet::take_bell(std::uint32_t place, Bell &bell) noexcept
{
    if (writer_.state() == RingState::closed) {
        disconnect();
        return;
    }
    // The receiver has answered before it asked to be rung for.
    if (!doorbell_ && (!read_answer() || !doorbell_)) {
        disconnect();
        return;
    }
    writer_.fence_before_bell();
    bell.set(doorbell_, bit_, place);
}

} // namespace vma::local
