// SPDX-License-Identifier: BSD-2-Clause
#include "ether/pep.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ether/address.hpp"
#include "ether/stream/tcp_option.hpp"
#include "ofi/give_option.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/noop.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

void refuse(Request &request) noexcept
{
    PortContext &port_context = *request.port_context;
    port_context.tcp().abort(now_ns(), request.connection);
    port_context.net_if().send(now_ns());
    port_context.outlive(request.flow, false, {});
}

namespace {

PassiveEndpoint &self(fid_t fid)
{
    return *reinterpret_cast<PassiveEndpoint *>(fid);
}

// The info of a FI_CONNREQ event: the passive endpoint's own, with the addresses of this connection.
ofi::InfoPtr request_info(const PassiveEndpoint &pep, Request &request)
{
    ofi::InfoPtr info = ofi::copy_info(*pep.info);
    const ofi::Address own = to_socket_address(request.flow.local);
    if (!info || !ofi::set_source(*info, own) || !ofi::set_destination(*info, to_socket_address(request.flow.remote)))
        return nullptr;
    info->handle = &request.handle;
    if (info->addr_format != FI_SOCKADDR)
        info->addr_format = own.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    info->domain_attr->domain = nullptr;
    info->fabric_attr->fabric = &pep.ether_fabric.fabric().fid;
    if (info->fabric_attr->prov_name == nullptr)
        info->fabric_attr->prov_name = ::strdup(ofi::kProviderName);
    return info->fabric_attr->prov_name != nullptr ? std::move(info) : nullptr;
}

} // namespace

void PassiveEndpoint::on_acceptable() noexcept
{
    inet::ConnectionId connection;
    while (untaken < backlog && port_context->tcp().accept(listener, connection)) {
        if (!tell(connection)) {
            VMA_WARN(ep_ctrl, "no memory for a connection request: the connection is reset");
            port_context->tcp().abort(now_ns(), connection);
        }
    }
}

bool PassiveEndpoint::tell(inet::ConnectionId connection) noexcept
{
    const inet::Connection *const found = port_context->tcp().find(connection);
    Request *const request = found != nullptr ? ether_fabric.add_request(port_context) : nullptr;
    if (request == nullptr)
        return false;
    request->pep = this;
    request->connection = connection;
    request->flow = found->flow;
    port_context->tcp().set_user(connection, 0);
    ofi::InfoPtr request_of = request_info(*this, *request);
    if (!request_of || eq->post_cm(FI_CONNREQ, &fid.fid, std::move(request_of), nullptr, 0) != 0) {
        ether_fabric.take_request(*port_context, &request->handle);
        return false;
    }
    port_context->share(inet::Protocol::kTcp, request->flow.local);
    port_context->guard(connection);
    ++untaken;
    return true;
}

void PassiveEndpoint::taken() noexcept
{
    --untaken;
    if (listening)
        on_acceptable();
}

int PassiveEndpoint::set_address(const ofi::Address &wanted) noexcept
{
    if (listening)
        return -FI_EOPBADSTATE;
    inet::Endpoint next = to_endpoint(wanted);
    if (const int error = port_context->reserve(inet::Protocol::kTcp, next))
        return error;
    if (std::exchange(reserved, true))
        port_context->release(inet::Protocol::kTcp, local);
    local = next;
    return 0;
}

namespace {

// Requests that the program never saw are refused. Those that it saw stay good: it may still accept them.
void release_requests(PassiveEndpoint &pep)
{
    if (pep.eq != nullptr) {
        for (const ofi::InfoPtr &unread : pep.eq->remove_events(&pep.fid.fid)) {
            const std::unique_ptr<Request> request =
                unread ? pep.ether_fabric.take_request(*pep.port_context, unread->handle) : nullptr;
            if (request)
                refuse(*request);
        }
        pep.eq->refs.fetch_sub(1, std::memory_order_release);
    }
    pep.ether_fabric.leave_requests(pep);
}

int close_pep(fid_t fid)
{
    std::unique_ptr<PassiveEndpoint> pep(&self(fid));
    ofi::Fabric &fabric = pep->ether_fabric.fabric();
    if (fabric.orphaned()) {
        static_cast<void>(pep.release());
        return 0;
    }
    {
        const core::SpinGuard guard(pep->port_context->lock());
        if (pep->listening)
            pep->port_context->tcp().unlisten(now_ns(), pep->listener);
        release_requests(*pep);
        if (pep->reserved)
            pep->port_context->release(inet::Protocol::kTcp, pep->local);
        pep->port_context->net_if().send(now_ns());
    }
    fabric.refs.fetch_sub(1, std::memory_order_release);
    return 0;
}

int bind_pep(fid_t fid, fid_t other, std::uint64_t)
{
    PassiveEndpoint &pep = self(fid);
    if (other == nullptr || other->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    ofi::Eq &eq = ofi::eq_of(reinterpret_cast<fid_eq *>(other));
    const core::SpinGuard guard(pep.port_context->lock());
    if (pep.eq != nullptr || &eq.fabric != &pep.ether_fabric.fabric())
        return -FI_EINVAL;
    eq.refs.fetch_add(1, std::memory_order_relaxed);
    pep.eq = &eq;
    return 0;
}

int control_pep(fid_t fid, int command, void *arg)
{
    PassiveEndpoint &pep = self(fid);
    if (command != FI_BACKLOG)
        return -FI_ENOSYS;
    if (arg == nullptr || *static_cast<int *>(arg) < 0)
        return -FI_EINVAL;
    const core::SpinGuard guard(pep.port_context->lock());
    pep.backlog = std::max(*static_cast<int *>(arg), 1);
    if (pep.listening)
        pep.port_context->tcp().set_backlog(pep.listener, static_cast<std::uint32_t>(pep.backlog));
    return 0;
}

int getopt_pep(fid_t fid, int level, int name, void *value, std::size_t *length)
{
    PassiveEndpoint &pep = self(fid);
    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    if (name == FI_OPT_CM_DATA_SIZE)
        return ofi::give_option<std::size_t>(0, value, length);
    if (static_cast<unsigned>(name) != FI_OPT_VMA_TCP)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(pep.port_context->lock());
    return give_tcp_option(pep.settings, value, length);
}

int setopt_pep(fid_t fid, int level, int name, const void *value, std::size_t length)
{
    PassiveEndpoint &pep = self(fid);
    if (level != FI_OPT_ENDPOINT || static_cast<unsigned>(name) != FI_OPT_VMA_TCP)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(pep.port_context->lock());
    if (pep.listening)
        return -FI_EOPBADSTATE;
    return read_tcp_option(value, length, pep.settings);
}

int setname_pep(fid_t fid, void *addr, std::size_t length)
{
    PassiveEndpoint &pep = self(fid);
    ofi::Address wanted;
    if (!wanted.assign(addr, length))
        return -FI_EINVAL;
    if (pep.ether_fabric.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(pep.port_context->lock());
    return pep.set_address(wanted);
}

int getname_pep(fid_t fid, void *addr, std::size_t *length)
{
    PassiveEndpoint &pep = self(fid);
    const core::SpinGuard guard(pep.port_context->lock());
    return pep.reserved ? to_socket_address(pep.local).copy_to(addr, length) : -FI_EOPBADSTATE;
}

int listen_pep(fid_pep *fid)
{
    PassiveEndpoint &pep = self(&fid->fid);
    if (pep.ether_fabric.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(pep.port_context->lock());
    if (pep.eq == nullptr)
        return -FI_ENOEQ;
    if (pep.listening)
        return -FI_EOPBADSTATE;
    if (!pep.reserved) {
        ofi::Address any;
        any.sa.sa_family = AF_INET;
        if (const int error = pep.set_address(any))
            return error;
    }
    if (const int error =
            pep.port_context->tcp().listen(pep.local, static_cast<std::uint32_t>(pep.backlog), pep.settings,
                                           reinterpret_cast<std::uint64_t>(&pep), pep.listener))
        return error;
    pep.listening = true;
    VMA_DEBUG(ep_ctrl, "listens at %s, past the kernel", ofi::AddressText(to_socket_address(pep.local)).c_str());
    return 0;
}

int reject_pep(fid_pep *fid, fid_t handle, const void *, std::size_t length)
{
    PassiveEndpoint &pep = self(&fid->fid);
    if (length != 0)
        return -FI_EINVAL;
    if (pep.ether_fabric.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(pep.port_context->lock());
    const std::unique_ptr<Request> request = pep.ether_fabric.take_request(*pep.port_context, handle);
    if (!request)
        return -FI_EINVAL;
    refuse(*request);
    if (request->pep != nullptr)
        request->pep->taken();
    return 0;
}

constinit fi_ops g_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_pep,
    .bind = bind_pep,
    .control = control_pep,
    .ops_open = ofi::no_op,
    .tostr = ofi::no_op,
    .ops_set = ofi::no_op,
};

constinit fi_ops_ep g_ep_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = ofi::no_op,
    .getopt = getopt_pep,
    .setopt = setopt_pep,
    .tx_ctx = ofi::no_op,
    .rx_ctx = ofi::no_op,
    .rx_size_left = ofi::no_op,
    .tx_size_left = ofi::no_op,
};

constinit fi_ops_cm g_cm_ops = {
    .size = sizeof(fi_ops_cm),
    .setname = setname_pep,
    .getname = getname_pep,
    .getpeer = ofi::no_op,
    .connect = ofi::no_op,
    .listen = listen_pep,
    .accept = ofi::no_op,
    .reject = reject_pep,
    .shutdown = ofi::no_op,
    .join = ofi::no_op,
};

} // namespace

int open_passive_endpoint(EtherFabric &fabric, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info == nullptr || pep == nullptr)
        return -FI_EINVAL;
    std::unique_ptr<PassiveEndpoint> opened(new (std::nothrow) PassiveEndpoint(fabric));
    if (!opened || !(opened->info = ofi::copy_info(*info)))
        return -FI_ENOMEM;
    if (const int error = fabric.port_context_of(*info, opened->port_context))
        return error;
    if (info->src_addr != nullptr) {
        ofi::Address wanted;
        if (!wanted.assign(info->src_addr, info->src_addrlen))
            return -FI_EINVAL;
        const core::SpinGuard guard(opened->port_context->lock());
        if (const int error = opened->set_address(wanted))
            return error;
    }
    opened->fid.fid = {FI_CLASS_PEP, context, &g_fid_ops};
    opened->fid.ops = &g_ep_ops;
    opened->fid.cm = &g_cm_ops;
    fabric.fabric().refs.fetch_add(1, std::memory_order_relaxed);
    *pep = &opened.release()->fid;
    return 0;
}

} // namespace vma::ether
