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
#include "ofi/passive_endpoint.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

void refuse(Request &request) noexcept
{
    PortContext &port_context = *request.port_context;
    port_context.tcp().abort(now_ns(), request.connection);
    port_context.net_if().send(now_ns());
    port_context.outlive(request.flow, false, {});
}

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
    ofi::InfoPtr request_of = ofi::request_info(*info, fabric().fid, to_socket_address(request->flow.local),
                                                to_socket_address(request->flow.remote), &request->handle);
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

} // namespace

int PassiveEndpoint::close(fid_t fid)
{
    std::unique_ptr<PassiveEndpoint> pep(reinterpret_cast<PassiveEndpoint *>(fid));
    ofi::Fabric &fabric = pep->fabric();
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

ofi::Address PassiveEndpoint::own_address() const noexcept
{
    return reserved ? to_socket_address(local) : ofi::Address();
}

int PassiveEndpoint::get_option(int name, void *value, std::size_t *length) noexcept
{
    if (name == FI_OPT_CM_DATA_SIZE)
        return ofi::give_option(kMostData, value, length);
    if (static_cast<unsigned>(name) != FI_OPT_VMA_TCP)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(port_context->lock());
    return give_tcp_option(settings, value, length);
}

int PassiveEndpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    if (static_cast<unsigned>(name) != FI_OPT_VMA_TCP)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(port_context->lock());
    return listening ? -FI_EOPBADSTATE : read_tcp_option(value, length, settings);
}

void PassiveEndpoint::set_backlog(int requests) noexcept
{
    backlog = std::max(requests, 1);
    if (listening)
        port_context->tcp().set_backlog(listener, static_cast<std::uint32_t>(backlog));
}

int PassiveEndpoint::listen() noexcept
{
    if (listening)
        return -FI_EOPBADSTATE;
    if (!reserved) {
        ofi::Address any;
        any.sa.sa_family = AF_INET;
        if (const int error = set_address(any))
            return error;
    }
    if (const int error = port_context->tcp().listen(local, static_cast<std::uint32_t>(backlog), settings,
                                                     reinterpret_cast<std::uint64_t>(this), listener))
        return error;
    listening = true;
    VMA_DEBUG(ep_ctrl, "listens at %s, past the kernel", ofi::AddressText(to_socket_address(local)).c_str());
    return 0;
}

int PassiveEndpoint::reject(fid_t handle, const void *, std::size_t) noexcept
{
    const std::unique_ptr<Request> request = ether_fabric.take_request(*port_context, handle);
    if (!request)
        return -FI_EINVAL;
    refuse(*request);
    if (request->pep != nullptr)
        request->pep->taken();
    return 0;
}

int open_passive_endpoint(EtherFabric &ether_fabric, fi_info *info, fid_pep **pep, void *context) noexcept
{
    return ofi::open_passive<PassiveEndpoint>(ether_fabric, info, pep, context);
}

} // namespace vma::ether
