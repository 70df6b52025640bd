// SPDX-License-Identifier: BSD-2-Clause
// System calls by number: the preload library's functions of those names are not meant for us.
#include "ether/udp_tap.hpp"

#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "ether/address.hpp"
#include "ether/dgram_group.hpp"
#include "ether/station.hpp"

namespace vma::ether {
namespace {

constexpr inet::Nanos kErrorHolds = inet::kSecond; // then the way is asked for again
constexpr std::size_t kMostParts = 8;

inet::IpAddress address_of(const std::uint8_t (&bytes)[16]) noexcept
{
    inet::IpAddress address;
    std::memcpy(address.bytes.data(), bytes, sizeof bytes);
    return address;
}

template <long Call> bool read_name(int fd, inet::Endpoint &name) noexcept
{
    ofi::Address address;
    socklen_t length = sizeof address.v6;
    if (::syscall(Call, fd, &address.sa, &length) != 0)
        return false;
    ofi::Address checked;
    if (!checked.assign(&address.sa, length))
        return false;
    name = to_endpoint(checked);
    return true;
}

bool hears_both_families(int fd, const inet::Endpoint &local) noexcept
{
    int v6_only = 0;
    socklen_t length = sizeof v6_only;
    return local.address == inet::IpAddress{} &&
           ::syscall(SYS_getsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &length) == 0 && v6_only == 0;
}

inet::Flow v4_of(const inet::Flow &flow) noexcept
{
    return {{inet::IpAddress::v4(std::uint32_t{0}), flow.local.port}, {}};
}

} // namespace

// ---- life ------------------------------------------------------------------------------------------------------------

int UdpTap::read_flow(int fd) noexcept
{
    if (!read_name<SYS_getsockname>(fd, flow_.local))
        return -errno;
    if (flow_.local.port == 0)
        return -FI_EINVAL;
    if (!read_name<SYS_getpeername>(fd, flow_.remote))
        flow_.remote = {};
    other_family_ = flow_.remote.port == 0 && hears_both_families(fd, flow_.local);
    return 0;
}

// A socket that is bound to a group gets what take_group() says.
int UdpTap::steer() noexcept
{
    if (flow_.local.address.is_multicast())
        return 0;
    if (const int error = station_.steer(flow_, inet::Protocol::kUdp, vlans_))
        return error == -EEXIST ? -FI_EADDRINUSE : error;
    if (!other_family_)
        return 0;
    const int error = station_.steer(v4_of(flow_), inet::Protocol::kUdp, vlans_);
    if (error != 0)
        station_.unsteer(flow_, inet::Protocol::kUdp, vlans_);
    return error;
}

int UdpTap::open(int fd) noexcept
{
    const core::SpinGuard guard(station_.lock());
    if (const int error = read_flow(fd))
        return error;
    inet::UdpTable &udp = station_.driver().stack().udp();
    inet::UdpOptions options;
    options.taker = this;
    options.reuse_address = true; // whoever may share an address, the kernel has said; groups are shared
    options.multicast_all = true; // whoever has the group steered, knows for whom
    options.v6_only = !other_family_;
    socket_ = udp.open(options);
    if (socket_ == inet::kNoUdpSocket)
        return -FI_EMFILE;
    int error = udp.bind(socket_, flow_.local);
    if (error == 0 && flow_.remote.port != 0)
        error = udp.connect(socket_, flow_.local.address, flow_.remote);
    if (error == 0)
        error = steer();
    if (error != 0)
        udp.close(socket_);
    return error;
}

// What is on its way to the ring still comes; what comes later is the kernel's.
void UdpTap::close() noexcept
{
    constexpr int kTurns = 2;
    const core::SpinGuard guard(station_.lock());
    if (!flow_.local.address.is_multicast())
        station_.unsteer(flow_, inet::Protocol::kUdp, vlans_);
    if (other_family_)
        station_.unsteer(v4_of(flow_), inet::Protocol::kUdp, vlans_);
    for (int i = 0; i < kTurns; ++i)
        station_.turn();
    station_.driver().stack().udp().close(socket_);
    for (Peer &peer : peers_)
        forget(peer);
}

// ---- hot path --------------------------------------------------------------------------------------------------------

void UdpTap::take(const inet::DatagramInfo &info, inet::Bytes data) noexcept
{
    fi_vma_datagram datagram;
    datagram.payload = data.data();
    datagram.length = data.size();
    std::memcpy(datagram.source, info.source.address.bytes.data(), sizeof datagram.source);
    std::memcpy(datagram.target, info.target.bytes.data(), sizeof datagram.target);
    datagram.source_port = htons(info.source.port);
    datagram.traffic_class = info.traffic_class;
    datagram.hop_limit = info.hop_limit;
    datagram.interface = station_.driver().interface();
    datagram.arrived_ns = static_cast<std::int64_t>(info.arrived);
    datagram.hardware_ns = static_cast<std::int64_t>(info.hardware);
    take_(context_, &datagram);
}

UdpTap::Peer &UdpTap::peer_of(inet::Nanos now, const inet::IpAddress &remote) noexcept
{
    const std::uint8_t *const a = remote.bytes.data();
    const std::size_t place = (a[15] ^ a[14] ^ a[13] ^ a[7]) % kPeers;
    Peer &peer = peers_[place];
    const bool holds = peer.remote == remote && peer.generation == station_.driver().net().generation() &&
                       (peer.error == 0 ? peer.path != inet::kNoPath : now < peer.until);
    if (!holds) [[unlikely]]
        find(now, remote, peer);
    return peer;
}

void UdpTap::find(inet::Nanos now, const inet::IpAddress &remote, Peer &peer) noexcept
{
    forget(peer);
    peer.remote = remote;
    peer.generation = station_.driver().net().generation();
    const bool bound = !flow_.local.address.is_multicast();
    peer.error =
        find_way_to(station_.driver(), bound ? flow_.local.address : inet::IpAddress{}, remote, peer.source, peer.path);
    peer.until = now + kErrorHolds;
}

void UdpTap::forget(Peer &peer) noexcept
{
    if (peer.path != inet::kNoPath)
        station_.tcp().paths().release(peer.path);
    peer = {};
}

ssize_t UdpTap::send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept
{
    if (parts.size() > kMostParts) [[unlikely]]
        return -FI_EMSGSIZE;
    std::size_t length = 0;
    std::array<inet::Bytes, 1 + kMostParts> pieces;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (__builtin_add_overflow(length, parts[i].iov_len, &length)) [[unlikely]]
            return -FI_EMSGSIZE;
        pieces[1 + i] = {static_cast<const std::uint8_t *>(parts[i].iov_base), parts[i].iov_len};
    }
    const core::SpinGuard guard(station_.lock());
    const inet::Nanos now = now_ns();
    const Peer &peer = peer_of(now, address_of(to.address));
    if (peer.error != 0) [[unlikely]]
        return peer.error;
    const inet::Path &path = station_.tcp().paths()[peer.path];
    if (!path.ready) [[unlikely]]
        return -FI_EAGAIN;
    if (length + inet::kUdpHeader + inet::ip_header_size(peer.remote) > path.mtu) [[unlikely]]
        return -FI_EMSGSIZE;
    inet::IpOut ip;
    ip.source = peer.source;
    ip.target = peer.remote;
    ip.protocol = inet::Protocol::kUdp;
    ip.traffic_class = to.traffic_class;
    ip.hop_limit = to.hop_limit;
    const auto header = inet::udp_header(ip, {flow_.local.port, ntohs(to.port)}, {&pieces[1], parts.size()});
    pieces[0] = header;
    if (const int error = station_.driver().write_datagram(now, peer.path, ip, {pieces.data(), 1 + parts.size()}))
        return error;
    station_.driver().send(now);
    return static_cast<ssize_t>(length);
}

// ---- the table of calls --------------------------------------------------------------------------------------------

namespace {

UdpTap &self(fi_vma_udp *udp) noexcept
{
    return *reinterpret_cast<UdpTap *>(udp);
}

int open_tap(fid_domain *fid, int socket, UdpTap::Take take, void *context, fi_vma_udp **udp)
{
    if (fid == nullptr || take == nullptr || udp == nullptr)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::unique_ptr<UdpTap> tap(new (std::nothrow) UdpTap(domain, take, context));
    if (!tap)
        return -FI_ENOMEM;
    if (const int error = tap->open(socket))
        return error;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *udp = reinterpret_cast<fi_vma_udp *>(tap.release());
    return 0;
}

ssize_t send_by_tap(fi_vma_udp *udp, const iovec *parts, std::size_t count, const fi_vma_udp_to *to)
{
    return self(udp).send({parts, count}, *to);
}

int take_group(fid_domain *fid, const std::uint8_t group[16], std::uint16_t port, int on)
{
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    inet::Flow flow;
    std::memcpy(flow.local.address.bytes.data(), group, flow.local.address.bytes.size());
    flow.local.port = ntohs(port);
    if (!flow.local.address.is_multicast() || port == 0)
        return -FI_EINVAL;
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    Station &station = station_of(domain);
    const core::SpinGuard guard(station.lock());
    Vlans vlans;
    const int error = on != 0 ? station.steer(flow, inet::Protocol::kUdp, vlans)
                              : station.driver().flows().remove(flow, inet::Protocol::kUdp, vlans);
    return error == -EEXIST ? -FI_EADDRINUSE : error;
}

int stamps_of(fid_domain *fid)
{
    Station &station = station_of(*reinterpret_cast<ofi::Domain *>(fid));
    const core::SpinGuard guard(station.lock());
    switch (station.driver().stamps()) {
    case XdpStamps::kHardware:
        return FI_VMA_STAMPS_SOFTWARE | FI_VMA_STAMPS_HARDWARE;
    case XdpStamps::kSoftware:
        return FI_VMA_STAMPS_SOFTWARE;
    default:
        return 0;
    }
}

void close_tap(fi_vma_udp *udp)
{
    const std::unique_ptr<UdpTap> tap(&self(udp));
    if (tap->domain().fabric.orphaned())
        return;
    tap->close();
    tap->domain().refs.fetch_sub(1, std::memory_order_release);
}

} // namespace

constinit fi_ops_vma_udp udp_ops = {
    .size = sizeof(fi_ops_vma_udp),
    .open = open_tap,
    .send = send_by_tap,
    .close = close_tap,
    .take_group = take_group,
    .stamps = stamps_of,
};

} // namespace vma::ether
