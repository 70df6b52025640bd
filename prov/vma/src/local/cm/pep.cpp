// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/pep.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/noop.hpp"

namespace vma::local {
namespace {

constexpr unsigned kDefaultBacklog = 4096; // requests that the program has not answered
constexpr int kLinksAtOnce = 64;

PassiveEndpoint &self(fid_t fid)
{
    return *reinterpret_cast<PassiveEndpoint *>(fid);
}

bool orphaned(PassiveEndpoint &pep)
{
    return pep.manager.fabric().orphaned();
}

// Requests that the program never saw are refused. Those that it saw stay good: it may still accept them.
void release_requests(PassiveEndpoint &pep)
{
    if (pep.eq != nullptr) {
        for (const ofi::InfoPtr &unread : pep.eq->remove_events(&pep.fid.fid)) {
            if (Connection *connection = pep.manager.pending(unread ? unread->handle : nullptr))
                pep.manager.reject(*connection, RejectReason::no_listener, nullptr, 0);
        }
        pep.eq->refs.fetch_sub(1, std::memory_order_release);
    }
    pep.manager.leave_requests(pep);
}

int close_pep(fid_t fid)
{
    PassiveEndpoint &pep = self(fid);
    if (orphaned(pep))
        return 0;
    ofi::Fabric &fabric = pep.manager.fabric();
    {
        const std::lock_guard guard(pep.manager.mutex());
        if (pep.listener && pep.listener->listening)
            pep.manager.listening.erase(pep.listener->port());
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
    pep.backlog = static_cast<unsigned>(*static_cast<int *>(arg));
    if (pep.backlog == 0)
        pep.backlog = 1; // as listen(2) takes it
    return 0;
}

int getopt_pep(fid_t, int level, int name, void *value, std::size_t *length)
{
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
        return -FI_ENOPROTOOPT;
    if (value == nullptr || length == nullptr)
        return -FI_EINVAL;
    const std::size_t size = ofi::kCmDataSize;
    const std::size_t room = *length;
    *length = sizeof(size);
    if (room < sizeof(size))
        return -FI_ETOOSMALL;
    std::memcpy(value, &size, sizeof(size));
    return 0;
}

int setname_pep(fid_t fid, void *addr, std::size_t length)
{
    PassiveEndpoint &pep = self(fid);
    ofi::Address wanted;
    if (!wanted.assign(addr, length))
        return -FI_EINVAL;
    if (orphaned(pep))
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
    PassiveEndpoint &pep = pep_of(fid);
    if (orphaned(pep))
        return -FI_EOPBADSTATE;
    if (pep.eq == nullptr)
        return -FI_ENOEQ;
    const std::lock_guard guard(pep.manager.mutex());
    if (!pep.listener) {
        ofi::Address any = pep.address;
        if (any.empty())
            any.sa.sa_family = AF_INET;
        if (const int error = pep.set_address(any))
            return error;
    }
    if (pep.listener->listening)
        return -FI_EOPBADSTATE;
    pep.listener->listening = true;
    pep.manager.listening[pep.listener->port()] = &pep;
    VMA_DEBUG(ep_ctrl, "listens at %s", ofi::AddressText(pep.address).c_str());
    return 0;
}

int reject_pep(fid_pep *fid, fid_t handle, const void *param, std::size_t length)
{
    PassiveEndpoint &pep = pep_of(fid);
    if (length > ofi::kCmDataSize || (param == nullptr && length > 0))
        return -FI_EINVAL;
    if (orphaned(pep))
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(pep.manager.mutex());
    Connection *connection = pep.manager.pending(handle);
    if (connection == nullptr || connection->endpoint != nullptr)
        return -FI_EINVAL;
    pep.manager.reject(*connection, RejectReason::program, param, length);
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

std::unique_ptr<Listener> Listener::open(ConnectionManager &manager, std::uint16_t port, int *error) noexcept
{
    const std::shared_ptr<Directory> directory = manager.directory(error);
    if (!directory)
        return nullptr;
    std::unique_ptr<Listener> listener(new (std::nothrow) Listener(manager));
    *error = listener ? directory->reserve(port, listener->name_) : -FI_ENOMEM;
    if (*error != 0)
        return nullptr;
    if (!manager.watch(*listener, listener->name_.socket(), EPOLLIN, true)) {
        *error = -errno;
        return nullptr;
    }
    listener->watched_ = true;
    return listener;
}

Listener::~Listener()
{
    manager_.cancel_retry(*this);
    if (watched_)
        manager_.unwatch(name_.socket());
}

void Listener::resume() noexcept
{
    manager_.watch(*this, name_.socket(), EPOLLIN, false);
}

void Listener::on_ready(std::uint32_t) noexcept
{
    for (int i = 0; i < kLinksAtOnce; ++i) {
        core::UniqueFd socket = core::make_fd(
            [this] { return core::kernel::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (socket) {
            if (listening)
                manager_.adopt_socket(std::move(socket));
            continue;
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            VMA_WARN(ep_ctrl, "cannot take a connection at port %u: %s", unsigned{port()}, std::strerror(errno));
            manager_.watch(*this, name_.socket(), 0, false);
            manager_.retry_later(*this);
        }
        return;
    }
}

PassiveEndpoint::PassiveEndpoint(ConnectionManager &owner) noexcept : manager(owner), backlog(kDefaultBacklog) {}

int PassiveEndpoint::set_address(const ofi::Address &wanted) noexcept
{
    if (listener && listener->listening)
        return -FI_EOPBADSTATE;
    if (!wanted.is_local())
        return -FI_EADDRNOTAVAIL;
    if (!listener || listener->port() != wanted.port()) {
        int error = 0;
        std::unique_ptr<Listener> reserved = Listener::open(manager, wanted.port(), &error);
        if (!reserved)
            return error;
        listener = std::move(reserved);
    }
    address = wanted;
    address.set_port(listener->port());
    return 0;
}

bool PassiveEndpoint::accepts(const ofi::Address &destination) const noexcept
{
    if (!address.is_wildcard())
        return address.same_host(destination);
    return address.sa.sa_family == AF_INET6 || destination.sa.sa_family == AF_INET;
}

ofi::InfoPtr PassiveEndpoint::request_info(const ofi::Address &own, const ofi::Address &peer,
                                           fid_t handle) const noexcept
{
    ofi::InfoPtr request = ofi::copy_info(*info);
    if (!request || !ofi::set_source(*request, own) || !ofi::set_destination(*request, peer))
        return nullptr;
    request->handle = handle;
    if (request->addr_format != FI_SOCKADDR)
        request->addr_format = own.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    request->domain_attr->domain = nullptr;
    request->fabric_attr->fabric = &manager.fabric().fid;
    if (request->fabric_attr->prov_name == nullptr)
        request->fabric_attr->prov_name = ::strdup(ofi::kProviderName);
    return request->fabric_attr->prov_name != nullptr ? std::move(request) : nullptr;
}

int open_passive_endpoint(ConnectionManager &manager, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info == nullptr || pep == nullptr ||
        (info->ep_attr != nullptr && ofi::endpoint_type(info->ep_attr) != FI_EP_MSG))
        return -FI_EINVAL;
    std::unique_ptr<PassiveEndpoint> opened(new (std::nothrow) PassiveEndpoint(manager));
    if (!opened)
        return -FI_ENOMEM;
    opened->info = ofi::copy_info(*info);
    if (!opened->info)
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

} // namespace vma::local
