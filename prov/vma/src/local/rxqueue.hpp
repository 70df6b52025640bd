// SPDX-License-Identifier: BSD-2-Clause
// Posted receives, of one endpoint or shared between many (fi_srx_context), and the endpoints whose next message waits
// for one. A message that finds no receive stays in its slot; posting a receive rings for the endpoint again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "core/fifo.hpp"
#include "core/spinlock.hpp"
#include "local/layout.hpp"
#include "ofi/cq.hpp"

namespace vma::local {

class Endpoint;

struct RxEntry {
    iovec iov[kIovLimit];
    std::uint32_t iov_count;
    bool completion; // false: FI_SELECTIVE_COMPLETION and not asked for
    std::uint64_t length;
    void *context;
};

// The completion of a receive that is taken back.
inline ofi::Completion canceled(const RxEntry &entry, const void *owner) noexcept
{
    ofi::Completion completion;
    completion.context = entry.context;
    completion.flags = FI_MSG | FI_RECV;
    completion.buffer = entry.iov_count ? entry.iov[0].iov_base : nullptr;
    completion.error = FI_ECANCELED;
    completion.owner = owner;
    return completion;
}

class RxQueue
{
public:
    explicit RxQueue(std::size_t size, bool locks) noexcept : entries_(size) { lock_.set_enabled(locks); }

    // fi_recvmsg(). -FI_EAGAIN when as many as the queue's size are posted.
    ssize_t post(const iovec *iov, std::size_t count, void *context, bool completion) noexcept;

    // The receive for the next message. False: there is none, and `endpoint` will be rung for when there is one.
    bool take(RxEntry &entry, Endpoint &endpoint) noexcept;

    // fi_cancel(): takes the oldest receive with this context out of the queue.
    bool cancel(void *context, RxEntry &entry) noexcept;

    // Any receive at all, for flushing.
    bool take_any(RxEntry &entry) noexcept;

    // A closing endpoint waits for nothing.
    void forget(Endpoint &endpoint) noexcept;

    std::size_t left() noexcept;

private:
    core::SpinLock lock_; // may be taken with a completion queue's lock held, never the other way round
    core::Fifo<RxEntry> entries_;
    Endpoint *stalled_ = nullptr; // linked through Endpoint::stalled_next
};

} // namespace vma::local
