// SPDX-License-Identifier: BSD-2-Clause
#include "ether/registration.hpp"

#include <cerrno>

#include <rdma/fi_errno.h>

#include "ether/fabric.hpp"
#include "ofi/memory/device_mr.hpp"
#include "ofi/memory/mr.hpp"
#include "ofi/memory/mr_calls.hpp"

namespace vma::ether {
namespace {

int release(void *mr) noexcept
{
    return verbs::table()->dereg_mr(static_cast<ibv_mr *>(mr));
}

// nullptr: by AF_XDP. It stays as long as the domain is open.
ibv_pd *protection_domain(ofi::Domain &domain) noexcept
{
    PortContext &port_context = *static_cast<EtherDomain &>(*domain.device).port_context;
    const core::SpinGuard guard(port_context.lock());
    return port_context.net_if().protection_domain();
}

// Nobody writes to it from elsewhere, so only what the device itself may do is of account. Without the port context's
// lock: it pins pages.
int register_with(ibv_pd *pd, ofi::Domain &domain, const fi_mr_attr &attr, fid_mr **out) noexcept
{
    const int access = (attr.access & (FI_RECV | FI_READ | FI_REMOTE_WRITE)) != 0 ? IBV_ACCESS_LOCAL_WRITE : 0;
    return ofi::register_with_device(domain, attr, out, [pd, access](const iovec &memory, ofi::DeviceMr &made) {
        errno = 0;
        ibv_mr *const mr = verbs::table()->reg_mr(pd, memory.iov_base, memory.iov_len, access);
        if (mr == nullptr)
            return ofi::refused(memory.iov_len, errno != 0 ? errno : EIO);
        made.handle = mr;
        made.release = release;
        made.local_key = mr->lkey;
        made.remote_key = mr->rkey;
        return 0;
    });
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
