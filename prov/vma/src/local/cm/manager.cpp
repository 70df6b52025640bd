// SPDX-License-Identifier: BSD-2-Clause
// The manager's frame: its epoll set, its links, what it opens for others.
#include "local/cm/manager.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/cm/pep.hpp"
#include "local/dgram/endpoint.hpp"
#include "local/list.hpp"
#include "local/msg/endpoint.hpp"
#include "local/msg/srx.hpp"
#include "local/queue.hpp"
#include "local/strangers.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/memory/mr.hpp"
#include "rdm/open.hpp"

namespace vma::ofi {

constinit const Device kLocalDevice = {kLocalName, local::list_infos, local::ConnectionManager::open, nullptr};

} // namespace vma::ofi

namespace vma::local {
namespace {

constexpr int kEventsAtOnce = 256; // sources, before a reader gets what they brought
constexpr std::size_t kMaxIdleLinks = 64;
constexpr std::size_t kMaxIdleGuests = 16;
constexpr std::size_t kMaxIdleIntroduced = 128; // both ends have them from the same moment on, one for each connection
constexpr std::uint16_t kFirstEphemeral = 49152;

} // namespace

ConnectionManager::ConnectionManager(ofi::Fabric &fabric) noexcept : fabric_(fabric) {}

ConnectionManager::~ConnectionManager()
{
    for (auto &[connection, owner] : connections_)
        connection->link = nullptr;
    links_.clear();
}

std::unique_ptr<ofi::DeviceFabric> ConnectionManager::open(ofi::Fabric &fabric, int *error) noexcept
{
    std::unique_ptr<ConnectionManager> manager(new (std::nothrow) ConnectionManager(fabric));
    *error = manager ? manager->open_sets() : -FI_ENOMEM;
    if (*error != 0)
        return nullptr;
    return manager;
}

int ConnectionManager::open_sets() noexcept
{
    epoll_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    int error = epoll_ ? retries_.open() : -errno;
    if (error == 0)
        error = secret.open();
    if (error != 0) {
        VMA_WARN(fabric, "cannot open a fabric: %s", std::strerror(-error));
        return error;
    }
    std::uint64_t random = 0;
    [[maybe_unused]] const ssize_t filled = ::getrandom(&random, sizeof(random), GRND_NONBLOCK);
    next_ephemeral_ = static_cast<std::uint16_t>(random);
    return 0;
}

// One source at a time, since each may destroy any other.
void ConnectionManager::progress(bool wait) noexcept
{
    std::unique_lock guard(mutex_, std::defer_lock);
    if (wait)
        guard.lock();
    else if (!guard.try_lock())
        return;
    for (int i = 0; i < kEventsAtOnce; ++i) {
        epoll_event event{};
        if (core::kernel::epoll_wait(epoll_.get(), &event, 1, 0) != 1)
            return;
        watches_.load(std::memory_order_acquire);
        static_cast<EventSource *>(event.data.ptr)->on_ready(event.events);
    }
}

int ConnectionManager::domain(ofi::Domain &domain, const fi_info &info) noexcept
{
    const char *name = info.domain_attr->name;
    if (name != nullptr && std::strcmp(name, ofi::kLocalName) != 0) {
        VMA_WARN(domain, "there is no domain of the name %s", name);
        return -FI_EINVAL;
    }
    domain.fid.mr = &ofi::mr_ops;
    return 0;
}

int ConnectionManager::passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept
{
    return open_passive_endpoint(*this, info, pep, context);
}

int ConnectionManager::endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept
{
    switch (ofi::endpoint_type(info->ep_attr)) {
    case FI_EP_DGRAM:
        return open_datagram_endpoint(domain, info, ep, context);
    case FI_EP_RDM:
        return rdm::open_endpoint(domain, info, ep, context);
    case FI_EP_UNSPEC:
    case FI_EP_MSG:
        return open_endpoint(domain, info, ep, context);
    default:
        return -FI_EINVAL;
    }
}

int ConnectionManager::shared_receive(ofi::Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept
{
    if (attr != nullptr && (attr->op_flags & FI_PEER) != 0)
        return rdm::open_peer_srx(domain, ep, context);
    return open_srx(domain, attr, ep, context);
}

int ConnectionManager::completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    return open_cq(domain, attr, cq, context);
}

bool ConnectionManager::watch(EventSource &source, int fd, std::uint32_t events, bool first) noexcept
{
    epoll_event interest{};
    interest.events = events;
    interest.data.ptr = &source;
    watches_.fetch_add(1, std::memory_order_release);
    return core::kernel::epoll_ctl(epoll_.get(), first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &interest) == 0;
}

// Closing alone doesn't take it out where a child of vfork() or clone() holds a copy.
void ConnectionManager::unwatch(int fd) noexcept
{
    if (!fabric_.orphaned())
        core::kernel::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::shared_ptr<Directory> ConnectionManager::directory(int *error) noexcept
{
    if (!directory_)
        directory_ = Directory::open(error);
    return directory_;
}

std::uint16_t ConnectionManager::ephemeral_port() noexcept
{
    return static_cast<std::uint16_t>(kFirstEphemeral + next_ephemeral_++ % (65536 - kFirstEphemeral));
}

Link *ConnectionManager::add_link(core::UniqueFd socket, const Link::Origin &origin) noexcept
{
    std::unique_ptr<Link> link(new (std::nothrow) Link(*this, std::move(socket), origin));
    if (!link || !link->start())
        return nullptr;
    Link *raw = link.get();
    links_.emplace(raw, std::move(link));
    return raw;
}

void ConnectionManager::adopt_socket(core::UniqueFd socket) noexcept
{
    add_link(std::move(socket), {.initiator = false});
}

Link *ConnectionManager::guest_link(core::UniqueFd socket, bool initiator, PassiveEndpoint *pep,
                                    std::uint64_t number) noexcept
{
    constexpr std::uint64_t kIntroduced = std::uint64_t{1} << 63; // never the number of another one
    if (too_many_left_open()) {
        let_go(std::move(socket));
        return nullptr;
    }
    const bool introduced = number != 0;
    drop_idle_guests(introduced);
    const std::uint64_t order = ++guests_;
    return add_link(std::move(socket), {.initiator = initiator,
                                        .guest = introduced ? number | kIntroduced : order,
                                        .order = order,
                                        .introduced = introduced,
                                        .user = static_cast<uid_t>(number >> 32),
                                        .pep = pep});
}

namespace {

std::uint64_t key_of_guest(uid_t user, pid_t process) noexcept
{
    return std::uint64_t{user} << 32 | static_cast<std::uint32_t>(process);
}

} // namespace

std::uint64_t ConnectionManager::number_of_guest(uid_t user, pid_t process, std::uint64_t fresh) noexcept
{
    if (process == 0)
        return fresh;
    GuestProcess &known = guest_processes_[key_of_guest(user, process)];
    if (known.links++ == 0)
        known.number = fresh;
    return known.number;
}

void ConnectionManager::forget_guest(uid_t user, pid_t process) noexcept
{
    const auto known = guest_processes_.find(key_of_guest(user, process));
    if (known != guest_processes_.end() && --known->second.links == 0)
        guest_processes_.erase(known);
}

// One that connects and says nothing is dropped for the next, so no guest keeps another out, nor uses our descriptors
// up. So is what has been used.
void ConnectionManager::drop_idle_guests(bool introduced) noexcept
{
    const auto counts = [this, introduced](const Link &link) {
        return link.guest() != 0 && link.was_introduced() == introduced && link.is_idle() && &link != reading_;
    };
    std::unordered_map<uid_t, std::size_t> idle; // by user: who opens many ends links of his own
    std::size_t total = 0;
    uid_t most = 0;
    for (const auto &[link, owner] : links_) {
        if (!counts(*link))
            continue;
        ++total;
        if (++idle[link->peer_uid()] > idle[most])
            most = link->peer_uid();
    }
    if (total < (introduced ? kMaxIdleIntroduced : kMaxIdleGuests))
        return;
    Link *first = nullptr;
    for (const auto &[link, owner] : links_) {
        if (counts(*link) && link->peer_uid() == most && (first == nullptr || link->order() < first->order()))
            first = link;
    }
    on_link_end(*first);
}

void ConnectionManager::leave_guests(PassiveEndpoint &pep) noexcept
{
    std::vector<Link *> over;
    for (const auto &[link, owner] : links_) {
        if (link->asked_for() == &pep)
            over.push_back(link);
    }
    for (Link *link : over)
        link->ask_for_nobody();
}

// The link that leads to the port's listener. -FI_EAGAIN: its backlog is full.
Link *ConnectionManager::link_to(std::uint16_t port, bool *cached, int *error) noexcept
{
    const auto known = link_by_port_.find(port);
    *cached = known != link_by_port_.end();
    if (*cached)
        return known->second;
    const std::shared_ptr<Directory> found = directory(error);
    if (!found)
        return nullptr;
    core::UniqueFd socket = found->connect(port, error);
    if (!socket)
        return nullptr;
    drop_idle_link();
    Link *link = add_link(std::move(socket), {.initiator = true, .port = port});
    *error = link != nullptr ? 0 : -FI_ECONNREFUSED;
    if (link != nullptr)
        link_by_port_[port] = link;
    return link;
}

std::shared_ptr<LinkSegments> ConnectionManager::segments_of(std::uint16_t port) const noexcept
{
    const auto known = link_by_port_.find(port);
    return known != link_by_port_.end() && !known->second->is_broken() ? known->second->segments() : nullptr;
}

// A link without connections is kept for the next one, but not without end.
void ConnectionManager::drop_idle_link() noexcept
{
    if (link_by_port_.size() < kMaxIdleLinks)
        return;
    for (const auto &[port, link] : link_by_port_) {
        if (link->is_idle() && link != reading_) {
            on_link_end(*link);
            return;
        }
    }
}

void ConnectionManager::on_link_end(Link &link) noexcept
{
    const auto known = link_by_port_.find(link.port());
    if (known != link_by_port_.end() && known->second == &link)
        link_by_port_.erase(known);
    const int request_error = link.is_up() ? FI_ECONNRESET : FI_ECONNREFUSED;
    std::vector<Connection *> again;
    while (!link.connections.empty()) {
        Connection &connection = *link.connections.begin()->second;
        // An older link's end says nothing of who listens at the port now.
        if (connection.state == Connection::State::requesting && connection.cached_link) {
            link.connections.erase(connection.id);
            connection.link = nullptr;
            again.push_back(&connection);
        } else {
            on_over(connection, request_error);
        }
    }
    retries_.remove(link);
    links_.erase(&link);
    for (Connection *connection : again)
        retry_now(*connection);
}

} // namespace vma::local
