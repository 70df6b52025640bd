// SPDX-License-Identifier: BSD-2-Clause
#include "ether/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <numeric>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/log.hpp"

namespace vma::ether {
namespace {

constexpr unsigned kHeaders = 14 + 2 * 4; // Ethernet's with two VLAN tags

struct Interface {
    unsigned index = 0;
    unsigned mtu = 0;
    unsigned queues = 1;
};

int describe(const char *name, Interface &described)
{
    ifreq request{};
    if (strlen(name) >= sizeof request.ifr_name)
        return -ENODEV;
    memcpy(request.ifr_name, name, strlen(name));
    const core::UniqueFd socket = core::make_fd([] { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    if (!socket)
        return -errno;
    if (::ioctl(socket.get(), SIOCGIFINDEX, &request) != 0)
        return -errno;
    described.index = static_cast<unsigned>(request.ifr_ifindex);
    if (::ioctl(socket.get(), SIOCGIFMTU, &request) != 0)
        return -errno;
    described.mtu = static_cast<unsigned>(request.ifr_mtu);
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    request.ifr_data = reinterpret_cast<char *>(&channels);
    // A driver that can't say has one queue. Others have those for both ways, or apart.
    if (::ioctl(socket.get(), SIOCETHTOOL, &request) == 0)
        described.queues = std::max({channels.combined_count, channels.rx_count, 1u});
    return 0;
}

} // namespace

int Port::open(const char *interface, const PortOptions &options, Port &opened) noexcept
{
    Port port;
    if (const int status = port.open_all(interface, options); status != 0) {
        VMA_WARN(domain, "%s stays the kernel's: %s", interface, strerror(-status));
        return status;
    }
    VMA_INFO(domain, "%s: %zu queues, %s XDP, %s", interface, port.sockets_.size(),
             port.program_.mode() == XdpMode::kNative ? "native" : "generic",
             port.sockets_.front().is_zero_copy() ? "zero copy" : "copies");
    opened = std::move(port);
    return 0;
}

int Port::open_all(const char *name, const PortOptions &options) noexcept
{
    Interface described;
    if (const int status = describe(name, described); status != 0)
        return status;
    interface_ = described.index;

    std::vector<unsigned> queues = options.queues;
    if (queues.empty()) {
        queues.resize(described.queues);
        std::iota(queues.begin(), queues.end(), 0u);
    }
    XdpProgram::Size tables = options.tables;
    tables.queues = *std::max_element(queues.begin(), queues.end()) + 1;
    if (const int status = XdpProgram::open(tables, program_); status != 0)
        return status;
    flows_ = std::make_unique<Flows>(program_.flows_map(), program_.addresses_map());

    sockets_.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
        XdpSocket &socket = sockets_[i];
        if (const int status = XdpSocket::open(interface_, queues[i], options.sockets, socket); status != 0)
            return status;
        if (described.mtu + kHeaders > socket.max_received())
            return -EMSGSIZE;
        if (const int status = program_.set_socket(queues[i], socket.fd()); status != 0)
            return status;
    }
    return program_.attach(interface_, options.mode);
}

} // namespace vma::ether
