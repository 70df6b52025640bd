// SPDX-License-Identifier: BSD-2-Clause
// The completion queue of Ethernet NICs: entries that tell which streams can be read or written, and completions of
// datagrams. Reading it moves the NIC on.
#pragma once

#include <atomic>

#include <rdma/fabric.h>

#include "core/fd.hpp"
#include "ether/fabric.hpp"
#include "ofi/cq.hpp"

namespace vma::ether {

struct Queue : ofi::Cq {
    explicit Queue(ofi::Domain &owner) noexcept : Cq(owner), port_context(port_context_of(owner)) {}
    int open() noexcept; // 0 or a negative fi_errno

    // The port context's lock may be held, the queue's own not.
    void push(const ofi::Completion &completion) noexcept;
    template <fi_cq_format Format> ssize_t read(void *buffer, std::size_t count, fi_addr_t *sources) noexcept;
    // A closing endpoint's entries are never read. As push().
    void leave(const void *endpoint) noexcept;
    // Whether a sleeper would miss nothing. After `true` the wait descriptor becomes readable with the next entry.
    bool arm() noexcept;

    PortContext &port_context;
    core::UniqueFd news;       // eventfd: another thread has brought an entry, or fi_cq_signal()
    core::UniqueFd wait_set;   // epoll: that, and the port context's
    std::atomic<int> users{0}; // halves of endpoints that are bound to it
    bool armed = false;        // this and below: with `lock` held
    bool signalled = false;
};

// Of those that fi_ep_bind() names: each counts as a user.
inline int halves_of(std::uint64_t flags) noexcept
{
    return ((flags & FI_TRANSMIT) != 0 ? 1 : 0) + ((flags & FI_RECV) != 0 ? 1 : 0);
}

int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept;

} // namespace vma::ether
