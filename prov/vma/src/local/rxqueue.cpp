// SPDX-License-Identifier: BSD-2-Clause
// Posting, taking and cancelling receives.
#include "local/rxqueue.hpp"

#include <rdma/fi_errno.h>

#include "local/msg/endpoint.hpp"

namespace vma::local {

ssize_t RxQueue::post(const iovec *iov, std::size_t count, void *context, bool completion) noexcept
{
    if (count > kIovLimit || (count && !iov))
        return -FI_EINVAL;
    RxEntry entry;
    entry.iov_count = static_cast<std::uint32_t>(count);
    entry.completion = completion;
    entry.context = context;
    entry.length = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (__builtin_add_overflow(entry.length, iov[i].iov_len, &entry.length))
            return -FI_EINVAL;
        entry.iov[i] = iov[i];
    }
    const core::SpinGuard guard(lock_);
    if (entries_.full())
        return -FI_EAGAIN;
    if (!entries_.push(entry))
        return -FI_ENOMEM;
    // All of them: the first may find its message gone with its peer.
    while (stalled_) {
        Endpoint *endpoint = stalled_;
        stalled_ = endpoint->stalled_next;
        endpoint->stalled.store(false, std::memory_order_relaxed);
        endpoint->ring_self();
    }
    return 0;
}

bool RxQueue::take(RxEntry &entry, Endpoint &endpoint) noexcept
{
    const core::SpinGuard guard(lock_);
    if (!entries_.empty()) {
        entry = entries_.front();
        entries_.pop();
        return true;
    }
    if (!endpoint.stalled.load(std::memory_order_relaxed)) {
        endpoint.stalled.store(true, std::memory_order_relaxed);
        endpoint.stalled_next = stalled_;
        stalled_ = &endpoint;
    }
    return false;
}

bool RxQueue::cancel(void *context, RxEntry &entry) noexcept
{
    const core::SpinGuard guard(lock_);
    bool found = false;
    entries_.erase_if([&](const RxEntry &candidate) {
        if (found || candidate.context != context)
            return false;
        entry = candidate;
        return found = true;
    });
    return found;
}

bool RxQueue::take_any(RxEntry &entry) noexcept
{
    const core::SpinGuard guard(lock_);
    if (entries_.empty())
        return false;
    entry = entries_.front();
    entries_.pop();
    return true;
}

void RxQueue::forget(Endpoint &endpoint) noexcept
{
    const core::SpinGuard guard(lock_);
    if (!endpoint.stalled.load(std::memory_order_relaxed))
        return;
    for (Endpoint **at = &stalled_; *at; at = &(*at)->stalled_next) {
        if (*at == &endpoint) {
            *at = endpoint.stalled_next;
            break;
        }
    }
    endpoint.stalled.store(false, std::memory_order_relaxed);
}

std::size_t RxQueue::left() noexcept
{
    const core::SpinGuard guard(lock_);
    return entries_.limit() - entries_.size();
}

} // namespace vma::local
