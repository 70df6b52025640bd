// SPDX-License-Identifier: BSD-2-Clause
// System calls by number: the preload library's functions of those names are not meant for us.
#include "ether/dgram/udp_tap.hpp"

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
#include "ether/port_context.hpp"

namespace vma::ether {
namespace {

constexpr std::uint32_t kPeerSets = 16;         // of a socket
constexpr std::uint32_t kSharedPeerSets = 1024; // of a sender for all

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

UdpTap::UdpTap(ofi::Domain &owner, std::uint32_t flags, Take taker, void *context) noexcept
    : UdpSender(owner, kPeerSets), groups_only_((flags & FI_VMA_UDP_GROUPS) != 0), take_(taker), context_(context)
{
}

// ---- life -----------------------------------------------------------------------------------------------------------

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

int UdpTap::steer() noexcept
{
    if (hears_groups_only())
        return 0;
    if (const int error = port_context_.steer(flow_, inet::Protocol::kUdp, vlans_))
        return error == -EEXIST ? -FI_EADDRINUSE : error;
    if (!other_family_)
        return 0;
    const int error = port_context_.steer(v4_of(flow_), inet::Protocol::kUdp, vlans_);
    if (error != 0)
        port_context_.unsteer(flow_, inet::Protocol::kUdp, vlans_);
    return error;
}

int UdpTap::open(int fd) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (const int error = read_flow(fd))
        return error;
    inet::UdpTable &udp = port_context_.net_if().stack().udp();
    inet::UdpOptions options;
    options.taker = this;
    options.groups_only = groups_only_;
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

// What is on its way to the NIC's queue still comes; what comes later is the kernel's.
void UdpTap::close() noexcept
{
    constexpr int kTurns = 2;
    const core::SpinGuard guard(port_context_.lock());
    if (!hears_groups_only())
        port_context_.unsteer(flow_, inet::Protocol::kUdp, vlans_);
    if (!hears_groups_only() && other_family_)
        port_context_.unsteer(v4_of(flow_), inet::Protocol::kUdp, vlans_);
    for (int i = 0; i < kTurns; ++i)
        port_context_.turn();
    port_context_.net_if().stack().udp().close(socket_);
    forget_peers();
}

// ---- hot path -------------------------------------------------------------------------------------------------------

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
    datagram.interface = port_context_.net_if().interface();
    datagram.arrived_ns = static_cast<std::int64_t>(info.arrived);
    datagram.hardware_ns = static_cast<std::int64_t>(info.hardware);
    LentFrames *const lender = port_context_.net_if().lender_of(data.data(), data.size());
    datagram.lender = lender;
    if (lender != nullptr)
        lender->begin_offer();
    if (take_(context_, &datagram) == FI_VMA_KEPT && lender != nullptr) [[unlikely]]
        lender->end_offer(data.data());
}

ssize_t UdpTap::send(std::span<const iovec> parts, const fi_vma_udp_to &to) noexcept
{
    return send_from(flow_.local, parts, to);
}

// ---- the table of calls --------------------------------------------------------------------------------------------

namespace {

UdpSender &self(fi_vma_udp *udp) noexcept
{
    return *reinterpret_cast<UdpSender *>(udp);
}

void give_out(std::unique_ptr<UdpSender> made, fi_vma_udp **udp)
{
    made->domain().refs.fetch_add(1, std::memory_order_relaxed);
    *udp = reinterpret_cast<fi_vma_udp *>(made.release());
}

int open_tap(fid_domain *fid, int socket, std::uint32_t flags, UdpTap::Take take, void *context, fi_vma_udp **udp)
{
    if (fid == nullptr || take == nullptr || udp == nullptr || (flags & ~FI_VMA_UDP_GROUPS) != 0)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::unique_ptr<UdpTap> tap(new (std::nothrow) UdpTap(domain, flags, take, context));
    if (!tap || !tap->has_room())
        return -FI_ENOMEM;
    if (const int error = tap->open(socket))
        return error;
    give_out(std::move(tap), udp);
    return 0;
}

int open_sender(fid_domain *fid, fi_vma_udp **udp)
{
    if (fid == nullptr || udp == nullptr)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::unique_ptr<UdpSender> sender(new (std::nothrow) UdpSender(domain, kSharedPeerSets));
    if (!sender || !sender->has_room())
        return -FI_ENOMEM;
    give_out(std::move(sender), udp);
    return 0;
}

int drain_tap(fi_vma_udp *udp)
{
    return self(udp).drain();
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
    PortContext &port_context = port_context_of(domain);
    const core::SpinGuard guard(port_context.lock());
    Vlans vlans;
    const int error = on != 0 ? port_context.steer(flow, inet::Protocol::kUdp, vlans)
                              : port_context.net_if().flows().remove(flow, inet::Protocol::kUdp, vlans);
    return error == -EEXIST ? -FI_EADDRINUSE : error;
}

int stamps_of(fid_domain *fid)
{
    PortContext &port_context = port_context_of(*reinterpret_cast<ofi::Domain *>(fid));
    const core::SpinGuard guard(port_context.lock());
    switch (port_context.net_if().stamps()) {
    case XdpStamps::kHardware:
        return FI_VMA_STAMPS_HARDWARE | (port_context.net_if().has_raw_packets() ? 0 : FI_VMA_STAMPS_SOFTWARE);
    case XdpStamps::kSoftware:
        return FI_VMA_STAMPS_SOFTWARE;
    default:
        return 0;
    }
}

inet::IpAddress address_of(const std::uint8_t (&bytes)[16])
{
    inet::IpAddress address;
    std::memcpy(address.bytes.data(), bytes, sizeof bytes);
    return address;
}

ssize_t headers_of(fid_domain *fid, const fi_vma_udp_to *to, std::uint8_t protocol, std::size_t bytes, void *out)
{
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    constexpr std::size_t kMost = 1280; // any link takes that in one packet
    if (bytes > kMost)
        return -FI_EINVAL;
    if (domain.fabric.orphaned())
        return -FI_EAGAIN;
    inet::IpOut ip;
    ip.source = address_of(to->source);
    ip.target = address_of(to->address);
    ip.protocol = static_cast<inet::Protocol>(protocol);
    ip.traffic_class = to->traffic_class;
    ip.hop_limit = to->hop_limit;
    PortContext &port_context = port_context_of(domain);
    const core::SpinGuard guard(port_context.lock());
    const std::size_t length = port_context.net_if().stack().headers(ip, bytes, static_cast<std::uint8_t *>(out));
    return length != 0 ? static_cast<ssize_t>(length) : -FI_EAGAIN;
}

// Without the port context's lock: the NetIf stays as long as the domain.
int read_times(fid_domain *fid, fi_vma_times *times)
{
    if (fid == nullptr || times == nullptr)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    return port_context_of(domain).net_if().device_times().read(*times);
}

int read_counters(fid_domain *fid, fi_vma_port_counters *counters)
{
    if (fid == nullptr || counters == nullptr)
        return -FI_EINVAL;
    ofi::Domain &domain = *reinterpret_cast<ofi::Domain *>(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    PortContext &port_context = port_context_of(domain);
    {
        const core::SpinGuard guard(port_context.lock());
        port_context.net_if().tell(*counters);
    }
    port_context.net_if().ask_kernel(*counters); // who polls doesn't wait for it
    return 0;
}

void close_tap(fi_vma_udp *udp)
{
    const std::unique_ptr<UdpSender> tap(&self(udp));
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
    .open_sender = open_sender,
    .drain = drain_tap,
    .headers = headers_of,
    .read_times = read_times,
    .read_counters = read_counters,
};

} // namespace vma::ether
