// SPDX-License-Identifier: BSD-2-Clause
// Binding completion queues and counters to an endpoint, the same for all kinds of endpoints. `Queue` is the device's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "ofi/cntr.hpp"
#include "ofi/cq.hpp"
#include "ofi/domain.hpp"

namespace vma::ofi {

// Where an endpoint keeps the queue of one of its halves, nullptr as long as none is bound.
template <typename Queue> struct QueuePlace {
    Queue *&queue;
    bool &selective;
};

// 0, -FI_EBADFLAGS or -FI_EINVAL, and then nothing is bound. `tells_owners`: the endpoint knows queues of FI_PEER.
template <typename Queue>
int bind_queue(const Domain &domain, Queue &queue, std::uint64_t flags, QueuePlace<Queue> tx, QueuePlace<Queue> rx,
               bool tells_owners = false) noexcept
{
    if ((flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) || !(flags & (FI_TRANSMIT | FI_RECV)))
        return -FI_EBADFLAGS;
    if (&queue.domain != &domain || ((flags & FI_TRANSMIT) && tx.queue) || ((flags & FI_RECV) && rx.queue) ||
        (queue.owners.any() && !tells_owners))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if (flags & FI_TRANSMIT) {
        tx.queue = &queue;
        tx.selective = selective;
    }
    if (flags & FI_RECV) {
        rx.queue = &queue;
        rx.selective = selective;
    }
    return 0;
}

// Where an endpoint keeps the counter of an event (FI_SEND ...).
struct CounterPlace {
    std::uint64_t event;
    Cntr *&counter;
};

// 0, or -FI_EINVAL for events that have no place, and then nothing is bound.
inline int bind_counter(const Domain &domain, Cntr &counter, std::uint64_t flags,
                        std::initializer_list<CounterPlace> places) noexcept
{
    std::uint64_t known = 0;
    for (const CounterPlace &place : places)
        known |= place.event;
    if ((flags & ~known) || !flags || &counter.domain != &domain)
        return -FI_EINVAL;
    for (const CounterPlace &place : places) {
        if (flags & place.event)
            place.counter = &counter;
    }
    return 0;
}

// Without a queue of the program's, counters are what tells of completions, and reading them makes the progress. One
// for both halves, which `hidden` keeps. `open` is the device's open_cq(). 0 or a negative fi_errno.
template <typename Queue, typename Open>
int own_queue(Domain &domain, Open &&open, std::unique_ptr<Queue> &hidden, Queue *&queue) noexcept
{
    if (!hidden) {
        fid_cq *opened = nullptr;
        if (const int error = open(domain, nullptr, &opened, nullptr))
            return error;
        hidden.reset(&static_cast<Queue &>(cq_of(opened)));
        hidden->nobody_reads = true;
        domain.refs.fetch_sub(1, std::memory_order_relaxed); // nobody but us knows it
    }
    queue = hidden.get();
    return 0;
}

} // namespace vma::ofi
