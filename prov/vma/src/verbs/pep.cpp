// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/pep.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/give_option.hpp"
#include "ofi/info/config.hpp"
#include "ofi/info/device_filters.hpp"
#include "ofi/passive_endpoint.hpp"
#include "verbs/nic.hpp"

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

// FI_VMA_PORT, else what the configuration file says of a device that has the address; a wildcard is everywhere.
std::optional<core::PortRange> configured_ports(const ofi::Address &wanted)
{
    const std::optional<core::Filters> filters = ofi::device_filters();
    const core::ConfigFile *const file = ofi::configuration().file;
    if ((filters && filters->ports) || file == nullptr)
        return filters ? filters->ports : std::nullopt;
    for (const Place &place : places()) {
        const std::optional<in6_addr> address = core::ip_of(&place.address.sa);
        if (!address || !(wanted.is_wildcard() || place.address.same_host(wanted)))
            continue;
        if (const auto ports = file->ports_of(core::DeviceKind::rdma, place.nic->name, place.interface, *address))
            return ports;
    }
    return std::nullopt;
}

// Where no port is asked for: one of those, else any.
int bind_to(rdma_cm_id *id, ofi::Address wanted)
{
    core::PortRange range{wanted.port(), wanted.port()};
    if (wanted.port() == 0) {
        if (const std::optional<core::PortRange> ports = configured_ports(wanted))
            range = *ports;
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

// For the device of this connection too.
ofi::InfoPtr request_info(const PassiveEndpoint &pep, Request &request)
{
    ofi::InfoPtr info = ofi::request_info(*pep.info, pep.fabric().fid, local_address(request.id.get()),
                                          peer_address(request.id.get()), &request.handle);
    if (!info)
        return info;
    std::free(info->domain_attr->name);
    info->domain_attr->name = ::strdup(table()->get_device_name(request.id->verbs->device));
    return info->domain_attr->name != nullptr ? std::move(info) : nullptr;
}

int refuse(rdma_cm_id *id, const void *data, std::size_t length)
{
    ConnectMessage message;
    message.set_data(data, length);
    return table()->reject(id, &message, message.size()) == 0 ? 0 : last_error();
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

} // namespace

int PassiveEndpoint::close(fid_t fid)
{
    PassiveEndpoint &pep = *reinterpret_cast<PassiveEndpoint *>(fid);
    ofi::Fabric &fabric = pep.fabric();
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

int PassiveEndpoint::get_option(int name, void *value, std::size_t *length) const noexcept
{
    return name == FI_OPT_CM_DATA_SIZE ? ofi::give_option(kMostData, value, length) : -FI_ENOPROTOOPT;
}

int PassiveEndpoint::listen() noexcept
{
    if (listening)
        return -FI_EOPBADSTATE;
    if (!id) {
        ofi::Address any;
        any.sa.sa_family = AF_INET;
        if (const int error = set_address(any))
            return error;
    }
    if (table()->listen(id.get(), backlog) != 0)
        return last_error();
    address = local_address(id.get());
    listening = true;
    VMA_DEBUG(ep_ctrl, "listens at %s", ofi::AddressText(address).c_str());
    return 0;
}

int PassiveEndpoint::reject(fid_t handle, const void *param, std::size_t length) noexcept
{
    Request *request = manager.pending(handle);
    if (request == nullptr)
        return -FI_EINVAL;
    const int error = request->over ? 0 : refuse(request->id.get(), param, length);
    manager.drop_request(*request);
    return error;
}

int open_passive_endpoint(Manager &manager, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info != nullptr && info->ep_attr != nullptr && ofi::endpoint_type(info->ep_attr) != FI_EP_MSG)
        return -FI_EINVAL;
    return ofi::open_passive<PassiveEndpoint>(manager, info, pep, context);
}

} // namespace vma::verbs
