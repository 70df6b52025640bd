// SPDX-License-Identifier: BSD-2-Clause
#include "ether/fabric.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/dgram/endpoint.hpp"
#include "ether/dgram/udp_tap.hpp"
#include "ether/list.hpp"
#include "ether/netlink/message.hpp"
#include "ether/pep.hpp"
#include "ether/queue.hpp"
#include "ether/registration.hpp"
#include "ether/stream/endpoint.hpp"
#include "ether/xdp/bpf.hpp"
#include "ofi/info/attr.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ofi {

constinit const Device kEtherDevice = {ether::kFabricName, ether::list_infos, ether::EtherFabric::open,
                                       ether::EtherFabric::open_libraries};

} // namespace vma::ofi

namespace vma::ether {

void EtherFabric::open_libraries() noexcept
{
    mnl();
    bpf::table();
}

std::unique_ptr<ofi::DeviceFabric> EtherFabric::open(ofi::Fabric &fabric, int *error) noexcept
{
    std::unique_ptr<EtherFabric> opened(new (std::nothrow) EtherFabric(fabric));
    *error = -FI_ENOMEM;
    if (!opened)
        return nullptr;
    opened->wait_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    opened->service_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    *error = -errno;
    return opened->wait_set_ && opened->service_set_ ? std::move(opened) : nullptr;
}

void EtherFabric::serve() noexcept
{
    const std::unique_lock guard(mutex_, std::try_to_lock);
    if (!guard)
        return;
    for (const std::shared_ptr<PortContext> &port_context : port_contexts_)
        port_context->serve();
}

void EtherFabric::progress(bool wait) noexcept
{
    std::unique_lock guard(mutex_, std::defer_lock);
    if (wait)
        guard.lock();
    else if (!guard.try_lock())
        return;
    for (const std::shared_ptr<PortContext> &port_context : port_contexts_) {
        if (wait)
            port_context->prepare_to_sleep();
        else
            port_context->progress();
    }
}

int EtherFabric::port_context_of(const fi_info &info, std::shared_ptr<PortContext> &port_context) noexcept
{
    const char *name = info.domain_attr != nullptr ? info.domain_attr->name : nullptr;
    if (name == nullptr) {
        VMA_WARN(domain, "an info of the fabric %s has to name its domain, which is the port", kFabricName);
        return -FI_EINVAL;
    }
    if (const int error = PortContext::open(name, port_context))
        return error;
    const std::lock_guard guard(mutex_);
    if (std::find(port_contexts_.begin(), port_contexts_.end(), port_context) != port_contexts_.end())
        return 0;
    const int service = port_context->service_fd();
    if (!core::watch_fd(wait_set_.get(), port_context->wait_fd()) ||
        (service >= 0 && !core::watch_fd(service_set_.get(), service)))
        return -errno;
    port_contexts_.push_back(port_context);
    return 0;
}

int EtherFabric::domain(ofi::Domain &domain, const fi_info &info) noexcept
{
    std::unique_ptr<EtherDomain> opened(new (std::nothrow) EtherDomain);
    if (!opened)
        return -FI_ENOMEM;
    if (const int error = port_context_of(info, opened->port_context))
        return error;
    domain.device = std::move(opened);
    domain.fid.mr = &registration_ops;
    return 0;
}

int EtherFabric::passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept
{
    return open_passive_endpoint(*this, info, pep, context);
}

int EtherFabric::endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept
{
    switch (ofi::endpoint_type(info->ep_attr)) {
    case FI_EP_UNSPEC:
    case FI_EP_VMA_STREAM:
        return open_stream(domain, *info, ep, context);
    case FI_EP_DGRAM:
        return open_datagrams(domain, *info, ep, context);
    default:
        return -FI_EINVAL;
    }
}

int EtherFabric::shared_receive(ofi::Domain &, fi_rx_attr *, fid_ep **, void *) noexcept
{
    return -FI_ENOSYS; // there are no posted receives that could be shared
}

int EtherFabric::completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    return open_cq(domain, attr, cq, context);
}

void *EtherFabric::ops(const char *name) noexcept
{
    return std::strcmp(name, FI_VMA_UDP_OPS) == 0 ? &udp_ops : nullptr;
}

// ---- connection requests --------------------------------------------------------------------------------------------

Request *EtherFabric::add_request(const std::shared_ptr<PortContext> &port_context) noexcept
{
    std::unique_ptr<Request> request(new (std::nothrow) Request);
    if (!request)
        return nullptr;
    request->handle.fclass = FI_CLASS_CONNREQ;
    request->port_context = port_context;
    const core::SpinGuard guard(requests_lock_);
    requests_.insert(request.get());
    return request.release();
}

std::unique_ptr<Request> EtherFabric::take_request(const PortContext &port_context, fid_t handle) noexcept
{
    auto *const request = reinterpret_cast<Request *>(handle);
    const core::SpinGuard guard(requests_lock_);
    const auto place = requests_.find(request);
    if (place == requests_.end() || request->port_context.get() != &port_context)
        return nullptr;
    requests_.erase(place);
    return std::unique_ptr<Request>(request);
}

void EtherFabric::leave_requests(const PassiveEndpoint &pep) noexcept
{
    const core::SpinGuard guard(requests_lock_);
    for (Request *request : requests_) {
        if (request->pep == &pep)
            request->pep = nullptr;
    }
}

} // namespace vma::ether
