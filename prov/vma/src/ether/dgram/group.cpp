// SPDX-License-Identifier: BSD-2-Clause
// Groups, and the system calls of datagram endpoints: by their numbers, as the preload library's own are not meant for
// us.
#include "ether/dgram/group.hpp"

#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "ether/address.hpp"
#include "ether/dgram/endpoint.hpp"

namespace vma::ether {

int find_next_hop_to(NetIf &net_if, const inet::IpAddress &local, const inet::IpAddress &remote,
                     inet::IpAddress &source, inet::NextHopIndex &next_hop) noexcept
{
    Route route;
    if (const int error = net_if.find_route(remote, local, route))
        return error;
    source = local.is_any() ? route.source : local;
    if (source.is_v4() != remote.is_v4())
        return -EAFNOSUPPORT;
    next_hop = net_if.stack().use_next_hop(now_ns(), remote);
    return next_hop != inet::kNoNextHop ? 0 : -ENOBUFS;
}

int join_in_kernel(int socket, unsigned interface, const inet::IpAddress &group) noexcept
{
    const ofi::Address address = to_socket_address({group, 0});
    group_req request{};
    request.gr_interface = interface;
    std::memcpy(&request.gr_group, &address.v6, address.size());
    const int level = group.is_v4() ? IPPROTO_IP : IPPROTO_IPV6;
    return ::syscall(SYS_setsockopt, socket, level, MCAST_JOIN_GROUP, &request, sizeof request) == 0 ? 0 : -errno;
}

std::int64_t receive_from_kernel(int socket, msghdr &message) noexcept
{
    const long length = ::syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT | MSG_TRUNC);
    return length >= 0 ? length : -errno;
}

// ---- fi_join --------------------------------------------------------------------------------------------------------

// A group is received as an address of its own: a socket that is bound to another hears nothing of it.
int Datagrams::join_to_receive(const inet::Endpoint &group) noexcept
{
    NetIf &net_if = port_context_.net_if();
    inet::Endpoint local = group;
    if (const int error = port_context_.reserve(inet::Protocol::kUdp, local))
        return error;
    int error = open_source(group);
    if (error == 0) {
        const Source &source = sources_.back();
        error = net_if.stack().udp().change_group(source.socket, inet::GroupChange::kJoin, group.address);
        if (error == 0)
            error = join_in_kernel(source.kernel_socket, net_if.interface(), group.address);
    }
    if (error != 0) {
        close_source(group);
        port_context_.release(inet::Protocol::kUdp, group);
    }
    return error;
}

int Datagrams::join(const ofi::Address &address, std::uint64_t flags, fid_mc **mc, void *context) noexcept
{
    if ((flags & ~(FI_SEND | FI_RECV)) != 0)
        return -FI_EBADFLAGS;
    const inet::Endpoint group = to_endpoint(address);
    std::unique_ptr<Membership> made(new (std::nothrow) Membership);
    if (mc == nullptr || !group.address.is_multicast())
        return -FI_EINVAL;
    if (!made)
        return -FI_ENOMEM;
    const core::SpinGuard guard(port_context_.lock());
    if (!enabled_)
        return -FI_EOPBADSTATE;
    made->endpoint = this;
    made->group = group;
    made->receives = flags == 0 || (flags & FI_RECV) != 0;
    Peer peer;
    peer.remote = group;
    if (const int error =
            find_next_hop_to(port_context_.net_if(), local_.address, group.address, peer.source, peer.next_hop))
        return error;
    if (const int error = made->receives ? join_to_receive(group) : 0) {
        forget(peer);
        return error;
    }
    auto place = std::find(groups_.begin(), groups_.end(), nullptr);
    if (place == groups_.end()) {
        place = groups_.emplace(place);
        group_peers_.emplace_back();
    }
    const auto number = static_cast<std::size_t>(place - groups_.begin());
    group_peers_[number] = peer;
    made->fid.fid = {FI_CLASS_MC, context, nullptr};
    set_membership_calls(made->fid);
    made->fid.fi_addr = kGroupBit | number;
    *mc = &made->fid;
    *place = std::move(made);
    return 0;
}

void Datagrams::leave(Membership &membership) noexcept
{
    const core::SpinGuard guard(port_context_.lock());
    if (membership.receives) {
        close_source(membership.group);
        port_context_.release(inet::Protocol::kUdp, membership.group); // which closes the kernel's member
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].get() != &membership)
            continue;
        forget(group_peers_[i]);
        groups_[i].reset();
        return;
    }
}

} // namespace vma::ether
