// SPDX-License-Identifier: BSD-2-Clause
// fi_connect, fi_accept, fi_shutdown and the names of an active endpoint.
#include <cstring>
#include <new>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/cm/ep_cm.hpp"
#include "local/cm/manager.hpp"
#include "local/cm/pep.hpp"
#include "local/cm/possession.hpp"
#include "local/msg/endpoint.hpp"
#include "local/strangers.hpp"
#include "ofi/eq.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

using Phase = CmState::Phase;

CmState::CmState() noexcept = default;
CmState::~CmState()
{
    let_go(std::move(link)); // nobody asked by it
}

namespace {

Endpoint &self(fid_t fid)
{
    return *reinterpret_cast<Endpoint *>(fid);
}

Endpoint &self(fid_ep *fid)
{
    return self(&fid->fid);
}

ConnectionManager &manager(Endpoint &endpoint)
{
    return manager_of(endpoint.domain().fabric);
}

// Made from a FI_CONNREQ event.
int take_request(Endpoint &endpoint, fid_t handle)
{
    Connection *connection = manager(endpoint).pending(handle);
    if (connection == nullptr || connection->endpoint != nullptr) {
        VMA_WARN(ep_ctrl, "the handle of an endpoint's info is no connection request that waits");
        return -FI_EINVAL;
    }
    connection->endpoint = &endpoint;
    endpoint.cm.connection = connection;
    endpoint.cm.local = connection->local;
    endpoint.cm.peer = connection->peer;
    endpoint.cm.phase = Phase::requested;
    if (connection->link != nullptr)
        endpoint.cm.segments = connection->link->segments();
    return 0;
}

// Made from a passive endpoint: takes its address, and its port with it.
int take_passive(Endpoint &endpoint, fid_t handle)
{
    PassiveEndpoint &pep = *reinterpret_cast<PassiveEndpoint *>(handle);
    if (&pep.manager != &manager(endpoint) || (pep.listener && pep.listener->listening))
        return -FI_EINVAL;
    endpoint.cm.local = pep.address;
    endpoint.cm.port = std::move(pep.listener);
    return 0;
}

// Where nothing says otherwise: the host that it is going to talk to, else loopback; a port that no other has now.
void complete_local(CmState &cm, ConnectionManager &owner)
{
    if (cm.local.empty()) {
        cm.local = cm.peer.reachable();
        if (cm.local.empty()) {
            cm.local.sa.sa_family = AF_INET;
            cm.local = cm.local.reachable();
        }
        cm.local.set_port(0);
    }
    if (cm.local.port() == 0)
        cm.local.set_port(owner.ephemeral_port());
}

int take_addresses(Endpoint &endpoint, const fi_info &info)
{
    CmState &cm = endpoint.cm;
    if (cm.local.empty() && info.src_addr != nullptr && !cm.format.read(info.src_addr, info.src_addrlen, cm.local))
        return -FI_EINVAL;
    if (info.dest_addr != nullptr && !cm.format.read(info.dest_addr, info.dest_addrlen, cm.peer))
        return -FI_EINVAL;
    complete_local(cm, manager(endpoint));
    return 0;
}

std::unique_ptr<LinkMessage> build_request(const CmState &cm, const void *data, std::size_t length)
{
    std::unique_ptr<LinkMessage> message(new (std::nothrow) LinkMessage{});
    if (!message)
        return nullptr;
    message->type = MessageType::request;
    std::memcpy(&message->source, &cm.local.v6, cm.local.size());
    std::memcpy(&message->destination, &cm.peer.v6, cm.peer.size());
    message->data_length = static_cast<std::uint32_t>(length);
    if (length > 0)
        std::memcpy(message->data, data, length);
    return message;
}

int check_call(const Endpoint &endpoint, const void *data, std::size_t length)
{
    if (endpoint.domain().fabric.orphaned())
        return -FI_EOPBADSTATE;
    return length > ofi::kCmDataSize || (data == nullptr && length > 0) ? -FI_EINVAL : 0;
}

// fi_connect and fi_accept enable what the program has not.
int enable(Endpoint &endpoint)
{
    return endpoint.enabled() ? 0 : endpoint.enable();
}

int connect_ep(fid_ep *fid, const void *addr, const void *data, std::size_t length)
{
    Endpoint &endpoint = self(fid);
    if (const int error = check_call(endpoint, data, length))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    CmState &cm = endpoint.cm;
    if (cm.phase != Phase::idle)
        return cm.phase == Phase::connected ? -FI_EISCONN : -FI_EOPBADSTATE;
    if (cm.eq == nullptr)
        return -FI_ENOEQ;
    ofi::Address peer = cm.peer;
    if (addr != nullptr && !cm.format.read_whole(addr, peer))
        return -FI_EINVAL;
    if (cm.by_guest_link) { // whom it asks is the other side's to know
        peer.sa.sa_family = AF_INET;
        peer = peer.reachable();
        peer.set_port(1);
    }
    if (peer.empty() || peer.port() == 0)
        return -FI_EINVAL;
    if (!peer.is_local())
        return -FI_EHOSTUNREACH;
    cm.peer = peer.reachable();
    if (cm.local.is_wildcard()) {
        const std::uint16_t port = cm.local.port();
        cm.local = cm.peer;
        cm.local.set_port(port);
    }
    if (const int error = enable(endpoint))
        return error;
    std::unique_ptr<LinkMessage> message = build_request(cm, data, length);
    return message ? manager(endpoint).request(endpoint, std::move(message)) : -FI_ENOMEM;
}

int accept_ep(fid_ep *fid, const void *data, std::size_t length)
{
    Endpoint &endpoint = self(fid);
    if (const int error = check_call(endpoint, data, length))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase != Phase::requested)
        return -FI_EOPBADSTATE;
    if (endpoint.cm.eq == nullptr)
        return -FI_ENOEQ;
    if (const int error = enable(endpoint))
        return error;
    return manager(endpoint).accept(*endpoint.cm.connection, data, length);
}

// Ends a connection from this side: what the peer published before is still delivered.
void shut(Endpoint &endpoint)
{
    endpoint.cm.phase = Phase::closed;
    manager(endpoint).drop(*endpoint.cm.connection);
    endpoint.on_local_shutdown();
    endpoint.cm.eq->post_shutdown(&endpoint.fid.fid, nullptr);
}

int shutdown_ep(fid_ep *fid, std::uint64_t flags)
{
    Endpoint &endpoint = self(fid);
    if (flags != 0)
        return -FI_EINVAL;
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase == Phase::closed)
        return 0;
    if (endpoint.cm.phase != Phase::connected)
        return -FI_ENOTCONN;
    shut(endpoint);
    return 0;
}

int setname_ep(fid_t fid, void *addr, std::size_t length)
{
    Endpoint &endpoint = self(fid);
    ofi::Address wanted;
    if (!endpoint.cm.format.read(addr, length, wanted))
        return -FI_EINVAL;
    if (!wanted.is_local())
        return -FI_EADDRNOTAVAIL;
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase != Phase::idle)
        return -FI_EOPBADSTATE;
    endpoint.cm.local = wanted;
    endpoint.cm.port.reset();
    complete_local(endpoint.cm, manager(endpoint));
    return 0;
}

int getname_ep(fid_t fid, void *addr, std::size_t *length)
{
    Endpoint &endpoint = self(fid);
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    return endpoint.cm.format.copy(endpoint.cm.local, addr, length);
}

int getpeer_ep(fid_ep *fid, void *addr, std::size_t *length)
{
    Endpoint &endpoint = self(fid);
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase != Phase::connected && endpoint.cm.phase != Phase::closed)
        return -FI_ENOTCONN;
    return endpoint.cm.format.copy(endpoint.cm.peer, addr, length);
}

} // namespace

constinit fi_ops_cm endpoint_cm_ops = ofi::CmOps{.setname = setname_ep,
                                                 .getname = getname_ep,
                                                 .getpeer = getpeer_ep,
                                                 .connect = connect_ep,
                                                 .accept = accept_ep,
                                                 .shutdown = shutdown_ep};

int cm_open(Endpoint &endpoint, const fi_info *info) noexcept
{
    const std::lock_guard guard(manager(endpoint).mutex());
    endpoint.cm.format = ofi::AddressFormat(info);
    int error = 0;
    if (info->handle != nullptr) {
        switch (info->handle->fclass) {
        case FI_CLASS_CONNREQ:
            return take_request(endpoint, info->handle);
        case FI_CLASS_PEP:
            error = take_passive(endpoint, info->handle);
            break;
        default:
            error = -FI_EINVAL;
        }
    }
    if (error == 0)
        error = take_addresses(endpoint, *info);
    if (error == 0)
        endpoint.cm.segments = manager(endpoint).segments_of(endpoint.cm.peer.port());
    return error;
}

int cm_stand_beside(Endpoint &endpoint, const void *value, std::size_t length) noexcept
{
    fi_vma_tcp_socket given{};
    const bool has_addresses = length == sizeof given;
    if (value == nullptr || (length != sizeof given.fd && !has_addresses))
        return -FI_EINVAL;
    std::memcpy(&given, value, length); // the descriptor is first
    const TcpAddresses known = {given.local, given.peer, given.network};
    if (has_addresses && known.network == 0)
        return -FI_EINVAL;
    if (endpoint.domain().fabric.orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(manager(endpoint).mutex());
    CmState &cm = endpoint.cm;
    if (cm.phase != Phase::idle && cm.phase != Phase::requested)
        return -FI_EOPBADSTATE;
    std::unique_ptr<TcpEnd> tcp(new (std::nothrow) TcpEnd{});
    const int error =
        tcp ? tcp->assign(given.fd, has_addresses ? &known : nullptr, manager(endpoint).sock_diag) : -FI_ENOMEM;
    if (error == 0)
        cm.tcp = std::move(tcp);
    return error;
}

int cm_use_link(Endpoint &endpoint, const void *value, std::size_t length) noexcept
{
    fi_vma_link link{};
    if (value == nullptr || length != sizeof link)
        return -FI_EINVAL;
    std::memcpy(&link, value, sizeof link);
    if (endpoint.domain().fabric.orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(manager(endpoint).mutex());
    CmState &cm = endpoint.cm;
    const bool introduced = (link.flags & FI_VMA_LINK_INTRODUCED) != 0;
    if (kind_of_link(link) != LinkSocket::connected)
        return -FI_EINVAL;
    if (cm.phase != Phase::idle ||
        (!cm.tcp && !introduced)) // nobody but the holder of a connection's other end is a guest
        return -FI_EOPBADSTATE;
    cm.link = take_link_socket(link.socket);
    cm.by_guest_link = true;
    cm.link_number = introduced ? link.id : 0;
    return 0;
}

int cm_nudge(Endpoint &endpoint) noexcept
{
    if (endpoint.domain().fabric.orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase != Phase::connected)
        return -FI_ENOTCONN;
    manager(endpoint).nudge(*endpoint.cm.connection);
    return 0;
}

int cm_bind_eq(Endpoint &endpoint, ofi::Eq &eq) noexcept
{
    if (&eq.fabric != &endpoint.domain().fabric)
        return -FI_EINVAL;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.eq != nullptr)
        return -FI_EINVAL;
    eq.refs.fetch_add(1, std::memory_order_relaxed);
    endpoint.cm.eq = &eq;
    return 0;
}

void cm_close(Endpoint &endpoint) noexcept
{
    if (endpoint.domain().fabric.orphaned())
        return;
    CmState &cm = endpoint.cm;
    const std::lock_guard guard(manager(endpoint).mutex());
    if (cm.connection != nullptr)
        manager(endpoint).drop(*cm.connection);
    cm.phase = Phase::closed;
    cm.port.reset();
    if (cm.eq == nullptr)
        return;
    cm.eq->remove_events(&endpoint.fid.fid);
    cm.eq->refs.fetch_sub(1, std::memory_order_release);
    cm.eq = nullptr;
}

void cm_abort(Endpoint &endpoint, const char *why) noexcept
{
    const std::lock_guard guard(manager(endpoint).mutex());
    if (endpoint.cm.phase != Phase::connected)
        return;
    VMA_WARN(ep_ctrl, "the peer at %s %s: the connection is closed", ofi::AddressText(endpoint.cm.peer).c_str(), why);
    shut(endpoint);
}

} // namespace vma::local
