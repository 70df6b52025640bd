// SPDX-License-Identifier: BSD-2-Clause
// The calls of struct fi_ops that shared receive contexts of all kinds have alike. A `Shared` begins with its fid, and
// has its domain and the number of endpoints that use it.
#pragma once

#include <atomic>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "ofi/domain.hpp"

namespace vma::ofi {

template <typename Shared> int close_shared(fid *fid)
{
    auto *const shared = reinterpret_cast<Shared *>(fid);
    if (shared->domain.fabric.orphaned())
        return 0; // the parent's
    if (shared->refs.load(std::memory_order_relaxed) != 0)
        return -FI_EBUSY;
    shared->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete shared;
    return 0;
}

// Some programs enable every endpoint-like object they have.
inline int control_shared(fid *, int command, void *)
{
    return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

} // namespace vma::ofi
