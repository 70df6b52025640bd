// SPDX-License-Identifier: BSD-2-Clause
#include "ether/registration.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ether/ports.hpp"
#include "ofi/mr.hpp"
#include "ofi/mr_calls.hpp"
#include "ofi/noop.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {
namespace {

struct Registration {
    fid_mr fid{}; // first
    ofi::Domain &domain;
    ibv_mr *mr = nullptr;

    explicit Registration(ofi::Domain &owner) noexcept : domain(owner) {}
};

int close_region(fid *fid)
{
    auto *const closed = reinterpret_cast<Registration *>(fid);
    if (closed->domain.fabric.orphaned())
        return 0; // the parent's
    if (const int error = verbs::table()->dereg_mr(closed->mr))
        return -error;
    closed->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete closed;
    return 0;
}

int control(fid *fid, int command, void *argument)
{
    if (static_cast<unsigned>(command) != FI_VMA_LOCAL_KEY)
        return -FI_ENOSYS;
    if (argument == nullptr)
        return -FI_EINVAL;
    *static_cast<std::uint32_t *>(argument) = reinterpret_cast<Registration *>(fid)->mr->lkey;
    return 0;
}

constinit fi_ops g_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_region,
    .bind = ofi::no_op,
    .control = control,
    .ops_open = ofi::no_op,
    .tostr = ofi::no_op,
    .ops_set = ofi::no_op,
};

// nullptr: by AF_XDP. It stays as long as the domain is open.
ibv_pd *protection_domain(ofi::Domain &domain) noexcept
{
    Station &station = *static_cast<PortDomain &>(*domain.device).station;
    const core::SpinGuard guard(station.lock());
    return station.driver().protection_domain();
}

// Nobody writes to it from elsewhere, so only what the device itself may do is of account. Without the station's lock: it pins pages.
int register_with(ibv_pd *pd, ofi::Domain &domain, const fi_mr_attr &attr, fid_mr **out) noexcept
{
    std::unique_ptr<Registration> region(new (std::nothrow) Registration(domain));
    if (!region)
        return -FI_ENOMEM;
    const iovec &memory = attr.mr_iov[0];
    const int access = (attr.access & (FI_RECV | FI_READ | FI_REMOTE_WRITE)) != 0 ? IBV_ACCESS_LOCAL_WRITE : 0;
    errno = 0;
    region->mr = verbs::table()->reg_mr(pd, memory.iov_base, memory.iov_len, access);
    if (region->mr == nullptr) {
        const int error = errno != 0 ? errno : EIO;
        VMA_WARN(mr, "cannot register %zu bytes: %s%s", memory.iov_len, std::strerror(error),
                 error == ENOMEM ? " (ulimit -l says how much memory may be locked)" : "");
        return -error;
    }
    region->fid.fid = {FI_CLASS_MR, attr.context, &g_fid_ops};
    region->fid.mem_desc = region.get();
    region->fid.key = region->mr->rkey;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *out = &region.release()->fid;
    return 0;
}

int regattr(fid *fid, const fi_mr_attr *attr, std::uint64_t flags, fid_mr **out)
{
    if (fid->fclass != FI_CLASS_DOMAIN || attr == nullptr || out == nullptr)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    ibv_pd *const pd = protection_domain(domain);
    if (pd == nullptr)
        return ofi::mr_ops.regattr(fid, attr, flags, out);
    if (attr->mr_iov == nullptr || attr->iov_count != 1 || attr->offset != 0)
        return -FI_EINVAL;
    return attr->iface == FI_HMEM_SYSTEM ? register_with(pd, domain, *attr, out) : -FI_ENOSYS;
}

} // namespace

fi_ops_mr registration_ops = ofi::MrCalls<regattr>::kOps;

} // namespace vma::ether
