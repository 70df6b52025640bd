// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/pep.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/give_option.hpp"
#include "ofi/info/device_filters.hpp"
#include "ofi/noop.hpp"
#include "verbs/wire.hpp"

namespace vma::verbs {

ofi::Address local_address(rdma_cm_id *id) noexcept
{
    ofi::Address address;
    static_cast<void>(address.assign(rdma_get_local_addr(id), sizeof(sockaddr_in6)));
    return address;
}

ofi::Address peer_address(rdma_cm_id *id) noexcept
{
    ofi::Address address;
    static_cast<void>(address.assign(rdma_get_peer_addr(id), sizeof(sockaddr_in6)));
    return address;
}

PassiveEndpoint::PassiveEndpoint(Manager &owner) noexcept : manager(owner)
{
    handler = {this,
               [](void *object, CmEvent &event) noexcept { static_cast<PassiveEndpoint *>(object)->on_event(event); }};
}

namespace {

// Where no port is asked for: one of FI_VMA_PORT, else any.
int bind_to(rdma_cm_id *id, ofi::Address wanted)
{
    core::PortRange range{wanted.port(), wanted.port()};
    if (wanted.port() == 0) {
        const std::optional<core::Filters> filters = ofi::device_filters();
        if (filters && filters->ports)
            range = *filters->ports;
    }
    int error = 0;
    for (unsigned port = range.low; port <= range.high; ++port) {
        wanted.set_port(static_cast<std::uint16_t>(port));
        if (table()->bind_addr(id, &wanted.sa) == 0)
            return 0;
        error = last_error();
        if (error != -FI_EADDRINUSE && error != -FI_EADDRNOTAVAIL) // a wildcard's, when one address has the port
            break;
    }
    return error;
}

} // namespace

int PassiveEndpoint::set_address(const ofi::Address &wanted) noexcept
{
    if (listening)
        return -FI_EOPBADSTATE;
    IdPtr bound;
    if (const int error = manager.create_id(handler, bound))
        return error;
    if (const int error = bind_to(bound.get(), wanted)) {
        VMA_WARN(ep_ctrl, "cannot have the address %s: %s", ofi::AddressText(wanted).c_str(), std::strerror(-error));
        return error;
    }
    id = std::move(bound);
    address = local_address(id.get());
    return 0;
}

namespace {

// The info of a FI_CONNREQ event: the passive endpoint's own, for the device and the addresses of this connection.
ofi::InfoPtr request_info(const PassiveEndpoint &pep, Request &request)
{
    ofi::InfoPtr info = ofi::copy_info(*pep.info);
    if (!info)
        return info;
    const ofi::Address own = local_address(request.id.get());
    if (!ofi::set_source(*info, own) || !ofi::set_destination(*info, peer_address(request.id.get())))
        return nullptr;
    info->handle = &request.handle;
    if (info->addr_format != FI_SOCKADDR)
        info->addr_format = own.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    info->domain_attr->domain = nullptr;
    std::free(info->domain_attr->name);
    info->domain_attr->name = ::strdup(table()->get_device_name(request.id->verbs->device));
    info->fabric_attr->fabric = &pep.manager.fabric().fid;
    if (info->fabric_attr->prov_name == nullptr)
        info->fabric_attr->prov_name = ::strdup(ofi::kProviderName);
    return info->fabric_attr->prov_name && info->domain_attr->name ? std::move(info) : nullptr;
}

int refuse(rdma_cm_id *id, const void *data, std::size_t length)
{
    ConnectMessage message;
    message.set_data(data, length);
    return table()->reject(id, &message, message.size()) == 0 ? 0 : last_error();
}

PassiveEndpoint &self(fid_t fid)
{
    return *reinterpret_cast<PassiveEndpoint *>(fid);
}

} // namespace

void PassiveEndpoint::on_event(CmEvent &event) noexcept
{
    if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST)
        return;
    ConnectMessage message;
    const bool ours = message.parse(event.data, event.length);
    if (!ours)
        VMA_WARN(ep_ctrl, "a connection request at %s is not of this provider: it is refused",
                 ofi::AddressText(address).c_str());
    Request *request = ours ? manager.add_request(event, message, *this) : nullptr;
    ofi::InfoPtr request_of;
    if (request != nullptr)
        request_of = request_info(*this, *request);
    if (request_of &&
        eq->post_cm(FI_CONNREQ, &fid.fid, std::move(request_of), message.data, message.header.length) == 0)
        return;
    refuse(event.id, nullptr, 0);
    if (request != nullptr)
        manager.drop_request(*request);
    else
        table()->destroy_id(event.id);
}

namespace {

// Requests that the program never saw are refused. Those that it saw stay good: it may still accept them.
void release_requests(PassiveEndpoint &pep)
{
    if (pep.eq != nullptr) {
        for (const ofi::InfoPtr &unread : pep.eq->remove_events(&pep.fid.fid)) {
            Request *request = unread ? pep.manager.pending(unread->handle) : nullptr;
            if (request == nullptr)
                continue;
            refuse(request->id.get(), nullptr, 0);
            pep.manager.drop_request(*request);
        }
        pep.eq->refs.fetch_sub(1, std::memory_order_release);
    }
    pep.manager.leave_requests(pep);
}

int close_pep(fid_t fid)
{
    PassiveEndpoint &pep = self(fid);
    ofi::Fabric &fabric = pep.manager.fabric();
    if (fabric.orphaned())
        return 0;
    {
        const std::lock_guard guard(pep.manager.mutex());
        pep.id.reset(); // from here no request comes any more
        release_requests(pep);
        delete &pep;
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
    const std::lock_guard guard(pep.manager.mutex());
    if (pep.eq != nullptr || &eq.fabric != &pep.manager.fabric())
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
    const std::lock_guard guard(pep.manager.mutex());
    pep.backlog = *static_cast<int *>(arg);
    return 0;
}

int getopt_pep(fid_t, int level, int name, void *value, std::size_t *length)
{
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
        return -FI_ENOPROTOOPT;
    return ofi::give_option<std::size_t>(kCmDataSize, value, length);
}

int setname_pep(fid_t fid, void *addr, std::size_t length)
{
    PassiveEndpoint &pep = self(fid);
    ofi::Address wanted;
    if (!wanted.assign(addr, length))
        return -FI_EINVAL;
    if (pep.manager.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(pep.manager.mutex());
    return pep.set_address(wanted);
}

int getname_pep(fid_t fid, void *addr, std::size_t *length)
{
    PassiveEndpoint &pep = self(fid);
    const std::lock_guard guard(pep.manager.mutex());
    return pep.address.empty() ? -FI_EOPBADSTATE : pep.address.copy_to(addr, length);
}

int listen_pep(fid_pep *fid)
{
    PassiveEndpoint &pep = self(&fid->fid);
    if (pep.manager.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(pep.manager.mutex());
    if (pep.eq == nullptr)
        return -FI_ENOEQ;
    if (pep.listening)
        return -FI_EOPBADSTATE;
    if (!pep.id) {
        ofi::Address any;
        any.sa.sa_family = AF_INET;
        if (const int error = pep.set_address(any))
            return error;
    }
    if (table()->listen(pep.id.get(), pep.backlog) != 0)
        return last_error();
    pep.address = local_address(pep.id.get());
    pep.listening = true;
    VMA_DEBUG(ep_ctrl, "listens at %s", ofi::AddressText(pep.address).c_str());
    return 0;
}

int reject_pep(fid_pep *fid, fid_t handle, const void *param, std::size_t length)
{
    PassiveEndpoint &pep = self(&fid->fid);
    if (length > kCmDataSize || (param == nullptr && length > 0))
        return -FI_EINVAL;
    if (pep.manager.fabric().orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(pep.manager.mutex());
    Request *request = pep.manager.pending(handle);
    if (request == nullptr)
        return -FI_EINVAL;
    const int error = request->over ? 0 : refuse(request->id.get(), param, length);
    pep.manager.drop_request(*request);
    return error;
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
    .setopt = ofi::no_op,
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

int open_passive_endpoint(Manager &manager, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info == nullptr || pep == nullptr ||
        (info->ep_attr != nullptr && ofi::endpoint_type(info->ep_attr) != FI_EP_MSG))
        return -FI_EINVAL;
    std::unique_ptr<PassiveEndpoint> opened(new (std::nothrow) PassiveEndpoint(manager));
    if (!opened || !(opened->info = ofi::copy_info(*info)))
        return -FI_ENOMEM;
    const std::lock_guard guard(manager.mutex());
    if (info->src_addr != nullptr) {
        ofi::Address wanted;
        if (!wanted.assign(info->src_addr, info->src_addrlen))
            return -FI_EINVAL;
        if (const int error = opened->set_address(wanted))
            return error;
    }
    opened->fid.fid = {FI_CLASS_PEP, context, &g_fid_ops};
    opened->fid.ops = &g_ep_ops;
    opened->fid.cm = &g_cm_ops;
    manager.fabric().refs.fetch_add(1, std::memory_order_relaxed);
    *pep = &opened.release()->fid;
    return 0;
}

} // namespace vma::verbs
