// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of a datagram endpoint, and its factory. The work is DatagramEndpoint's.
#include <new>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "local/dgram.hpp"
#include "ofi/noop.hpp"
#include "ofi/op_flags.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

int close_endpoint(fid *fid)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(fid);
    ofi::Domain &domain = endpoint.domain();
    if (domain.fabric.orphaned())
        return 0; // its memory is not mapped in a forked child
    if (endpoint.in_groups())
        return -FI_EBUSY;
    delete &endpoint;
    domain.refs.fetch_sub(1, std::memory_order_relaxed);
    return 0;
}

int bind(fid *fid, struct fid *what, std::uint64_t flags)
{
    return what ? DatagramEndpoint::from(fid).bind(what, flags) : -FI_EINVAL;
}

int control(fid *fid, int command, void *argument)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(fid);
    switch (command) {
    case FI_ENABLE:
        return endpoint.domain().fabric.orphaned() ? -FI_EOPBADSTATE : endpoint.enable();
    case FI_GETOPSFLAG:
    case FI_SETOPSFLAG:
        return ofi::control_op_flags(endpoint.tx_flags, endpoint.rx_flags, command,
                                     static_cast<std::uint64_t *>(argument));
    default:
        return -FI_ENOSYS;
    }
}

ssize_t cancel(fid_t fid, void *context)
{
    return DatagramEndpoint::from(fid).cancel(context);
}

int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    return level == FI_OPT_ENDPOINT ? DatagramEndpoint::from(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
}

int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
{
    return level == FI_OPT_ENDPOINT ? DatagramEndpoint::from(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
}

ssize_t rx_size_left(fid_ep *ep)
{
    DatagramEndpoint &endpoint = DatagramEndpoint::from(ep);
    return endpoint.enabled() ? static_cast<ssize_t>(endpoint.receives_left()) : -FI_EOPBADSTATE;
}

int setname(fid_t fid, void *addr, std::size_t length)
{
    ofi::Address wanted;
    if (!wanted.assign(addr, length))
        return -FI_EINVAL;
    DatagramEndpoint &endpoint = DatagramEndpoint::from(fid);
    return endpoint.domain().fabric.orphaned() ? -FI_EOPBADSTATE : endpoint.set_name(wanted);
}

int getname(fid_t fid, void *addr, std::size_t *length)
{
    return DatagramEndpoint::from(fid).get_name(addr, length);
}

int join(fid_ep *ep, const void *addr, std::uint64_t flags, fid_mc **mc, void *context)
{
    ofi::Address group;
    if (!group.assign_whole(addr))
        return -FI_EINVAL;
    return DatagramEndpoint::from(ep).join(group, flags, mc, context);
}

constinit fi_ops g_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_endpoint,
    .bind = bind,
    .control = control,
    .ops_open = ofi::no_op,
    .tostr = ofi::no_op,
    .ops_set = ofi::no_op,
};

constinit fi_ops_ep g_ep_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = cancel,
    .getopt = getopt,
    .setopt = setopt,
    .tx_ctx = ofi::no_op,
    .rx_ctx = ofi::no_op,
    .rx_size_left = rx_size_left,
    .tx_size_left = ofi::no_op,
};

constinit fi_ops_cm g_cm_ops = {
    .size = sizeof(fi_ops_cm),
    .setname = setname,
    .getname = getname,
    .getpeer = ofi::no_op,
    .connect = ofi::no_op,
    .listen = ofi::no_op,
    .accept = ofi::no_op,
    .reject = ofi::no_op,
    .shutdown = ofi::no_op,
    .join = join,
};

// ---- fi_ops_msg --------------------------------------------------------------------------------------------------------

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

constinit fi_ops_msg g_msg_ops = {
    .size = sizeof(fi_ops_msg),
    .recv = recv,
    .recvv = recvv,
    .recvmsg = recvmsg,
    .send = send,
    .sendv = sendv,
    .sendmsg = sendmsg,
    .inject = inject,
    .senddata = senddata,
    .injectdata = injectdata,
};

} // namespace

int open_datagram_endpoint(ofi::Domain &domain, const fi_info *info, fid_ep **ep, void *context) noexcept
{
    std::unique_ptr<DatagramEndpoint> endpoint(new (std::nothrow) DatagramEndpoint(domain, *info));
    if (!endpoint)
        return -FI_ENOMEM;
    if (info->src_addr) {
        ofi::Address wanted;
        if (!wanted.assign(info->src_addr, info->src_addrlen))
            return -FI_EINVAL;
        if (const int error = endpoint->propose_name(wanted))
            return error;
    }
    fid_ep &fid = endpoint->handle.fid;
    fid.fid = {FI_CLASS_EP, context, &g_fid_ops};
    fid.ops = &g_ep_ops;
    fid.cm = &g_cm_ops;
    fid.msg = &g_msg_ops;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *ep = &endpoint.release()->handle.fid;
    return 0;
}

} // namespace vma::local
