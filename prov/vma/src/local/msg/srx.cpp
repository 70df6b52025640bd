// SPDX-License-Identifier: BSD-2-Clause
// The calls of a shared receive context.
#include "local/msg/srx.hpp"

#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "ofi/domain.hpp"
#include "ofi/ops.hpp"
#include "ofi/shared_receive.hpp"

namespace vma::local {

namespace {

SharedReceive &from(fid_ep *ep) noexcept
{
    return *reinterpret_cast<SharedReceive *>(ep);
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t, void *context)
{
    const iovec iov{buffer, length};
    return from(ep).receives.post(&iov, 1, context, true);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, void *context)
{
    return from(ep).receives.post(iov, count, context, true);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t)
{
    return from(ep).receives.post(message->msg_iov, message->iov_count, message->context, true);
}

ssize_t rx_size_left(fid_ep *ep)
{
    return static_cast<ssize_t>(from(ep).receives.left());
}

constinit fi_ops srx_fid_ops = ofi::FidOps{.close = ofi::close_shared<SharedReceive>, .control = ofi::control_shared};

constinit fi_ops_ep srx_ep_ops = ofi::EpOps{.rx_size_left = rx_size_left};

constinit fi_ops_msg srx_msg_ops = ofi::MsgOps{.recv = recv, .recvv = recvv, .recvmsg = recvmsg};

} // namespace

int open_srx(ofi::Domain &domain, const fi_rx_attr *attr, fid_ep **srx, void *context) noexcept
{
    constexpr std::size_t kDefaultSize = 256;
    std::unique_ptr<SharedReceive> shared(
        new (std::nothrow) SharedReceive(domain, attr && attr->size ? attr->size : kDefaultSize, domain.needs_locks()));
    if (!shared)
        return -FI_ENOMEM;
    shared->fid.fid = {FI_CLASS_SRX_CTX, context, &srx_fid_ops};
    shared->fid.ops = &srx_ep_ops;
    shared->fid.msg = &srx_msg_ops;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *srx = &shared.release()->fid;
    return 0;
}

} // namespace vma::local
