// SPDX-License-Identifier: BSD-2-Clause
// How the sockets of a test are made: bound, connected, joined to a group.
#include "util/vma_lat/transport/socket.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

namespace vma::lat {

namespace {

Failure set(int fd, int level, int option, int value, const char *name)
{
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        return system_error(name);
    return {};
}

} // namespace

Failure SocketTransport::prepare(Places &mine)
{
    if (auto failure = waiter_.open(plan_.wait))
        return failure;
    if (!local_.server)
        return {};
    for (std::uint32_t i = 0; i < channels_.size(); ++i) {
        std::uint16_t port = 0;
        if (auto failure = open_server(channels_[i], i, port))
            return failure;
        mine.ports.push_back(port);
    }
    return {};
}

Failure SocketTransport::open_server(Channel &channel, std::uint32_t number, std::uint16_t &port)
{
    Address address = local_.self;
    address.set_port(0);
    unsigned interface = 0;
    if (!plan_.group.empty()) {
        if (auto failure = group_address(static_cast<std::uint16_t>(plan_.data_port + number), address, interface))
            return failure;
    }
    Fd &fd = stream() ? channel.listener : channel.fd;
    fd = Fd(socket(address.family(), (stream() ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0));
    if (!fd)
        return system_error("socket");
    if (!plan_.group.empty()) {
        if (auto failure = set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"))
            return failure;
    }
    if (bind(fd.get(), address.get(), address.length) != 0)
        return system_error("bind to " + address.text());
    port = local_address(fd.get()).port();
    if (stream())
        return listen(fd.get(), 1) == 0 ? Failure() : system_error("listen");
    if (!plan_.group.empty()) {
        if (auto failure = join(fd.get(), address, interface))
            return failure;
    }
    return make_ready(channel);
}

Failure SocketTransport::group_address(std::uint16_t port, Address &group, unsigned &interface)
{
    if (auto failure = resolve(plan_.group, port, AF_UNSPEC, group))
        return failure;
    if (!group.multicast())
        return error(kExitUsage, "--group: %s is no multicast address: 224.0.0.0 to 239.255.255.255, or ff00::/8",
                     plan_.group.c_str());
    if (auto failure = find_interface(local_.interface, local_.self, interface))
        return failure;
    if (group.family() == AF_INET6)
        reinterpret_cast<sockaddr_in6 *>(&group.storage)->sin6_scope_id = interface;
    return {};
}

Failure SocketTransport::join(int fd, const Address &group, unsigned interface)
{
    group_req request{};
    request.gr_interface = interface;
    std::memcpy(&request.gr_group, &group.storage, sizeof group.storage);
    const bool six = group.family() == AF_INET6;
    if (setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, MCAST_JOIN_GROUP, &request, sizeof request) != 0)
        return system_error("joining " + group.host());
    // Without this a socket gets what any other socket of the host has joined.
    return set(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MULTICAST_ALL : IP_MULTICAST_ALL, 0, "IP_MULTICAST_ALL");
}

Failure SocketTransport::establish(const Places &theirs, const std::function<bool()> &given_up)
{
    if (!local_.server && theirs.ports.size() != channels_.size())
        return error(kExitServer, "the server named %zu ports for %zu sockets; the test ends", theirs.ports.size(),
                     channels_.size());
    for (std::size_t i = 0; i < channels_.size(); ++i) {
        Failure failure;
        if (!local_.server)
            failure = open_client(channels_[i], theirs.ports[i]);
        else if (stream())
            failure = accept_one(channels_[i], given_up);
        if (failure)
            return failure;
    }
    return {};
}

Failure SocketTransport::open_client(Channel &channel, std::uint16_t port)
{
    Address address = local_.host;
    unsigned interface = 0;
    if (!plan_.group.empty()) {
        if (auto failure = group_address(port, address, interface))
            return failure;
    }
    address.set_port(port);
    channel.fd = Fd(socket(address.family(), (stream() ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0));
    if (!channel.fd)
        return system_error("socket");
    if (!plan_.group.empty()) {
        if (auto failure = send_to_group(channel, address, interface))
            return failure;
    } else if (connect(channel.fd.get(), address.get(), address.length) != 0) {
        return error(kExitServer, "can't connect to the server's port %s: %s; the test ends", address.text().c_str(),
                     std::strerror(errno));
    }
    return make_ready(channel);
}

// Not connected, since the answers come from the server's own address.
Failure SocketTransport::send_to_group(Channel &channel, const Address &group, unsigned interface)
{
    const int fd = channel.fd.get();
    const bool six = group.family() == AF_INET6;
    channel.peer = group;
    Address any;
    if (auto failure = resolve("", 0, group.family(), any))
        return failure;
    if (bind(fd, any.get(), any.length) != 0)
        return system_error("bind to " + any.text());
    ip_mreqn via{};
    via.imr_ifindex = static_cast<int>(interface);
    if (six ? setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, sizeof interface) != 0
            : setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &via, sizeof via) != 0)
        return system_error("sending by the interface of the group");
    const int level = six ? IPPROTO_IPV6 : IPPROTO_IP;
    if (auto failure = set(fd, level, six ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, local_.ttl, "--ttl"))
        return failure;
    return set(fd, level, six ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, local_.loop ? 1 : 0, "--no-loop");
}

Failure SocketTransport::accept_one(Channel &channel, const std::function<bool()> &given_up)
{
    for (;;) {
        pollfd wait{channel.listener.get(), POLLIN, 0};
        if (poll(&wait, 1, kTickMs) > 0)
            break;
        if (given_up())
            return error(kExitServer, "the client went away before all its sockets were connected; the test ends");
    }
    channel.fd = Fd(accept4(channel.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!channel.fd)
        return system_error("accept");
    channel.listener = Fd();
    return make_ready(channel);
}

Failure SocketTransport::make_ready(Channel &channel)
{
    const int fd = channel.fd.get();
    if (stream()) {
        if (auto failure = set(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"))
            return failure;
    }
    if (plan_.wait == Wait::kRecvfrom) {
        const timeval limit{0, kTickMs * 1000L};
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
            return system_error("SO_RCVTIMEO");
        return {};
    }
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
        return system_error("O_NONBLOCK");
    return plan_.wait == Wait::kSpin ? Failure() : waiter_.add(fd);
}

} // namespace vma::lat
