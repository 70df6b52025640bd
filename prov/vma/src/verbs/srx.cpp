// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/srx.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "ofi/ops.hpp"
#include "ofi/shared_receive.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {

SharedReceive::~SharedReceive()
{
    if (srq != nullptr)
        table()->destroy_srq(srq);
}

int SharedReceive::open() noexcept
{
    const NicDomain &nic = nic_domain(domain);
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = static_cast<std::uint32_t>(size);
    attr.attr.max_sge = std::min<std::uint32_t>(nic.nic().max_sge, kMostIov);
    srq = table()->create_srq(nic.pd(), &attr);
    if (srq == nullptr)
        return last_error();
    works.resize(size);
    free.reserve(size);
    for (std::size_t i = size; i > 0; --i)
        free.push_back(static_cast<std::uint32_t>(i - 1));
    lock.set_enabled(domain.needs_locks());
    return 0;
}

ssize_t SharedReceive::post(const iovec *iov, void **desc, std::size_t count, void *context) noexcept
{
    ibv_sge list[kMostIov];
    std::uint64_t length = 0;
    if (!fill_list(iov, desc, count, list, length))
        return -FI_EINVAL;
    const core::SpinGuard guard(lock);
    if (free.empty())
        return -FI_EAGAIN;
    const std::uint32_t number = free.back();
    works[number] = {.context = context, .flags = FI_RECV | FI_MSG, .counter = nullptr, .wanted = true};
    ibv_recv_wr wr{.wr_id = number | kReceiveBit, .next = nullptr, .sg_list = list, .num_sge = static_cast<int>(count)};
    ibv_recv_wr *refused = nullptr;
    if (const int error = ibv_post_srq_recv(srq, &wr, &refused))
        return error == ENOMEM ? -FI_EAGAIN : -error;
    free.pop_back();
    return 0;
}

Work SharedReceive::complete(std::uint64_t number) noexcept
{
    const core::SpinGuard guard(lock);
    free.push_back(static_cast<std::uint32_t>(number));
    return works[number];
}

std::size_t SharedReceive::left() noexcept
{
    const core::SpinGuard guard(lock);
    return free.size();
}

namespace {

SharedReceive &from(fid_ep *ep) noexcept
{
    return *reinterpret_cast<SharedReceive *>(ep);
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *desc, fi_addr_t, void *context)
{
    const iovec iov{buffer, length};
    return from(ep).post(&iov, &desc, 1, context);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **desc, std::size_t count, fi_addr_t, void *context)
{
    return from(ep).post(iov, desc, count, context);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t)
{
    return from(ep).post(message->msg_iov, message->desc, message->iov_count, message->context);
}

ssize_t rx_size_left(fid_ep *ep)
{
    return static_cast<ssize_t>(from(ep).left());
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = ofi::close_shared<SharedReceive>, .control = ofi::control_shared};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{.rx_size_left = rx_size_left};

constinit fi_ops_msg g_msg_ops = ofi::MsgOps{.recv = recv, .recvv = recvv, .recvmsg = recvmsg};

} // namespace

int open_srx(ofi::Domain &domain, const fi_rx_attr *attr, fid_ep **srx, void *context) noexcept
{
    const ofi::Offer &offer = nic_domain(domain).nic().offer;
    const std::size_t size = attr != nullptr && attr->size != 0 ? attr->size : offer.rx.size;
    if (size > offer.most_size)
        return -FI_EINVAL;
    std::unique_ptr<SharedReceive> shared(new (std::nothrow) SharedReceive(domain, size));
    if (!shared)
        return -FI_ENOMEM;
    if (const int error = shared->open())
        return error;
    shared->fid.fid = {FI_CLASS_SRX_CTX, context, &g_fid_ops};
    shared->fid.ops = &g_ep_ops;
    shared->fid.msg = &g_msg_ops;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *srx = &shared.release()->fid;
    return 0;
}

} // namespace vma::verbs
