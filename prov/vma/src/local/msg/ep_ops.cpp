// SPDX-License-Identifier: BSD-2-Clause
// The fi_ops and fi_ops_ep tables of an endpoint, and its factory. The work is Endpoint's.
#include "local/msg/endpoint.hpp"

#include <new>

#include <rdma/fi_errno.h>

#include "ofi/op_flags.hpp"
#include "ofi/ops.hpp"

namespace vma::local {

namespace {

int close_endpoint(fid *fid)
{
    if (Endpoint::from(fid).domain().fabric.orphaned())
        return 0; // its memory is not mapped in a forked child
    const std::unique_ptr<Endpoint> endpoint(&Endpoint::from(fid));
    cm_close(*endpoint);
    endpoint->domain().refs.fetch_sub(1, std::memory_order_relaxed);
    return 0;
}

int bind(fid *fid, struct fid *what, std::uint64_t flags)
{
    return what ? Endpoint::from(fid).bind(what, flags) : -FI_EINVAL;
}

int control(fid *fid, int command, void *argument)
{
    return ofi::control_endpoint(Endpoint::from(fid), false, command, argument); // enable() knows an orphan
}

ssize_t cancel(fid_t fid, void *context)
{
    return Endpoint::from(fid).cancel(context);
}

int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
}

int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
{
    return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
}

ssize_t rx_size_left(fid_ep *ep)
{
    const Endpoint &endpoint = Endpoint::from(ep);
    return endpoint.enabled() ? static_cast<ssize_t>(endpoint.receiver.receives->left()) : -FI_EOPBADSTATE;
}

ssize_t tx_size_left(fid_ep *ep)
{
    Endpoint &endpoint = Endpoint::from(ep);
    if (!endpoint.enabled())
        return -FI_EOPBADSTATE;
    return endpoint.sender.connected() ? static_cast<ssize_t>(endpoint.sender.slots_left()) : -FI_ENOTCONN;
}

constinit fi_ops fid_ops = ofi::FidOps{.close = close_endpoint, .bind = bind, .control = control};

constinit fi_ops_ep ep_ops = ofi::EpOps{
    .cancel = cancel, .getopt = getopt, .setopt = setopt, .rx_size_left = rx_size_left, .tx_size_left = tx_size_left};

} // namespace

int open_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept
{
    std::unique_ptr<Endpoint> endpoint(new (std::nothrow) Endpoint(domain, info));
    if (!endpoint)
        return -FI_ENOMEM;
    endpoint->fid.fid = {FI_CLASS_EP, context, &fid_ops};
    endpoint->fid.ops = &ep_ops;
    endpoint->fid.cm = &endpoint_cm_ops;
    endpoint->fid.msg = &endpoint_msg_ops;
    endpoint->fid.rma = &endpoint_rma_ops;
    if (const int error = cm_open(*endpoint, info))
        return error;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *ep = &endpoint.release()->fid;
    return 0;
}

} // namespace vma::local
