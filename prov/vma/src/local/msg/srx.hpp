// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context: one queue of posted receives for many endpoints.
#pragma once

#include <atomic>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "local/rxqueue.hpp"

namespace vma::ofi {
struct Domain;
}

namespace vma::local {

struct SharedReceive {
    fid_ep fid{}; // first
    ofi::Domain &domain;
    RxQueue receives;
    std::uint64_t flags = 0;  // of calls that carry none
    std::atomic<int> refs{0}; // endpoints

    SharedReceive(ofi::Domain &owner, std::size_t size, bool locks) noexcept : domain(owner), receives(size, locks) {}
};

int open_srx(ofi::Domain &domain, const fi_rx_attr *attr, fid_ep **srx, void *context) noexcept;

} // namespace vma::local
