// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/domain.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "core/fd.hpp"
#include "core/log.hpp"
#include "ofi/memory/mr_calls.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {
namespace {

ibv_context *open_device(const char *name)
{
    int count = 0;
    ibv_device **list = table()->get_device_list(&count);
    if (list == nullptr)
        return nullptr;
    ibv_context *context = nullptr;
    errno = ENODEV;
    for (int i = 0; i < count && context == nullptr; ++i) {
        if (std::strcmp(table()->get_device_name(list[i]), name) == 0)
            context = table()->open_device(list[i]);
    }
    const int error = errno;
    table()->free_device_list(list);
    errno = error;
    return context;
}

} // namespace

int NicDomain::open() noexcept
{
    context_ = open_device(nic_.name);
    if (context_ != nullptr)
        pd_ = table()->alloc_pd(context_);
    if (pd_ == nullptr) {
        const int error = last_error();
        VMA_WARN(domain, "cannot open RDMA device %s: %s", nic_.name, std::strerror(-error));
        return error;
    }
    clock_.start(context_, nic_);
    source_ = {this, [](void *object) noexcept { static_cast<NicDomain *>(object)->read_event(); }};
    if (!core::set_nonblocking(context_->async_fd) || !manager_.watch(source_, context_->async_fd))
        return last_error();
    return 0;
}

NicDomain::~NicDomain()
{
    if (context_ != nullptr && source_.object != nullptr) {
        const std::lock_guard guard(manager_.mutex());
        manager_.unwatch(context_->async_fd);
    }
    if (pd_ != nullptr)
        table()->dealloc_pd(pd_);
    if (context_ != nullptr)
        table()->close_device(context_);
}

void NicDomain::read_event() noexcept
{
    ibv_async_event event{};
    if (table()->get_async_event(context_, &event) != 0)
        return;
    const char *text = table()->event_type_str(event.event_type);
    ibv_qp *qp = nullptr;
    switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
        qp = event.element.qp;
        break;
    case IBV_EVENT_DEVICE_FATAL: // librdmacm tells each connection of it
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_PORT_ERR:
        VMA_WARN(domain, "RDMA device %s: %s", nic_.name, text);
        break;
    default:
        VMA_DEBUG(domain, "RDMA device %s: %s", nic_.name, text);
    }
    auto *endpoint = qp != nullptr ? static_cast<Endpoint *>(qp->qp_context) : nullptr;
    if (endpoint != nullptr)
        endpoint->on_broken(text);
    table()->ack_async_event(&event); // ibv_destroy_qp() waits for it, and so does the endpoint's end
}

int open_nic_domain(Manager &manager, ofi::Domain &domain, const fi_info &info) noexcept
{
    const char *name = info.domain_attr->name;
    const Nic *nic = name != nullptr ? find_nic(name) : nullptr;
    if (nic == nullptr) {
        VMA_WARN(domain, "there is no RDMA device of the name %s", name != nullptr ? name : "(none)");
        return -FI_EINVAL;
    }
    std::unique_ptr<NicDomain> opened(new (std::nothrow) NicDomain(manager, *nic));
    if (!opened)
        return -FI_ENOMEM;
    const std::lock_guard guard(manager.mutex());
    if (const int error = opened->open())
        return error;
    domain.device = std::move(opened);
    domain.fid.mr = &registration_ops;
    return 0;
}

// ---- registrations -------------------------------------------------------------------------------------------------

int register_memory(ibv_pd *pd, void *memory, std::size_t bytes, int access, ibv_mr *&mr) noexcept
{
    mr = table()->reg_mr(pd, memory, bytes, access);
    if (mr != nullptr)
        return 0;
    return ofi::refused(bytes, -last_error());
}

namespace {

constexpr std::uint64_t kAccessBits = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// What a device may do to memory (ibv_reg_mr(3)): writing by a peer includes writing by the device itself.
int access_flags(std::uint64_t access)
{
    int flags = 0;
    if ((access & (FI_RECV | FI_READ | FI_REMOTE_WRITE)) != 0)
        flags |= IBV_ACCESS_LOCAL_WRITE;
    if ((access & FI_REMOTE_WRITE) != 0)
        flags |= IBV_ACCESS_REMOTE_WRITE;
    if ((access & FI_REMOTE_READ) != 0)
        flags |= IBV_ACCESS_REMOTE_READ;
    return flags;
}

int release(void *mr) noexcept
{
    return table()->dereg_mr(static_cast<ibv_mr *>(mr));
}

int regattr(fid *fid, const fi_mr_attr *attr, std::uint64_t, fid_mr **out)
{
    if (fid->fclass != FI_CLASS_DOMAIN || attr == nullptr || out == nullptr || attr->mr_iov == nullptr ||
        attr->iov_count != 1 || (attr->access & ~kAccessBits) != 0 || attr->offset != 0)
        return -FI_EINVAL;
    if (attr->iface != FI_HMEM_SYSTEM)
        return -FI_ENOSYS;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    return ofi::register_with_device(domain, *attr, out, [&](const iovec &memory, ofi::DeviceMr &made) {
        ibv_mr *mr = nullptr;
        if (const int error = register_memory(nic_domain(domain).pd(), memory.iov_base, memory.iov_len,
                                              access_flags(attr->access), mr))
            return error;
        made.handle = mr;
        made.release = release;
        made.local_key = mr->lkey;
        made.remote_key = mr->rkey;
        return 0;
    });
}

} // namespace

fi_ops_mr registration_ops = ofi::MrCalls<regattr>::kOps;

} // namespace vma::verbs
