// SPDX-License-Identifier: BSD-2-Clause
// The tables of libfabric's calls on a datagram endpoint: arguments are checked here, what they do is in endpoint.cpp.
#include <memory>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "ether/dgram/endpoint.hpp"
#include "ofi/give_option.hpp"
#include "ofi/op_flags.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {
namespace {

bool is_orphaned(const Datagrams &endpoint) noexcept
{
    return endpoint.domain().fabric.orphaned();
}

bool is_row(const iovec *parts, std::size_t count) noexcept
{
    return count <= ofi::kIovLimit && (parts != nullptr || count == 0);
}

// ---- fi_ops, fi_ops_ep, fi_ops_cm -----------------------------------------------------------------------------------

int close(fid_t fid)
{
    Datagrams &endpoint = Datagrams::from(fid);
    if (is_orphaned(endpoint))
        return 0;
    if (const int error = endpoint.close())
        return error;
    endpoint.domain().refs.fetch_sub(1, std::memory_order_release);
    delete &endpoint;
    return 0;
}

int bind(fid_t fid, fid_t what, std::uint64_t flags)
{
    return what != nullptr ? Datagrams::from(fid).bind(what, flags) : -FI_EINVAL;
}

int control(fid_t fid, int command, void *argument)
{
    Datagrams &endpoint = Datagrams::from(fid);
    return ofi::control_endpoint(endpoint, is_orphaned(endpoint), command, argument);
}

ssize_t cancel(fid_t fid, void *context)
{
    return Datagrams::from(fid).cancel(context);
}

int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    if (level != FI_OPT_ENDPOINT || static_cast<unsigned>(name) != FI_OPT_VMA_RX_DROPS)
        return -FI_ENOPROTOOPT;
    return ofi::give_option<std::uint64_t>(Datagrams::from(fid).dropped(), value, length);
}

ssize_t rx_size_left(fid_ep *fid)
{
    Datagrams &endpoint = Datagrams::from(fid);
    return endpoint.enabled() ? static_cast<ssize_t>(endpoint.receives_left()) : -FI_EOPBADSTATE;
}

int setname(fid_t fid, void *address, std::size_t length)
{
    Datagrams &endpoint = Datagrams::from(fid);
    ofi::Address wanted;
    if (!endpoint.format().read(address, length, wanted))
        return -FI_EINVAL;
    return is_orphaned(endpoint) ? -FI_EOPBADSTATE : endpoint.set_name(wanted);
}

int getname(fid_t fid, void *address, std::size_t *length)
{
    return Datagrams::from(fid).get_name(address, length);
}

int join(fid_ep *fid, const void *address, std::uint64_t flags, fid_mc **mc, void *context)
{
    Datagrams &endpoint = Datagrams::from(fid);
    ofi::Address group;
    if (!endpoint.format().read_whole(address, group))
        return -FI_EINVAL;
    return endpoint.join(group, flags, mc, context);
}

int close_membership(fid_t fid)
{
    Membership &membership = *reinterpret_cast<Membership *>(fid);
    if (!is_orphaned(*membership.endpoint))
        membership.endpoint->leave(membership);
    return 0;
}

// ---- fi_ops_msg: hot path -------------------------------------------------------------------------------------------

ssize_t send(fid_ep *fid, const void *buffer, std::size_t length, void *, fi_addr_t to, void *context)
{
    Datagrams &endpoint = Datagrams::from(fid);
    const iovec part{const_cast<void *>(buffer), length};
    return endpoint.send({{&part, 1}, to, context, endpoint.wants_tx_completion(endpoint.tx_flags)});
}

ssize_t sendv(fid_ep *fid, const iovec *parts, void **, std::size_t count, fi_addr_t to, void *context)
{
    Datagrams &endpoint = Datagrams::from(fid);
    if (!is_row(parts, count)) [[unlikely]]
        return -FI_EINVAL;
    return endpoint.send({{parts, count}, to, context, endpoint.wants_tx_completion(endpoint.tx_flags)});
}

ssize_t sendmsg(fid_ep *fid, const fi_msg *msg, std::uint64_t flags)
{
    Datagrams &endpoint = Datagrams::from(fid);
    if (msg == nullptr || !is_row(msg->msg_iov, msg->iov_count) || (flags & FI_REMOTE_CQ_DATA) != 0) [[unlikely]]
        return -FI_EINVAL;
    return endpoint.send(
        {{msg->msg_iov, msg->iov_count}, msg->addr, msg->context, endpoint.wants_tx_completion(flags)});
}

ssize_t inject(fid_ep *fid, const void *buffer, std::size_t length, fi_addr_t to)
{
    const iovec part{const_cast<void *>(buffer), length};
    return Datagrams::from(fid).send({{&part, 1}, to, nullptr, false});
}

ssize_t recv(fid_ep *fid, void *buffer, std::size_t length, void *, fi_addr_t, void *context)
{
    Datagrams &endpoint = Datagrams::from(fid);
    const iovec part{buffer, length};
    return endpoint.post({&part, 1}, context, endpoint.wants_rx_completion(endpoint.rx_flags));
}

ssize_t recvv(fid_ep *fid, const iovec *parts, void **, std::size_t count, fi_addr_t, void *context)
{
    Datagrams &endpoint = Datagrams::from(fid);
    if (!is_row(parts, count)) [[unlikely]]
        return -FI_EINVAL;
    return endpoint.post({parts, count}, context, endpoint.wants_rx_completion(endpoint.rx_flags));
}

ssize_t recvmsg(fid_ep *fid, const fi_msg *msg, std::uint64_t flags)
{
    Datagrams &endpoint = Datagrams::from(fid);
    if (msg == nullptr || !is_row(msg->msg_iov, msg->iov_count)) [[unlikely]]
        return -FI_EINVAL;
    return endpoint.post({msg->msg_iov, msg->iov_count}, msg->context, endpoint.wants_rx_completion(flags));
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close, .bind = bind, .control = control};

constinit fi_ops g_membership_ops = ofi::FidOps{.close = close_membership};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{.cancel = cancel, .getopt = getopt, .rx_size_left = rx_size_left};

constinit fi_ops_cm g_cm_ops = ofi::CmOps{.setname = setname, .getname = getname, .join = join};

constinit fi_ops_msg g_msg_ops = ofi::MsgOps{.recv = recv,
                                             .recvv = recvv,
                                             .recvmsg = recvmsg,
                                             .send = send,
                                             .sendv = sendv,
                                             .sendmsg = sendmsg,
                                             .inject = inject};

} // namespace

void set_datagram_calls(fid_ep &fid) noexcept
{
    fid.fid.ops = &g_fid_ops;
    fid.ops = &g_ep_ops;
    fid.cm = &g_cm_ops;
    fid.msg = &g_msg_ops;
}

void set_membership_calls(fid_mc &fid) noexcept
{
    fid.fid.ops = &g_membership_ops;
}

} // namespace vma::ether
