// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context: receives of many endpoints in one queue of the device. They complete in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "core/spinlock.hpp"
#include "verbs/domain.hpp"
#include "verbs/work.hpp"

namespace vma::verbs {

struct SharedReceive {
    fid_ep fid{}; // first
    ofi::Domain &domain;
    ibv_srq *srq = nullptr;
    std::size_t size;
    std::atomic<int> refs{0}; // endpoints that share it

    core::SpinLock lock; // protects what follows
    std::vector<Work> works;
    std::vector<std::uint32_t> free; // numbers of unused places

    SharedReceive(ofi::Domain &owner, std::size_t entries) noexcept : domain(owner), size(entries) {}
    ~SharedReceive();
    int open() noexcept;

    ssize_t post(const iovec *iov, void **desc, std::size_t count, void *context) noexcept;
    Work complete(std::uint64_t number) noexcept;
    std::size_t left() noexcept;
};

// Fills a list for the device, of kMostIov, from what a program gave, and adds up its bytes; false where it is none.
// Inline because each message goes through it.
inline bool fill_list(const iovec *iov, void **desc, std::size_t count, ibv_sge *list, std::uint64_t &length) noexcept
{
    if (count > ofi::kIovLimit || (count > 0 && iov == nullptr))
        return false;
    for (std::size_t i = 0; i < count; ++i) {
        if (iov[i].iov_len > UINT32_MAX)
            return false;
        list[i] = {.addr = reinterpret_cast<std::uintptr_t>(iov[i].iov_base),
                   .length = static_cast<std::uint32_t>(iov[i].iov_len),
                   .lkey = local_key(desc != nullptr ? desc[i] : nullptr)};
        length += iov[i].iov_len;
    }
    return true;
}

int open_srx(ofi::Domain &domain, const fi_rx_attr *attr, fid_ep **srx, void *context) noexcept;

} // namespace vma::verbs
