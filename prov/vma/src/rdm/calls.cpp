// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of a reliable-datagram endpoint for messages and for what concerns the endpoint itself, and its
// factory. The work is RdmEndpoint's.
#include "rdm/calls.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "local/ring/calls.hpp"
#include "ofi/ops.hpp"
#include "rdm/endpoint.hpp"
#include "rdm/open.hpp"

namespace vma::rdm {

namespace {

// ---- the endpoint ---------------------------------------------------------------------------------------------------

using Calls = local::RingCalls<RdmEndpoint>;

constinit fi_ops g_fid_ops = ofi::FidOps{.close = Calls::close, .bind = Calls::bind, .control = Calls::control};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{.cancel = Calls::cancel, .getopt = Calls::getopt, .setopt = Calls::setopt};

constinit fi_ops_cm g_cm_ops = ofi::CmOps{.setname = Calls::setname, .getname = Calls::getname};

// ---- messages, with and without tags --------------------------------------------------------------------------------

struct Tag {
    bool tagged;
    std::uint64_t tag;
};
constexpr Tag kUntagged{false, 0};

ssize_t send_by(fid_ep *ep, const iovec *iov, std::size_t count, const std::uint64_t *data, fi_addr_t to, Tag tag,
                void *context) noexcept
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return endpoint.send(
        {iov, count, data, to, tag.tag, context, flags, tag.tagged, endpoint.wants_tx_completion(flags)});
}

ssize_t inject_by(fid_ep *ep, const void *buffer, std::size_t length, const std::uint64_t *data, fi_addr_t to,
                  Tag tag) noexcept
{
    const iovec iov{const_cast<void *>(buffer), length};
    return RdmEndpoint::from(ep).send({&iov, 1, data, to, tag.tag, nullptr, FI_INJECT, tag.tagged, false});
}

ssize_t receive_by(fid_ep *ep, const iovec *iov, std::size_t count, fi_addr_t from, Tag tag, std::uint64_t ignore,
                   void *context) noexcept
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    return endpoint.post({iov, count, from, tag.tag, ignore, context, endpoint.rx_flags, tag.tagged});
}

ssize_t send(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t to, void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_by(ep, &iov, 1, nullptr, to, kUntagged, context);
}

ssize_t sendv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t to, void *context)
{
    return send_by(ep, iov, count, nullptr, to, kUntagged, context);
}

ssize_t sendmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    const std::uint64_t *data = (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    return endpoint.send({message->msg_iov, message->iov_count, data, message->addr, 0, message->context, flags, false,
                          endpoint.wants_tx_completion(flags)});
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t to)
{
    return inject_by(ep, buffer, length, nullptr, to, kUntagged);
}

ssize_t senddata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t to,
                 void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_by(ep, &iov, 1, &data, to, kUntagged, context);
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t to)
{
    return inject_by(ep, buffer, length, &data, to, kUntagged);
}

ssize_t recv(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t from, void *context)
{
    const iovec iov{buffer, length};
    return receive_by(ep, &iov, 1, from, kUntagged, 0, context);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t from, void *context)
{
    return receive_by(ep, iov, count, from, kUntagged, 0, context);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *message, std::uint64_t flags)
{
    return RdmEndpoint::from(ep).post(
        {message->msg_iov, message->iov_count, message->addr, 0, 0, message->context, flags, false});
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

ssize_t tsend(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t to, std::uint64_t tag,
              void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_by(ep, &iov, 1, nullptr, to, {true, tag}, context);
}

ssize_t tsendv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t to, std::uint64_t tag, void *context)
{
    return send_by(ep, iov, count, nullptr, to, {true, tag}, context);
}

ssize_t tsendmsg(fid_ep *ep, const fi_msg_tagged *message, std::uint64_t flags)
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    const std::uint64_t *data = (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    return endpoint.send({message->msg_iov, message->iov_count, data, message->addr, message->tag, message->context,
                          flags, true, endpoint.wants_tx_completion(flags)});
}

ssize_t tinject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t to, std::uint64_t tag)
{
    return inject_by(ep, buffer, length, nullptr, to, {true, tag});
}

ssize_t tsenddata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t to,
                  std::uint64_t tag, void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return send_by(ep, &iov, 1, &data, to, {true, tag}, context);
}

ssize_t tinjectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t to,
                    std::uint64_t tag)
{
    return inject_by(ep, buffer, length, &data, to, {true, tag});
}

ssize_t trecv(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t from, std::uint64_t tag,
              std::uint64_t ignore, void *context)
{
    const iovec iov{buffer, length};
    return receive_by(ep, &iov, 1, from, {true, tag}, ignore, context);
}

ssize_t trecvv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t from, std::uint64_t tag,
               std::uint64_t ignore, void *context)
{
    return receive_by(ep, iov, count, from, {true, tag}, ignore, context);
}

ssize_t trecvmsg(fid_ep *ep, const fi_msg_tagged *message, std::uint64_t flags)
{
    return RdmEndpoint::from(ep).post({message->msg_iov, message->iov_count, message->addr, message->tag,
                                       message->ignore, message->context, flags, true});
}

constinit fi_ops_tagged g_tagged_ops = ofi::TaggedOps{.recv = trecv,
                                                      .recvv = trecvv,
                                                      .recvmsg = trecvmsg,
                                                      .send = tsend,
                                                      .sendv = tsendv,
                                                      .sendmsg = tsendmsg,
                                                      .inject = tinject,
                                                      .senddata = tsenddata,
                                                      .injectdata = tinjectdata};

} // namespace

int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept
{
    return Calls::open(domain, *info, ep, context, [](fid_ep &fid) {
        fid.fid.ops = &g_fid_ops;
        fid.ops = &g_ep_ops;
        fid.cm = &g_cm_ops;
        fid.msg = &g_msg_ops;
        fid.tagged = &g_tagged_ops;
        fid.rma = &rma_ops;
        fid.atomic = &atomic_ops;
    });
}

} // namespace vma::rdm
