// SPDX-License-Identifier: BSD-2-Clause
// Datagrams of an endpoint, out and in. The tables of calls are in calls.cpp, groups in group.cpp.
#include "ether/dgram/endpoint.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ether/address.hpp"
#include "ether/dgram/group.hpp"
#include "ofi/bind.hpp"

namespace vma::ether {
namespace {

constexpr std::uint32_t kReceiveBytes = 4U << 20;    // that wait for posted receives
constexpr inet::Nanos kPatience = 3 * inet::kSecond; // for a neighbour's answer, as the kernel's

} // namespace

Datagrams::Datagrams(ofi::Domain &domain, const fi_info &info) noexcept
    : domain_(domain), port_context_(port_context_of(domain)), format_(&info),
      receives_(
          std::min(info.rx_attr != nullptr && info.rx_attr->size != 0 ? info.rx_attr->size : ofi::kDefaultQueueSize,
                   ofi::kMaxQueueSize))
{
    handle.self = this;
    tx_flags = info.tx_attr != nullptr ? info.tx_attr->op_flags : 0;
    rx_flags = info.rx_attr != nullptr ? info.rx_attr->op_flags : 0;
    tells_sources_ = ((info.caps != 0 ? info.caps : domain.caps) & FI_SOURCE) != 0;
}

ofi::Completion Datagrams::entry_of(void *context, std::uint64_t which) const noexcept
{
    ofi::Completion entry;
    entry.context = context;
    entry.flags = FI_MSG | which;
    entry.owner = this;
    return entry;
}

// ---- sending: hot path ---------------------------------------------------------------------------------------------

ssize_t Datagrams::send(const Outgoing &datagram) noexcept
{
    std::size_t length = 0;
    for (const iovec &part : datagram.parts) {
        if (__builtin_add_overflow(length, part.iov_len, &length)) [[unlikely]]
            return -FI_EMSGSIZE;
    }
    const core::SpinGuard guard(port_context_.lock());
    if (!enabled_) [[unlikely]]
        return -FI_EOPBADSTATE;
    int error = -FI_EINVAL;
    Peer *const peer = peer_of(datagram.to, error);
    if (peer == nullptr) [[unlikely]]
        return error;
    if (length > inet::max_udp_data(peer->remote.address)) [[unlikely]]
        return -FI_EMSGSIZE;
    const inet::Nanos now = now_ns();
    if ((error = check_next_hop(now, *peer)) != 0) [[unlikely]]
        return error;
    if (datagram.completion) {
        const core::SpinGuard queue_guard(tx_queue_->lock);
        if (tx_queue_->entries.full())
            return -FI_EAGAIN;
    }
    inet::IpOut ip;
    ip.source = peer->source;
    ip.target = peer->remote.address;
    ip.protocol = inet::Protocol::kUdp;
    ip.dont_fragment = false;
    if (ip.target.is_multicast())
        ip.hop_limit = 1; // RFC 1112, 6.1
    std::array<inet::Bytes, 1 + ofi::kIovLimit> parts;
    for (std::size_t i = 0; i < datagram.parts.size(); ++i)
        parts[1 + i] = {static_cast<const std::uint8_t *>(datagram.parts[i].iov_base), datagram.parts[i].iov_len};
    error = port_context_.net_if().write_datagram(now, peer->next_hop, ip, {local_.port, peer->remote.port},
                                                  {parts.data(), 1 + datagram.parts.size()});
    if (error != 0)
        return error;
    port_context_.net_if().send(now);
    if (datagram.completion) {
        ofi::Completion entry = entry_of(datagram.context, FI_SEND);
        entry.length = length;
        tx_queue_->push(entry);
    }
    return 0;
}

// Without one `error` says why, if it is more than that there is no such address.
Datagrams::Peer *Datagrams::peer_of(fi_addr_t to, int &error) noexcept
{
    if (is_group_address(to)) {
        const std::size_t number = group_number(to);
        return number < groups_.size() && groups_[number] ? &group_peers_[number] : nullptr;
    }
    if (to < peers_.size() && peers_[to].generation == av_->generation_of(to) &&
        peers_[to].next_hop != inet::kNoNextHop) [[likely]]
        return &peers_[to];
    Peer found;
    if ((error = find_peer(to, found)) != 0)
        return nullptr;
    if (peers_.size() <= to)
        peers_.resize(to + 1);
    forget(peers_[to]);
    peers_[to] = found;
    return &peers_[to];
}

// Of an address that was not looked at since it was inserted.
int Datagrams::find_peer(fi_addr_t to, Peer &peer) noexcept
{
    peer.generation = av_->generation_of(to);
    ofi::Address address;
    if (!av_->address_of(to, address))
        return -FI_EINVAL;
    peer.remote = to_endpoint(address);
    return find_next_hop_to(port_context_.net_if(), local_.address, peer.remote.address, peer.source, peer.next_hop);
}

// The next hop may still be looked for: then the datagram is sent again later.
int Datagrams::check_next_hop(inet::Nanos now, Peer &peer) noexcept
{
    if (port_context_.tcp().next_hops()[peer.next_hop].ready) [[likely]] {
        peer.since = 0;
        return 0;
    }
    if (peer.since == 0)
        peer.since = now;
    port_context_.turn();
    if (port_context_.tcp().next_hops()[peer.next_hop].ready)
        return 0;
    return now - peer.since < kPatience ? -FI_EAGAIN : -FI_EHOSTUNREACH;
}

void Datagrams::forget(Peer &peer) noexcept
{
    if (peer.next_hop != inet::kNoNextHop)
        port_context_.tcp().next_hops().release(peer.next_hop);
    peer = {};
}

// ---- receiving ------------------------------------------------------------------------------------------------------

ssize_t Datagrams::post(std::span<const iovec> parts, void *context, bool completion) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (rx_queue_ == nullptr)
        return -FI_EOPBADSTATE;
    if (receives_.full())
        return -FI_EAGAIN;
    Receive receive{};
    std::copy(parts.begin(), parts.end(), receive.parts);
    receive.count = static_cast<std::uint32_t>(parts.size());
    receive.completion = completion;
    receive.context = context;
    if (!receives_.push(receive))
        return -FI_ENOMEM;
    if (enabled_)
        take_arrived();
    return 0;
}

void Datagrams::take_arrived() noexcept
{
    inet::UdpTable &udp = port_context_.net_if().stack().udp();
    for (const Source &source : sources_) {
        while (!receives_.empty()) {
            const Receive receive = receives_.front();
            std::array<std::span<std::uint8_t>, ofi::kIovLimit> room;
            for (std::uint32_t i = 0; i < receive.count; ++i)
                room[i] = {static_cast<std::uint8_t *>(receive.parts[i].iov_base), receive.parts[i].iov_len};
            const inet::UdpTable::Received got = udp.receive(source.socket, {room.data(), receive.count});
            if (got.error == -EAGAIN)
                break;
            if (got.error != 0)
                continue; // of an earlier datagram that nobody took: libfabric has no place for it
            receives_.pop();
            complete(receive, got.copied, got.info.length, got.info.source);
        }
    }
}

void Datagrams::read_kernel_sockets() noexcept
{
    for (const Source &source : sources_)
        take_from_kernel(source);
}

void Datagrams::take_from_kernel(const Source &source) noexcept
{
    while (!receives_.empty()) {
        Receive receive = receives_.front();
        ofi::Address from;
        msghdr message{};
        message.msg_name = &from.v6;
        message.msg_namelen = sizeof from.v6;
        message.msg_iov = receive.parts;
        message.msg_iovlen = receive.count;
        const std::int64_t length = receive_from_kernel(source.kernel_socket, message);
        if (length < 0)
            return;
        receives_.pop();
        std::size_t room = 0;
        for (std::uint32_t i = 0; i < receive.count; ++i)
            room += receive.parts[i].iov_len;
        const auto whole = static_cast<std::size_t>(length);
        complete(receive, std::min(room, whole), whole, to_endpoint(from));
    }
}

void Datagrams::complete(const Receive &receive, std::size_t copied, std::size_t length,
                         const inet::Endpoint &source) noexcept
{
    ofi::Completion entry = entry_of(receive.context, FI_RECV);
    entry.length = copied;
    entry.buffer = receive.count != 0 ? receive.parts[0].iov_base : nullptr;
    if (tells_sources_)
        entry.source = place_of(source);
    if (copied < length) {
        entry.error = FI_ETRUNC;
        entry.excess = length - copied;
    }
    if (entry.error != 0 || receive.completion)
        rx_queue_->push(entry);
}

// The vector is asked by text: once for datagrams of the same sender.
fi_addr_t Datagrams::place_of(const inet::Endpoint &source) noexcept
{
    const std::uint32_t generation = av_->generation.load(std::memory_order_acquire);
    if (generation != last_generation_ || last_source_ != source) {
        last_generation_ = generation;
        last_source_ = source;
        last_place_ = av_->place_of(to_socket_address(source));
    }
    return last_place_;
}

ssize_t Datagrams::cancel(void *context) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    bool found = false;
    receives_.erase_if([&](const Receive &receive) {
        const bool it = !found && receive.context == context;
        found = found || it;
        return it;
    });
    if (!found)
        return -FI_ENOENT;
    ofi::Completion entry = entry_of(context, FI_RECV);
    entry.error = FI_ECANCELED;
    rx_queue_->push(entry);
    return 0;
}

std::size_t Datagrams::receives_left() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    return receives_.limit() - receives_.size();
}

std::uint64_t Datagrams::dropped() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    std::uint64_t count = 0;
    for (const Source &source : sources_)
        count += port_context_.net_if().stack().udp().dropped(source.socket);
    return count;
}

// ---- the endpoint ---------------------------------------------------------------------------------------------------

int Datagrams::bind(struct fid *what, std::uint64_t flags) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (what->fclass == FI_CLASS_AV) {
        ofi::Av &bound = ofi::av_of(what);
        if (av_ != nullptr || &bound.domain != &domain_)
            return -FI_EINVAL;
        bound.refs.fetch_add(1, std::memory_order_relaxed);
        av_ = &bound;
        return 0;
    }
    if (what->fclass == FI_CLASS_EQ)
        return 0; // nothing is ever told there
    if (what->fclass != FI_CLASS_CQ)
        return -FI_EINVAL;
    Queue &queue = static_cast<Queue &>(ofi::cq_of(what));
    const int error = ofi::bind_queue(domain_, queue, flags, {tx_queue_, tx_selective_}, {rx_queue_, rx_selective_});
    if (error == 0)
        queue.users.fetch_add(halves_of(flags), std::memory_order_relaxed);
    return error;
}

int Datagrams::take_port() noexcept
{
    if (reserved_)
        return 0;
    if (const int error = port_context_.reserve(inet::Protocol::kUdp, local_))
        return error;
    reserved_ = true;
    return 0;
}

int Datagrams::enable() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (av_ == nullptr)
        return -FI_ENOAV;
    if (rx_queue_ == nullptr || tx_queue_ == nullptr)
        return -FI_ENOCQ;
    if (const int error = take_port())
        return error;
    const int error = open_source(local_);
    enabled_ = error == 0;
    return error;
}

// What is reserved is so before, and remains so where it fails.
int Datagrams::open_source(const inet::Endpoint &local) noexcept
{
    inet::UdpTable &udp = port_context_.net_if().stack().udp();
    inet::UdpOptions options;
    options.multicast_all = false;
    options.receive_bytes = kReceiveBytes;
    Source source;
    source.local = local;
    source.socket = udp.open(options);
    if (source.socket == inet::kNoUdpSocket)
        return -FI_EMFILE;
    source.kernel_socket = port_context_.kernel_socket(inet::Protocol::kUdp, local);
    int error = udp.bind(source.socket, local);
    if (error == 0 && !port_context_.set_datagrams(source.socket, source.kernel_socket, this))
        error = -errno;
    if (error != 0)
        udp.close(source.socket);
    else
        sources_.push_back(source);
    return error;
}

void Datagrams::close_source(const inet::Endpoint &local) noexcept
{
    const auto place =
        std::find_if(sources_.begin(), sources_.end(), [&](const Source &source) { return source.local == local; });
    if (place == sources_.end())
        return;
    static_cast<void>(port_context_.set_datagrams(place->socket, place->kernel_socket, nullptr));
    port_context_.net_if().stack().udp().close(place->socket);
    sources_.erase(place);
}

int Datagrams::set_name(const ofi::Address &wanted) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (enabled_)
        return -FI_EOPBADSTATE;
    inet::Endpoint next = to_endpoint(wanted);
    if (const int error = port_context_.reserve(inet::Protocol::kUdp, next))
        return error;
    if (std::exchange(reserved_, true))
        port_context_.release(inet::Protocol::kUdp, local_);
    local_ = next;
    return 0;
}

int Datagrams::get_name(void *address, std::size_t *length) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    return reserved_ ? format_.copy(to_socket_address(local_), address, length) : -FI_EOPBADSTATE;
}

int Datagrams::close() noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (std::any_of(groups_.begin(), groups_.end(), [](const auto &group) { return group != nullptr; }))
        return -FI_EBUSY;
    close_source(local_);
    for (Peer &peer : peers_)
        forget(peer);
    if (reserved_)
        port_context_.release(inet::Protocol::kUdp, local_);
    for (Queue *queue : {tx_queue_, rx_queue_}) {
        if (queue != nullptr)
            queue->leave(this);
    }
    if (av_ != nullptr)
        av_->refs.fetch_sub(1, std::memory_order_release);
    return 0;
}

int open_datagrams(ofi::Domain &domain, const fi_info &info, fid_ep **ep, void *context) noexcept
{
    std::unique_ptr<Datagrams> endpoint(new (std::nothrow) Datagrams(domain, info));
    if (!endpoint)
        return -FI_ENOMEM;
    ofi::Address local;
    if (info.src_addr != nullptr && !endpoint->format().read(info.src_addr, info.src_addrlen, local))
        return -FI_EINVAL;
    if (!local.empty()) {
        if (const int error = endpoint->set_name(local))
            return error;
    }
    endpoint->handle.fid.fid = {FI_CLASS_EP, context, nullptr};
    set_datagram_calls(endpoint->handle.fid);
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *ep = &endpoint.release()->handle.fid;
    return 0;
}

} // namespace vma::ether
