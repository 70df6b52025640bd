// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/memory/device_mr.hpp"

#include <cerrno>
#include <cstring>

#include "core/log.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ofi {
namespace {

int close_region(fid *fid)
{
    auto *const closed = reinterpret_cast<DeviceMr *>(fid);
    if (closed->domain.fabric.orphaned())
        return 0; // the parent's
    if (const int error = closed->release(closed->handle))
        return -error;
    closed->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete closed;
    return 0;
}

int control_region(fid *fid, int command, void *argument)
{
    if (static_cast<unsigned>(command) != FI_VMA_LOCAL_KEY)
        return -FI_ENOSYS;
    if (argument == nullptr)
        return -FI_EINVAL;
    *static_cast<std::uint32_t *>(argument) = reinterpret_cast<DeviceMr *>(fid)->local_key;
    return 0;
}

constinit fi_ops g_fid_ops = FidOps{.close = close_region, .control = control_region};

} // namespace

void publish(std::unique_ptr<DeviceMr> made, const fi_mr_attr &attr, fid_mr **out) noexcept
{
    made->fid.fid = {FI_CLASS_MR, attr.context, &g_fid_ops};
    made->fid.mem_desc = made.get();
    made->fid.key = made->remote_key;
    made->domain.refs.fetch_add(1, std::memory_order_relaxed);
    *out = &made.release()->fid;
}

int refused(std::size_t bytes, int error) noexcept
{
    VMA_WARN(mr, "cannot register %zu bytes: %s%s", bytes, std::strerror(error),
             error == ENOMEM ? " (ulimit -l says how much memory may be locked)" : "");
    return -error;
}

} // namespace vma::ofi
