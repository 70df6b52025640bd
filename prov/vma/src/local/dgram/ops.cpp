// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of a datagram endpoint, and its factory. The work is DatagramEndpoint's.
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "local/dgram/endpoint.hpp"
#include "local/ring/calls.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

using Calls = RingCalls<DatagramEndpoint>;

int close_endpoint(fid *fid)
{
    const DatagramEndpoint &endpoint = DatagramEndpoint::from(fid);
    return !endpoint.domain().fabric.orphaned() && endpoint.in_groups() ? -FI_EBUSY : Calls::close(fid);
}

ssize_t rx_size_left(fid_ep *ep)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    return endpoint.enabled() ? static_cast<ssize_t>(endpoint.receives_left()) : -FI_EOPBADSTATE;
}

int join(fid_ep *ep, const void *addr, std::uint64_t flags, fid_mc **mc, void *context)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    ofi::Address group;
    if (!endpoint.format().read_whole(addr, group))
        return -FI_EINVAL;
    return endpoint.join(group, flags, mc, context);
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close_endpoint, .bind = Calls::bind, .control = Calls::control};

constinit fi_ops_ep g_ep_ops =
    ofi::EpOps{.cancel = Calls::cancel, .getopt = Calls::getopt, .setopt = Calls::setopt, .rx_size_left = rx_size_left};

constinit fi_ops_cm g_cm_ops = ofi::CmOps{.setname = Calls::setname, .getname = Calls::getname, .join = join};

// ---- fi_ops_msg -----------------------------------------------------------------------------------------------------

ssize_t send_one(fid_ep *ep, const void *buffer, std::size_t length, const std::uint64_t *data, fi_addr_t to,
                 void *context) noexcept
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    const iovec iov{const_cast<void *>(buffer), length};
    return endpoint.send({&iov, 1, data, to, context, endpoint.wants_tx_completion(endpoint.tx_flags)});
}

ssize_t send(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t to, void *context)
{
    return send_one(ep, buffer, length, nullptr, to, context);
}

ssize_t senddata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t to,
                 void *context)
{
    return send_one(ep, buffer, length, &data, to, context);
}

ssize_t sendv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t to, void *context)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    return endpoint.send({iov, count, nullptr, to, context, endpoint.wants_tx_completion(endpoint.tx_flags)});
}

ssize_t sendmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    const std::uint64_t *data = (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    const bool tries = (flags & FI_VMA_TRY) != 0;
    return endpoint.send({message->msg_iov, message->iov_count, data, message->addr, message->context,
                          endpoint.wants_tx_completion(flags), tries || (flags & FI_VMA_TELL_DROP) != 0, tries});
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t to)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return DatagramEndpoint::from(ep).send({&iov, 1, nullptr, to, nullptr, false});
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t to)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return DatagramEndpoint::from(ep).send({&iov, 1, &data, to, nullptr, false});
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t, void *context)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    const iovec iov{buffer, length};
    return endpoint.post(&iov, 1, context, endpoint.rx_flags);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, void *context)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    return endpoint.post(iov, count, context, endpoint.rx_flags);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    return DatagramEndpoint::from(ep).post(message->msg_iov, message->iov_count, message->context, flags);
}

constinit fi_ops_msg g_msg_ops = ofi::MsgOps{.recv = recv,
                                             .recvv = recvv,
                                             .recvmsg = recvmsg,
                                             .send = send,
                                             .sendv = sendv,
                                             .sendmsg = sendmsg,
                                             .inject = inject,
                                             .senddata = senddata,
                                             .injectdata = injectdata};

} // namespace

int open_datagram_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept
{
    return Calls::open(domain, *info, ep, context, [](fid_ep &fid) {
        fid.fid.ops = &g_fid_ops;
        fid.ops = &g_ep_ops;
        fid.cm = &g_cm_ops;
        fid.msg = &g_msg_ops;
    });
}

} // namespace vma::local
