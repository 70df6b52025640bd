// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/domain.hpp"

#include <memory>
#include <new>

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/av.hpp"
#include "ofi/cntr.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/memory/atomic_apply.hpp"
#include "ofi/memory/mr.hpp"
#include "ofi/ops.hpp"
#include "ofi/poll_set.hpp"

namespace vma::ofi {
namespace {

Domain &self(fid_t fid)
{
    return *reinterpret_cast<Domain *>(fid);
}

int close_domain(fid_t fid)
{
    Domain &domain = self(fid);
    if (domain.fabric.orphaned())
        return 0;
    if (domain.refs.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    if (domain.eq != nullptr)
        domain.eq->refs.fetch_sub(1, std::memory_order_release);
    domain.fabric.refs.fetch_sub(1, std::memory_order_release);
    destroy_mr_table(domain);
    delete &domain;
    return 0;
}

int bind_domain(fid_t fid, fid_t other, std::uint64_t)
{
    Domain &domain = self(fid);
    if (other == nullptr || other->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    Eq &eq = eq_of(reinterpret_cast<fid_eq *>(other));
    if (domain.eq != nullptr || &eq.fabric != &domain.fabric)
        return -FI_EINVAL;
    eq.refs.fetch_add(1, std::memory_order_relaxed);
    domain.eq = &eq;
    return 0;
}

int open_endpoint(fid_domain *fid, fi_info *info, fid_ep **ep, void *context)
{
    Domain &domain = domain_of(fid);
    if (info == nullptr || ep == nullptr)
        return -FI_EINVAL;
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    return domain.fabric.device->endpoint(domain, info, ep, context);
}

// An object of FI_PEER is an owner's in part (fi_peer(3)). Only domains that were asked for it know such.
bool may_open(const Domain &domain, std::uint64_t flags, const char *what)
{
    if ((flags & FI_PEER) == 0 || (domain.caps & FI_PEER) != 0)
        return true;
    VMA_WARN(domain, "%s with FI_PEER in a domain that was opened without this capability is refused", what);
    return false;
}

int open_srx(fid_domain *fid, fi_rx_attr *attr, fid_ep **ep, void *context)
{
    Domain &domain = domain_of(fid);
    if (ep == nullptr || !may_open(domain, attr != nullptr ? attr->op_flags : 0, "a shared receive context"))
        return -FI_EINVAL;
    return domain.fabric.orphaned() ? -FI_EOPBADSTATE : domain.fabric.device->shared_receive(domain, attr, ep, context);
}

int open_completion_queue(fid_domain *fid, fi_cq_attr *attr, fid_cq **cq, void *context)
{
    Domain &domain = domain_of(fid);
    if (cq == nullptr || !may_open(domain, attr != nullptr ? attr->flags : 0, "a completion queue"))
        return -FI_EINVAL;
    return domain.fabric.orphaned() ? -FI_EOPBADSTATE
                                    : domain.fabric.device->completion_queue(domain, attr, cq, context);
}

int open_counter(fid_domain *fid, fi_cntr_attr *attr, fid_cntr **cntr, void *context)
{
    Domain &domain = domain_of(fid);
    if (cntr == nullptr || !may_open(domain, attr != nullptr ? attr->flags : 0, "a counter"))
        return -FI_EINVAL;
    return domain.fabric.orphaned() ? -FI_EOPBADSTATE : open_cntr(domain, attr, cntr, context);
}

// Of domains that were opened for atomic operations: no other device has them.
int query_atomic(fid_domain *fid, fi_datatype type, fi_op op, fi_atomic_attr *attr, std::uint64_t flags)
{
    constexpr std::uint64_t kKinds = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;
    if (attr == nullptr || (flags & kKinds) == kKinds)
        return -FI_EINVAL;
    const AtomicKind kind = (flags & FI_FETCH_ATOMIC) != 0     ? AtomicKind::fetch
                            : (flags & FI_COMPARE_ATOMIC) != 0 ? AtomicKind::compare
                                                               : AtomicKind::base;
    if ((flags & ~kKinds) != 0 || (domain_of(fid).caps & FI_ATOMIC) == 0 || !atomic_valid(kind, type, op))
        return -FI_EOPNOTSUPP;
    attr->size = atomic_size(type);
    attr->count = kAtomicBytes / attr->size;
    return 0;
}

// Utility providers ask for extensions by name; -FI_ENOSYS, and nothing else, means "not this one".
constinit fi_ops g_fid_ops = FidOps{.close = close_domain, .bind = bind_domain};

constinit fi_ops_domain g_domain_ops = {
    .size = sizeof(fi_ops_domain),
    .av_open = open_av,
    .cq_open = open_completion_queue,
    .endpoint = open_endpoint,
    .scalable_ep = no_op,
    .cntr_open = open_counter,
    .poll_open = open_poll_set,
    .stx_ctx = no_op,
    .srx_ctx = open_srx,
    .query_atomic = query_atomic,
    .query_collective = no_op,
    .endpoint2 = no_op,
};

bool info_fits(const fi_info *info)
{
    if (info == nullptr || info->domain_attr == nullptr)
        return false;
    const fi_domain_attr &attr = *info->domain_attr;
    return attr.threading <= FI_THREAD_ENDPOINT && attr.data_progress != FI_PROGRESS_AUTO;
}

void take_promises(Domain &domain, const fi_info &info)
{
    const fi_domain_attr &attr = *info.domain_attr;
    domain.addresses = AddressFormat(&info);
    domain.caps = (info.caps != 0 ? info.caps : kCaps) | attr.caps;
    if (attr.threading != FI_THREAD_UNSPEC)
        domain.threading = attr.threading;
    const std::uint32_t type = endpoint_type(info.ep_attr);
    domain.datagrams = type == FI_EP_DGRAM || type == FI_EP_RDM;
    domain.mr_mode = attr.mr_mode;
    const bool basic = attr.mr_mode == kMrBasic;
    domain.virt_addr = basic || (attr.mr_mode & FI_MR_VIRT_ADDR) != 0;
    domain.prov_key = basic || (attr.mr_mode & FI_MR_PROV_KEY) != 0;
}

} // namespace

int open_domain(fid_fabric *fid, fi_info *info, fid_domain **domain, void *context)
{
    Fabric &fabric = fabric_of(fid);
    if (domain == nullptr || !info_fits(info))
        return -FI_EINVAL;
    if (fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::unique_ptr<Domain> opened(new (std::nothrow) Domain(fabric));
    if (!opened)
        return -FI_ENOMEM;
    take_promises(*opened, *info);
    opened->fid.fid = {FI_CLASS_DOMAIN, context, &g_fid_ops};
    opened->fid.ops = &g_domain_ops;
    if (const int error = fabric.device->domain(*opened, *info))
        return error;
    fabric.refs.fetch_add(1, std::memory_order_relaxed);
    *domain = &opened.release()->fid;
    return 0;
}

} // namespace vma::ofi
