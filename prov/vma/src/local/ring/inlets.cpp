// SPDX-License-Identifier: BSD-2-Clause
#include "local/ring/inlets.hpp"

#include <algorithm>
#include <new>

#include <rdma/fi_errno.h>

#include "local/queue.hpp"
#include "local/ring/inlet.hpp"

namespace vma::local {

bool Inlets::grow(std::uint32_t bit) noexcept
{
    if (bit < size_)
        return true;
    const std::uint32_t wanted = std::max({64U, size_ * 2, bit + 1});
    std::unique_ptr<BellHandler *[]> bigger(new (std::nothrow) BellHandler *[wanted]());
    if (!bigger)
        return false;
    std::copy_n(by_bit_.get(), size_, bigger.get());
    by_bit_ = std::move(bigger);
    size_ = wanted;
    return true;
}

int Inlets::add(BellHandler &handler, std::uint32_t &bit) noexcept
{
    const int free = queue_.doorbell.allocate_bit();
    if (free < 0)
        return -FI_ENOSPC;
    bit = static_cast<std::uint32_t>(free);
    if (!grow(bit)) {
        queue_.doorbell.free_bit(bit);
        return -FI_ENOMEM;
    }
    by_bit_[bit] = &handler;
    ++handlers_;
    return 0;
}

void Inlets::remove(BellHandler &, std::uint32_t bit) noexcept
{
    by_bit_[bit] = nullptr;
    queue_.doorbell.free_bit(bit);
    --handlers_;
}

void Inlets::remove(Inlet &inlet, std::uint32_t bit) noexcept
{
    Inlet **const end = active_ + active_count_;
    if (Inlet **const found = std::find(active_, end, &inlet); found != end) {
        std::copy(found + 1, end, found);
        --active_count_;
    }
    remove(static_cast<BellHandler &>(inlet), bit);
}

void Inlets::poll() noexcept
{
    for (unsigned i = 0; i < active_count_; ++i) {
        Inlet &inlet = *active_[i];
        if (!inlet.ready())
            continue;
        inlet.visit();
        // Who is silent ends up last.
        if (i != 0 && i < active_count_)
            std::swap(active_[i], active_[i - 1]);
    }
    for (std::size_t i = 0; i < pollers_.size(); ++i)
        pollers_[i]->poll();
}

void Inlets::add(Poller &poller) noexcept
{
    pollers_.push_back(&poller);
}

void Inlets::remove(const Poller &poller) noexcept
{
    std::erase(pollers_, &poller);
}

unsigned Inlets::limit() const noexcept
{
    return queue_.wait_obj == FI_WAIT_NONE ? kActive : kActiveBeforeSleep;
}

void Inlets::consider(Inlet &inlet, std::uint32_t bit) noexcept
{
    const unsigned most = limit();
    if (queue_.armed || (active_count_ == most && !queue_.rings_often(bit)))
        return;
    if (active_count_ == most)
        deactivate(most - 1);
    std::copy_backward(active_, active_ + active_count_, active_ + active_count_ + 1);
    active_[0] = &inlet;
    ++active_count_;
    inlet.set_watched(true);
}

// What was written before the sender knew is rung for here.
void Inlets::deactivate(unsigned index) noexcept
{
    Inlet &inlet = *active_[index];
    std::copy(active_ + index + 1, active_ + active_count_, active_ + index);
    --active_count_;
    inlet.set_watched(false);
    if (inlet.ready() && !inlet.stalled())
        queue_.doorbell.ring_self(inlet.bit());
}

void Inlets::deactivate_all() noexcept
{
    while (active_count_ != 0)
        deactivate(active_count_ - 1);
}

void Inlets::ring_all() noexcept
{
    for (std::uint32_t bit = 0; bit < size_; ++bit) {
        if (by_bit_[bit])
            queue_.doorbell.ring_self(bit);
    }
}

} // namespace vma::local
