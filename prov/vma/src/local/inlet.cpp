// SPDX-License-Identifier: BSD-2-Clause
#include "local/inlet.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <sys/epoll.h>

#include "core/log.hpp"
#include "local/cma.hpp"
#include "local/dgram.hpp"
#include "local/fdmsg.hpp"
#include "local/manager.hpp"
#include "ofi/av.hpp"
#include "ofi/cntr.hpp"

namespace vma::local {
namespace {

constexpr unsigned kBurst = 64; // datagrams of one sender before it is another's turn

} // namespace

Inlet::~Inlet()
{
    leave_socket(true);
    if (ring_ != nullptr)
        ring_->leave();
}

bool Inlet::start() noexcept
{
    return peer_of_our_user(socket_.get()) >= 0 && endpoint_.manager().watch(*this, socket_.get(), EPOLLIN, true);
}

void Inlet::on_ready(std::uint32_t) noexcept
{
    if (!greeted_) {
        greeted_ = take_greeting();
        if (greeted_)
            endpoint_.arrived(*this);
        else
            endpoint_.refuse(*this); // destroys this
        return;
    }
    // It has nothing more to say: this is its end.
    leave_socket(false);
    ended_.store(true, std::memory_order_release);
    endpoint_.attend_soon();
}

bool Inlet::take_greeting() noexcept
{
    RingGreeting greeting{};
    core::UniqueFd fd;
    const Packet packet = receive_packet(socket_.get(), &greeting, sizeof(greeting), {&fd, 1});
    if (packet != Packet::whole)
        return false;
    ofi::Address destination;
    ring_ = new (std::nothrow) KeptRing;
    if (ring_ == nullptr)
        return false;
    const bool fits = greeting.magic == kGreetingMagic && greeting.ring_size == sizeof(RingMemory) &&
                      source_.assign(&greeting.source, sizeof(greeting.source)) &&
                      destination.assign(&greeting.destination, sizeof(sockaddr_in6)) &&
                      map_shared(fd.get(), sizeof(RingMemory), ring_->memory) == 0;
    if (!fits) {
        VMA_WARN(ep_ctrl, "a sender of datagrams with a malformed greeting is refused");
        return false;
    }
    ring_->reader.attach(reinterpret_cast<RingMemory *>(ring_->memory.data()));
    if (greeting.is_group == 0)
        return endpoint_.accepts(destination);
    group_ = destination;
    return endpoint_.is_member(destination);
}

bool Inlet::attach() noexcept
{
    Queue &queue = endpoint_.rx_queue();
    if (queue.inlets.add(*this, bit_) != 0)
        return false;
    const RingAnswer answer{kGreetingMagic, bit_};
    const std::array fds{queue.doorbell.memory_fd(), queue.doorbell.wake_fd()};
    if (!send_packet(socket_.get(), &answer, sizeof(answer), fds)) {
        // Dead already, most likely. What it wrote is still delivered.
        ended_.store(true, std::memory_order_release);
        endpoint_.attend_soon();
    }
    attached_ = true;
    ring_->reader.set_state(RingState::ring);
    return true;
}

void Inlet::detach() noexcept
{
    if (attached_)
        endpoint_.rx_queue().inlets.remove(*this, bit_);
    attached_ = false;
    leave_socket(true);
    if (ring_ == nullptr)
        return;
    ring_->reader.set_state(RingState::closed);
    ring_->leave();
    ring_ = nullptr;
}

// Connection management may find its end while the queue's reader closes it, and must not mean another's descriptor then.
void Inlet::leave_socket(bool close) noexcept
{
    const core::SpinGuard guard(socket_lock_);
    if (!socket_)
        return;
    endpoint_.manager().unwatch(socket_.get());
    if (close)
        socket_.reset();
}

void Inlet::set_watched(bool watched) noexcept
{
    watched_ = watched;
    ring_->reader.set_state(watched ? RingState::watching : RingState::ring);
}

void Inlet::cut(const char *why) noexcept
{
    VMA_WARN(ep_data, "%s in the ring of %s: what it sends is no longer taken", why, ofi::AddressText(source_).c_str());
    ring_->reader.set_state(RingState::closed);
    endpoint_.cut(*this);
}

fi_addr_t Inlet::source() noexcept
{
    const std::uint32_t generation = endpoint_.av().generation.load(std::memory_order_acquire);
    if (generation != source_generation_) [[unlikely]] {
        source_generation_ = generation;
        source_addr_ = endpoint_.av().place_of(source_);
    }
    return source_addr_;
}

void Inlet::on_bell() noexcept
{
    visit();
    if (attached_ && !watched_ && !stalled_)
        endpoint_.rx_queue().inlets.consider(*this, bit_);
}

// Takes what is there, as far as receives are posted and the queue has room, or as the program's taker likes.
void Inlet::visit() noexcept
{
    Queue &queue = endpoint_.rx_queue();
    Arrived arrived;
    bool more = false;
    stalled_ = false;
    for (unsigned done = 0;; ++done) {
        const RingReader::Peek peek = ring_->reader.peek(arrived);
        if (peek == RingReader::Peek::nothing)
            break;
        if (peek == RingReader::Peek::lie) [[unlikely]] {
            cut("a malformed datagram");
            return;
        }
        const bool taken = endpoint_.has_taker();
        if (done == kBurst || (taken ? !endpoint_.offer(*ring_, arrived) : queue.entries.full())) {
            more = true;
            break;
        }
        if (!taken) {
            RxEntry entry;
            if (!endpoint_.take_receive(entry)) {
                stalled_ = true;
                break;
            }
            endpoint_.deliver(*this, arrived, entry);
        }
        ring_->reader.consume(arrived);
    }
    ring_->reader.publish();
    if (more && !watched_)
        queue.doorbell.ring_self(bit_);
    if (!more && !stalled_ && ended()) [[unlikely]]
        endpoint_.attend_soon();
}

} // namespace vma::local
