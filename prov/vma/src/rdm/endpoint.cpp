// SPDX-License-Identifier: BSD-2-Clause
// The life of a reliable-datagram endpoint, its options, and the way completions take.
#include "rdm/endpoint.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "local/cm/manager.hpp"
#include "local/ring/inlet.hpp"
#include "ofi/give_option.hpp"
#include "ofi/info/attr.hpp"

namespace vma::rdm {

using local::Inlet;

namespace {

constexpr std::uint64_t kCounted = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

} // namespace

RdmEndpoint::RdmEndpoint(ofi::Domain &domain, const fi_info &info) noexcept
    : RingEndpoint(domain, info, local::NameKind::reliable, kCounted),
      rx_size_(info.rx_attr && info.rx_attr->size ? info.rx_attr->size : ofi::kRdmRxSize),
      tx_size_(std::min(info.tx_attr && info.tx_attr->size ? info.tx_attr->size : ofi::kRdmTxSize, ofi::kRdmTxSize)),
      least_multi_(ofi::kInjectSize), directed_((info.caps & FI_DIRECTED_RECV) != 0), deferred_(SIZE_MAX),
      mrs_(ofi::mr_table(domain)),
      nonce_(core::monotonic_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ reinterpret_cast<std::uintptr_t>(this))
{
}

RdmEndpoint::~RdmEndpoint()
{
    nonce_.store(0, std::memory_order_seq_cst); // from here on buffers are the program's
    if (av_ != nullptr)
        av_->unwatch(watcher());
    close_network();
    if (accompanied_) {
        { // who reads the queue for another endpoint looks at it
            const core::SpinGuard guard(rx_queue_->lock);
            closing_ = true;
            set_polled(false);
        }
        mrs_->unwatch(this);
        mrs_->remove_source(rx_queue_->source());
        local::part(*tx_queue_, *rx_queue_);
    }
    const std::lock_guard guard(manager_.mutex());
    close();
    leave_owner();
    peers_.clear(); // and their outlets
}

// What is sent by one queue ends with what comes through the other.
int RdmEndpoint::prepare() noexcept
{
    if (accompanied_)
        return 0;
    if (mrs_ == nullptr)
        return -FI_ENOMEM;
    if (const int error = local::accompany(*tx_queue_, *rx_queue_))
        return error;
    mrs_->add_source(rx_queue_->source());
    mrs_->watch({[](void *object) noexcept { static_cast<RdmEndpoint *>(object)->unstall(); }, this});
    accompanied_ = true;
    by_owner_ = srx_ != nullptr || rx_queue_->owners.any();
    if (srx_ != nullptr)
        av_->watch(watcher());
    return open_network();
}

int RdmEndpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    if (name != FI_OPT_MIN_MULTI_RECV)
        return -FI_ENOPROTOOPT;
    if (value == nullptr || length != sizeof least_multi_)
        return -FI_EINVAL;
    const core::SpinGuard guard(lock_);
    std::memcpy(&least_multi_, value, sizeof least_multi_);
    return 0;
}

int RdmEndpoint::get_option(int name, void *value, std::size_t *length) noexcept
{
    const core::SpinGuard guard(lock_);
    return name == FI_OPT_MIN_MULTI_RECV ? ofi::give_option(least_multi_, value, length) : -FI_ENOPROTOOPT;
}

// ---- the queue's side, with its lock held ---------------------------------------------------------------------------

// Who has our lock may wait for the queue's: it is asked for again with the queue's next read.
void RdmEndpoint::on_bell() noexcept
{
    if (!lock_.try_lock()) {
        attend_soon();
        return;
    }
    ++visits_;
    RingEndpoint::on_bell();
    --visits_;
    lock_.unlock();
}

bool RdmEndpoint::begin_visit(Inlet &) noexcept
{
    if (visits_ == 0 && !lock_.try_lock())
        return false;
    ++visits_;
    return true;
}

void RdmEndpoint::end_visit(Inlet &) noexcept
{
    if (--visits_ == 0)
        lock_.unlock();
}

// ---- completions ----------------------------------------------------------------------------------------------------

void RdmEndpoint::push_rx(const ofi::Completion &completion) noexcept
{
    tell_rx(completion, completion.error == 0 ? completion.tag : 0);
}

void RdmEndpoint::push_own_rx(const ofi::Completion &completion) noexcept
{
    if (visits_ != 0) {
        rx_queue_->push(completion);
        return;
    }
    const core::SpinGuard guard(rx_queue_->lock);
    rx_queue_->push(completion);
}

// With the receiving queue's lock held the other one is not waited for: somebody may hold them the other way round.
void RdmEndpoint::push_tx(const ofi::Completion &completion) noexcept
{
    if (tx_queue_->owners.any()) {
        tell_owner(*tx_queue_, completion, 0);
    } else if (visits_ == 0) {
        const core::SpinGuard guard(tx_queue_->lock);
        tx_queue_->push(completion);
    } else if (tx_queue_ == rx_queue_) {
        tx_queue_->push(completion);
    } else {
        static_cast<void>(deferred_.push(completion));
        push_deferred();
    }
}

void RdmEndpoint::push_deferred() noexcept
{
    if (!tx_queue_->lock.try_lock()) {
        attend_soon();
        return;
    }
    for (; !deferred_.empty(); deferred_.pop())
        tx_queue_->push(deferred_.front());
    tx_queue_->lock.unlock();
}

} // namespace vma::rdm
