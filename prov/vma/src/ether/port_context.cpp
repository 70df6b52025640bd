// SPDX-License-Identifier: BSD-2-Clause
#include "ether/port_context.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "core/made_once.hpp"
#include "core/mutex.hpp"
#include "ether/address.hpp"
#include "ether/dgram/endpoint.hpp"
#include "ether/pep.hpp"
#include "ether/stream/endpoint.hpp"

namespace vma::ether {
namespace {

constexpr inet::Nanos kLookInterval = 20 * inet::kMillisecond; // between looks at connections without an endpoint
constexpr inet::Nanos kReadInterval = inet::kMillisecond;      // between looks at the kernel's sockets of datagrams
constexpr std::size_t kLooks = 256;                            // at so many of them each time
constexpr inet::Nanos kFarewell = inet::kSecond; // for what was sent last, when nobody uses the NIC any more

// Some 80 MiB of address space, of which only what is used becomes memory.
constexpr inet::TcpLimits kLimits = {
    .connections = 16384, .listeners = 1024, .time_waits = 65536, .paths = 4096, .sent = 65536};

// Who has which NIC open. Those that a parent opened are left to it.
struct Registry {
    core::Mutex mutex;
    std::uint32_t generation = core::fork_generation();
    std::map<std::string, std::weak_ptr<PortContext>, std::less<>> port_contexts;
};

// The process's; its own mutex protects it.
constinit core::MadeOnce<Registry> g_registry;

// A socket that is bound and does nothing else: nobody else gets the port. By the numbers of the calls, as the preload
// library's own socket() is not meant for us.
int bind_in_kernel(inet::Protocol protocol, inet::Endpoint &local, core::UniqueFd &socket) noexcept
{
    ofi::Address address = to_socket_address(local);
    const int type = (protocol == inet::Protocol::kTcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
    socket = core::make_fd([&] { return static_cast<int>(::syscall(SYS_socket, address.sa.sa_family, type, 0)); });
    if (!socket || ::syscall(SYS_bind, socket.get(), &address.sa, static_cast<socklen_t>(address.size())) != 0)
        return -errno;
    socklen_t length = sizeof address.v6;
    if (::syscall(SYS_getsockname, socket.get(), &address.sa, &length) != 0)
        return -errno;
    local.port = address.port();
    return 0;
}

} // namespace

std::size_t PortContext::Hash::operator()(const Place &place) const noexcept
{
    std::uint64_t words[2];
    std::memcpy(words, place.local.address.bytes.data(), sizeof words);
    const auto number = static_cast<std::uint64_t>(place.protocol) << 16 | place.local.port;
    return std::hash<std::uint64_t>()((words[0] ^ words[1]) * 31 + number);
}

int PortContext::open(const char *interface, std::shared_ptr<PortContext> &port_context) noexcept
{
    Registry &r = g_registry.get();
    const std::lock_guard guard(r.mutex);
    if (r.generation != core::fork_generation()) {
        r.generation = core::fork_generation();
        r.port_contexts.clear();
    }
    if (const auto found = r.port_contexts.find(interface); found != r.port_contexts.end()) {
        if ((port_context = found->second.lock()))
            return 0;
    }
    std::shared_ptr<PortContext> made(new (std::nothrow) PortContext);
    if (!made)
        return -ENOMEM;
    inet::TcpLimits limits = kLimits;
    limits.gro_streams = configured_gro_streams();
    if (const int error = NetIf::open(interface, limits, made->net_if_))
        return error;
    made->guardian_.connect();
    r.port_contexts[interface] = made;
    port_context = std::move(made);
    return 0;
}

// Peers get what was sent to them before, as after the exit of a program that uses the kernel's sockets.
PortContext::~PortContext()
{
    if (net_if_)
        finish();
}

void PortContext::finish() noexcept
{
    const inet::Nanos end = now_ns() + kFarewell;
    while (tcp().open_connections() != 0 && now_ns() < end) {
        if (net_if_->turn() || !net_if_->arm())
            continue;
        pollfd wanted{wait_fd(), POLLIN, 0};
        static_cast<void>(core::kernel::poll(&wanted, 1, 10));
    }
    if (tcp().open_connections() == 0)
        guardian_.forget();
}

// ---- progress -------------------------------------------------------------------------------------------------------

void PortContext::progress() noexcept
{
    if (!lock_.try_lock())
        return;
    turn();
    lock_.unlock();
}

void PortContext::serve() noexcept
{
    if (service_fd() < 0 || !lock_.try_lock())
        return;
    net_if_->serve();
    lock_.unlock();
}

void PortContext::prepare_to_sleep() noexcept
{
    constexpr int kTurns = 64;
    const core::SpinGuard guard(lock_);
    for (int i = 0; i < kTurns; ++i) {
        turn();
        if (net_if_->arm(closed_.empty() ? inet::kNever : next_look_))
            return;
    }
    net_if_->wake_at_once();
}

void PortContext::turn() noexcept
{
    if (net_if_->turn()) {
        dispatch();
        if (net_if_->stack().wants_output())
            net_if_->send(now_ns());
    }
    if (net_if_->has_lost_peers()) [[unlikely]]
        tell_lost_peers();
    if (closed_.empty() && datagrams_open_ == 0)
        return;
    const inet::Nanos now = now_ns();
    look_after_closed(now);
    read_kernel_sockets(now);
}

void PortContext::dispatch() noexcept
{
    inet::TcpEvent event;
    while (tcp().next_event(event)) {
        if (event.user == 0)
            continue; // a connection that waits for its endpoint
        if ((event.what & inet::kAcceptable) != 0)
            reinterpret_cast<PassiveEndpoint *>(event.user)->on_acceptable();
        else
            reinterpret_cast<Stream *>(event.user)->on_event(event.what);
    }
    inet::UdpTable &udp = net_if_->stack().udp();
    for (inet::UdpSocketId id; (id = udp.next_event()) != inet::kNoUdpSocket;) {
        if (id < datagrams_.size() && datagrams_[id] != nullptr)
            datagrams_[id]->take_arrived();
    }
}

void PortContext::unwatch_route(Stream &stream) noexcept
{
    std::erase(offloaded_, &stream);
}

void PortContext::tell_lost_peers() noexcept
{
    for (const inet::IpAddress &peer : net_if_->take_lost_peers()) {
        for (Stream *const stream : offloaded_) {
            if (stream->flow.remote.address == peer)
                stream->end();
        }
    }
}

void PortContext::look_after_closed(inet::Nanos now) noexcept
{
    if (now < next_look_)
        return;
    next_look_ = now + kLookInterval;
    for (std::size_t i = 0; i < kLooks && !closed_.empty(); ++i) {
        if (closed_at_ >= closed_.size())
            closed_at_ = 0;
        const Closed closed = closed_[closed_at_];
        if (tcp().knows(closed.flow)) {
            ++closed_at_;
            continue;
        }
        closed_[closed_at_] = closed_.back();
        closed_.pop_back();
        unguard(closed.flow);
        if (closed.offloaded)
            unsteer(closed.flow, inet::Protocol::kTcp, closed.vlans);
        else
            release(inet::Protocol::kTcp, closed.flow.local);
    }
}

void PortContext::outlive(const inet::Flow &flow, bool offloaded, Vlans vlans) noexcept
{
    closed_.push_back({flow, offloaded, vlans});
}

void PortContext::guard(inet::ConnectionId id) noexcept
{
    if (const inet::Connection *const c = tcp().find(id))
        guardian_.add(*c, static_cast<std::uint32_t>(now_ns() / inet::kMillisecond) + c->stamp_offset);
}

// ---- reservations ---------------------------------------------------------------------------------------------------

int PortContext::find_vlans(const inet::IpAddress &local, Vlans &vlans) noexcept
{
    if (local.is_any() || local.is_multicast())
        return 0;
    NetState &net = net_if_->net();
    for (const LocalAddress &have : net.addresses()) {
        Outlet outlet;
        if (have.address == local && net.outlet(have.interface, outlet) && outlet.interface == net_if_->interface()) {
            vlans = outlet.vlans;
            return 0;
        }
    }
    return -EADDRNOTAVAIL;
}

int PortContext::reserve(inet::Protocol protocol, inet::Endpoint &local) noexcept
{
    Reservation made;
    if (const int error = find_vlans(local.address, made.vlans))
        return error;
    if (const int error = bind_in_kernel(protocol, local, made.socket))
        return error;
    if (const int error = net_if_->flows().add({local, {}}, protocol, made.vlans))
        return error;
    made.users = 1;
    reservations_[{protocol, local}] = std::move(made);
    return 0;
}

PortContext::Reservations::iterator PortContext::find(const Place &place) noexcept
{
    if (const auto exact = reservations_.find(place); exact != reservations_.end())
        return exact;
    const bool v4 = place.local.address.is_v4();
    const inet::IpAddress any = v4 ? inet::IpAddress::v4(std::uint32_t{0}) : inet::IpAddress{};
    return reservations_.find({place.protocol, {any, place.local.port}});
}

void PortContext::share(inet::Protocol protocol, const inet::Endpoint &local) noexcept
{
    if (const auto place = find({protocol, local}); place != reservations_.end())
        ++place->second.users;
}

void PortContext::release(inet::Protocol protocol, const inet::Endpoint &local) noexcept
{
    const auto place = find({protocol, local});
    if (place == reservations_.end() || --place->second.users != 0)
        return;
    if (const int error = net_if_->flows().remove({place->first.local, {}}, protocol, place->second.vlans))
        VMA_DEBUG(ep_ctrl, "port %u is still steered to us: %s", unsigned{local.port}, std::strerror(-error));
    reservations_.erase(place);
}

int PortContext::kernel_socket(inet::Protocol protocol, const inet::Endpoint &local) noexcept
{
    const auto place = find({protocol, local});
    return place != reservations_.end() ? place->second.socket.get() : -1;
}

int PortContext::steer(const inet::Flow &flow, inet::Protocol protocol, Vlans &vlans) noexcept
{
    if (const int error = find_vlans(flow.local.address, vlans))
        return error;
    return net_if_->flows().add(flow, protocol, vlans);
}

void PortContext::unsteer(const inet::Flow &flow, inet::Protocol protocol, Vlans vlans) noexcept
{
    if (const int error = net_if_->flows().remove(flow, protocol, vlans))
        VMA_DEBUG(ep_ctrl, "a flow of port %u is still steered to us: %s", unsigned{flow.local.port},
                  std::strerror(-error));
}

// ---- datagrams -----------------------------------------------------------------------------------------------------

bool PortContext::set_datagrams(inet::UdpSocketId id, int kernel_socket, Datagrams *endpoint) noexcept
{
    if (!kernel_sockets_) {
        kernel_sockets_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
        if (!kernel_sockets_ || !net_if_->watch_too(kernel_sockets_.get()))
            return false;
    }
    if (endpoint != nullptr) {
        epoll_event interest{};
        interest.events = EPOLLIN;
        interest.data.ptr = endpoint;
        if (core::kernel::epoll_ctl(kernel_sockets_.get(), EPOLL_CTL_ADD, kernel_socket, &interest) != 0)
            return false;
        ++datagrams_open_;
    } else {
        --datagrams_open_;
    }
    if (datagrams_.size() <= id)
        datagrams_.resize(id + 1);
    datagrams_[id] = endpoint;
    return true;
}

void PortContext::read_kernel_sockets(inet::Nanos now) noexcept
{
    if (datagrams_open_ == 0 || now < next_read_)
        return;
    next_read_ = now + kReadInterval;
    epoll_event events[16];
    const int count = core::kernel::epoll_wait(kernel_sockets_.get(), events, static_cast<int>(std::size(events)), 0);
    for (int i = 0; i < count; ++i)
        static_cast<Datagrams *>(events[i].data.ptr)->read_kernel_sockets();
}

} // namespace vma::ether
