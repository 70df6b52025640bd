// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/pep.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "core/mutex.hpp"
#include "local/cm/manager.hpp"
#include "local/strangers.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/passive_endpoint.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {
namespace {

constexpr unsigned kDefaultBacklog = 4096; // requests that the program has not answered
constexpr int kLinksAtOnce = 64;

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

GuestListener::~GuestListener()
{
    if (watched_)
        pep_.manager.unwatch(socket_.get());
    let_go_of_listener(std::move(socket_));
}

bool GuestListener::start() noexcept
{
    watched_ = pep_.manager.watch(*this, socket_.get(), EPOLLIN, true);
    return watched_;
}

// Without a descriptor the guest waits in the socket's queue: it tries again, or gives up.
void GuestListener::on_ready(std::uint32_t) noexcept
{
    for (int i = 0; i < kLinksAtOnce && !too_many_left_open(); ++i) {
        core::UniqueFd socket = core::make_fd(
            [this] { return core::kernel::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (socket)
            pep_.manager.guest_link(std::move(socket), false, &pep_);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
    if (too_many_left_open() && std::exchange(watched_, false))
        pep_.manager.unwatch(socket_.get());
}

PassiveEndpoint::PassiveEndpoint(ConnectionManager &owner) noexcept : manager(owner), backlog(kDefaultBacklog) {}

int PassiveEndpoint::close(fid_t fid)
{
    PassiveEndpoint &pep = *reinterpret_cast<PassiveEndpoint *>(fid);
    ofi::Fabric &fabric = pep.fabric();
    if (fabric.orphaned())
        return 0;
    {
        const std::lock_guard guard(pep.manager.mutex());
        if (pep.listener && pep.listener->listening)
            pep.manager.listening.erase(pep.listener->port());
        pep.manager.leave_guests(pep);
        release_requests(pep);
        delete &pep;
    }
    fabric.refs.fetch_sub(1, std::memory_order_release);
    return 0;
}

ofi::Fabric &PassiveEndpoint::fabric() const noexcept
{
    return manager.fabric();
}

std::unique_lock<core::Mutex> PassiveEndpoint::lock() const noexcept
{
    return std::unique_lock(manager.mutex());
}

int PassiveEndpoint::get_option(int name, void *value, std::size_t *length) const noexcept
{
    if (name != FI_OPT_CM_DATA_SIZE)
        return -FI_ENOPROTOOPT;
    if (value == nullptr || length == nullptr)
        return -FI_EINVAL;
    const std::size_t size = kMostData;
    const std::size_t room = *length;
    *length = sizeof(size);
    if (room < sizeof(size))
        return -FI_ETOOSMALL;
    std::memcpy(value, &size, sizeof(size));
    return 0;
}

int PassiveEndpoint::set_option(int name, const void *value, std::size_t length) noexcept
{
    const bool adds = static_cast<unsigned>(name) == FI_OPT_VMA_LINK;
    if (!adds && static_cast<unsigned>(name) != FI_OPT_VMA_UNLINK)
        return -FI_ENOPROTOOPT;
    fi_vma_link link{};
    if (value == nullptr || length != sizeof link)
        return -FI_EINVAL;
    std::memcpy(&link, value, sizeof link);
    if (fabric().orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(manager.mutex());
    if (!adds)
        return remove_link(link.id);
    return listener && listener->listening ? add_link(link) : -FI_EOPBADSTATE;
}

int PassiveEndpoint::add_link(const fi_vma_link &link) noexcept
{
    const LinkSocket kind = kind_of_link(link);
    const bool introduced = (link.flags & FI_VMA_LINK_INTRODUCED) != 0;
    if (kind == LinkSocket::none)
        return -FI_EINVAL;
    if (kind == LinkSocket::connected) {
        const std::uint64_t number = introduced ? link.id : 0;
        // One that can't be kept ends at once, as if the peer had ended it: its number is the program's no more.
        static_cast<void>(manager.guest_link(take_link_socket(link.socket), false, this, number));
        return 0;
    }
    if (too_many_left_open())
        return -FI_EACCES;
    std::unique_ptr<GuestListener> made(new (std::nothrow)
                                            GuestListener(*this, take_link_socket(link.socket), link.id));
    if (!made)
        return -FI_ENOMEM;
    if (made->start())
        guest_listeners.push_back(std::move(made)); // else nobody comes, and it has ended likewise
    return 0;
}

int PassiveEndpoint::remove_link(std::uint64_t id) noexcept
{
    const auto is_it = [id](const auto &one) { return one->id() == id; };
    return std::erase_if(guest_listeners, is_it) != 0 ? 0 : -FI_ENOENT;
}

void PassiveEndpoint::set_backlog(int requests) noexcept
{
    backlog = std::max(static_cast<unsigned>(requests), 1U); // as listen(2) takes 0
}

int PassiveEndpoint::listen() noexcept
{
    if (!listener) {
        ofi::Address any = address;
        if (any.empty())
            any.sa.sa_family = AF_INET;
        if (const int error = set_address(any))
            return error;
    }
    if (listener->listening)
        return -FI_EOPBADSTATE;
    listener->listening = true;
    manager.listening[listener->port()] = this;
    VMA_DEBUG(ep_ctrl, "listens at %s", ofi::AddressText(address).c_str());
    return 0;
}

int PassiveEndpoint::reject(fid_t handle, const void *param, std::size_t length) noexcept
{
    Connection *connection = manager.pending(handle);
    if (connection == nullptr || connection->endpoint != nullptr)
        return -FI_EINVAL;
    manager.reject(*connection, RejectReason::program, param, length);
    return 0;
}

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
    return ofi::request_info(*info, fabric().fid, own, peer, handle);
}

int open_passive_endpoint(ConnectionManager &manager, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info != nullptr && info->ep_attr != nullptr && ofi::endpoint_type(info->ep_attr) != FI_EP_MSG)
        return -FI_EINVAL;
    return ofi::open_passive<PassiveEndpoint>(manager, info, pep, context);
}

} // namespace vma::local
