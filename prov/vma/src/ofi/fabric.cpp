// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/fabric.hpp"

#include <cstring>
#include <new>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/cq.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/ops.hpp"
#include "ofi/process_ops.hpp"

namespace vma::ofi {
namespace {

Fabric &self(fid_t fid)
{
    return *reinterpret_cast<Fabric *>(fid);
}

int close_fabric(fid_t fid)
{
    Fabric &fabric = self(fid);
    if (fabric.orphaned())
        return 0; // its locks and threads are the parent's: left alone
    if (fabric.refs.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    delete &fabric;
    return 0;
}

int open_passive(fid_fabric *fid, fi_info *info, fid_pep **pep, void *context)
{
    Fabric &fabric = fabric_of(fid);
    if (fabric.orphaned())
        return -FI_EOPBADSTATE;
    return fabric.device->passive_ep(info, pep, context);
}

int try_one(fid_t fid)
{
    switch (fid->fclass) {
    case FI_CLASS_EQ:
        return eq_trywait(eq_of(reinterpret_cast<fid_eq *>(fid)));
    case FI_CLASS_CQ:
        return cq_of(fid).trywait(cq_of(fid));
    case FI_CLASS_CNTR:
        return 0;
    default:
        return -FI_EINVAL;
    }
}

int trywait(fid_fabric *fid, fid_t *fids, int count)
{
    Fabric &fabric = fabric_of(fid);
    if (fabric.orphaned())
        return -FI_EOPBADSTATE;
    for (int i = 0; i < count; ++i) {
        if (const int result = try_one(fids[i]))
            return result;
    }
    return 0;
}

int open_ops(fid_t fid, const char *name, std::uint64_t, void **ops, void *)
{
    if (name == nullptr || ops == nullptr)
        return -FI_ENOSYS;
    Fabric &fabric = *reinterpret_cast<Fabric *>(fid);
    const bool common = std::strcmp(name, FI_VMA_PROCESS_OPS) == 0;
    *ops = common ? &process_ops : fabric.orphaned() ? nullptr : fabric.device->ops(name);
    return *ops != nullptr ? 0 : -FI_ENOSYS;
}

constinit fi_ops g_fid_ops = FidOps{.close = close_fabric, .ops_open = open_ops};

constinit fi_ops_fabric g_fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = open_domain,
    .passive_ep = open_passive,
    .eq_open = open_eq,
    .wait_open = no_op,
    .trywait = trywait,
    .domain2 = no_op,
};

// Without a name: the one that every host has.
const Device *find_device(const char *name)
{
    for (const Device *device : kDevices) {
        if (name == nullptr || std::strcmp(name, device->name) == 0)
            return device;
    }
    return nullptr;
}

} // namespace

int open_fabric(fi_fabric_attr *attr, fid_fabric **fabric, void *context)
{
    if (attr == nullptr || fabric == nullptr)
        return -FI_EINVAL;
    const Device *device = find_device(attr->name);
    if (device == nullptr) {
        VMA_WARN(fabric, "there is no fabric of the name %s", attr->name);
        return -FI_ENODATA;
    }
    std::unique_ptr<Fabric> opened(new (std::nothrow) Fabric);
    if (!opened)
        return -FI_ENOMEM;
    int error = 0;
    opened->device = device->open(*opened, &error);
    if (!opened->device)
        return error;
    opened->fid.fid = {FI_CLASS_FABRIC, context, &g_fid_ops};
    opened->fid.ops = &g_fabric_ops;
    opened->fid.api_version = attr->api_version;
    *fabric = &opened.release()->fid;
    return 0;
}

} // namespace vma::ofi
