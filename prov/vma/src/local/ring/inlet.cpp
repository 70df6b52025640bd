// SPDX-License-Identifier: BSD-2-Clause
#include "local/ring/inlet.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <sys/epoll.h>

#include "core/barrier.hpp"
#include "core/log.hpp"
#include "local/cm/fdmsg.hpp"
#include "local/cm/manager.hpp"
#include "local/ring/endpoint.hpp"
#include "ofi/av.hpp"

namespace vma::local {
namespace {

constexpr unsigned kBurst = 64; // records of one sender before it is another's turn

} // namespace

Inlet::~Inlet()
{
    leave_socket(true);
    if (ring_ != nullptr)
        ring_->leave();
}

bool Inlet::start() noexcept
{
    pid_ = peer_of_our_user(socket_.get());
    return pid_ >= 0 && endpoint_.manager().watch(*this, socket_.get(), EPOLLIN, true) &&
           endpoint_.let_wake(socket_.get());
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
    writer_joins_barriers_ = greeting.barriers != 0;
    incarnation_ = greeting.incarnation;
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
    // Where nobody sleeps on the queue, it is seldom that one is no longer looked at, and worth the barrier to save
    // each sender's fences.
    const bool fences = writer_joins_barriers_ && queue.wait_obj == FI_WAIT_NONE && core::barrier_everywhere();
    if (fences)
        ring_->reader.fence_for_writer();
    const RingAnswer answer{kGreetingMagic, bit_, fences ? 1U : 0U};
    const std::array fds{queue.doorbell.memory_fd(), queue.doorbell.wake_fd()};
    if (!send_packet(socket_.get(), &answer, sizeof(answer), fds)) {
        // Dead already, most likely. What it wrote is still delivered.
        ended_.store(true, std::memory_order_release);
        endpoint_.attend_soon();
    }
    attached_ = true;
    ask_for_ring();
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

// Connection management may find its end while the queue's reader closes it, and must not mean another's descriptor
// then.
void Inlet::leave_socket(bool close) noexcept
{
    const core::SpinGuard guard(socket_lock_);
    if (!socket_)
        return;
    endpoint_.let_wake_no_more(socket_.get());
    endpoint_.manager().unwatch(socket_.get());
    if (close)
        socket_.reset();
}

void Inlet::set_watched(bool watched) noexcept
{
    watched_ = watched;
    if (watched)
        ring_->reader.set_state(RingState::watching);
    else
        ask_for_ring();
}

// Who calls it looks at the ring afterwards, or has it rung for.
void Inlet::ask_for_ring() noexcept
{
    if (!ring_->reader.set_state(RingState::ring)) [[unlikely]]
        endpoint_.rx_queue().doorbell.ring_self(bit_);
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

// It may be retired in each call of the endpoint, and then has no ring any more.
void Inlet::visit() noexcept
{
    Rest rest = Rest::more;
    stalled_ = false;
    if (endpoint_.begin_visit(*this)) {
        if (ring_ != nullptr) [[likely]]
            rest = take_records();
        if (ring_ != nullptr && ring_->reader.writer_starves()) [[unlikely]]
            endpoint_.made_room(*this);
        endpoint_.end_visit(*this);
    }
    if (ring_ == nullptr) [[unlikely]]
        return;
    if (rest == Rest::lie) [[unlikely]] {
        cut("a malformed message");
        return;
    }
    stalled_ = rest == Rest::stalled;
    if (rest == Rest::more && !watched_)
        endpoint_.rx_queue().doorbell.ring_self(bit_);
    if (rest == Rest::nothing && ended()) [[unlikely]]
        endpoint_.attend_soon();
}

// What is there, as far as the endpoint takes it.
Inlet::Rest Inlet::take_records() noexcept
{
    Arrived arrived;
    Rest rest = Rest::nothing;
    for (unsigned done = 0;; ++done) {
        const RingReader::Peek peek = ring_->reader.peek(arrived);
        if (peek == RingReader::Peek::nothing)
            break;
        if (peek == RingReader::Peek::lie) [[unlikely]]
            return Rest::lie;
        if (done == kBurst) {
            rest = Rest::more;
            break;
        }
        const RingEndpoint::Took took = endpoint_.take(*this, *ring_, arrived);
        if (took == RingEndpoint::Took::lie || ring_ == nullptr) [[unlikely]]
            return Rest::lie;
        if (took != RingEndpoint::Took::taken) {
            rest = took == RingEndpoint::Took::later ? Rest::more : Rest::stalled;
            break;
        }
        ring_->reader.consume(arrived);
    }
    ring_->reader.publish();
    return rest;
}

} // namespace vma::local
