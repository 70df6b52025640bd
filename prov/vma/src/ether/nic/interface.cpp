// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/interface.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/fd.hpp"
#include "core/kernel.hpp"

namespace vma::ether {

int describe(const char *name, Interface &described) noexcept
{
    ifreq request{};
    if (strlen(name) >= sizeof request.ifr_name)
        return -ENODEV;
    memcpy(request.ifr_name, name, strlen(name));
    const core::UniqueFd socket =
        core::make_fd([] { return core::kernel::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    if (!socket)
        return -errno;
    if (core::kernel::ioctl(socket.get(), SIOCGIFINDEX, &request) != 0)
        return -errno;
    described.index = static_cast<unsigned>(request.ifr_ifindex);
    if (core::kernel::ioctl(socket.get(), SIOCGIFMTU, &request) != 0)
        return -errno;
    described.mtu = static_cast<unsigned>(request.ifr_mtu);
    if (core::kernel::ioctl(socket.get(), SIOCGIFHWADDR, &request) != 0)
        return -errno;
    if (request.ifr_hwaddr.sa_family == ARPHRD_ETHER)
        memcpy(described.mac.bytes.data(), request.ifr_hwaddr.sa_data, described.mac.bytes.size());
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    request.ifr_data = reinterpret_cast<char *>(&channels);
    // A driver that can't say has one queue. Others have those for both ways, or apart.
    if (core::kernel::ioctl(socket.get(), SIOCETHTOOL, &request) == 0)
        described.queues = std::max({channels.combined_count, channels.rx_count, 1u});
    ethtool_drvinfo driver{};
    driver.cmd = ETHTOOL_GDRVINFO;
    request.ifr_data = reinterpret_cast<char *>(&driver);
    described.is_veth = core::kernel::ioctl(socket.get(), SIOCETHTOOL, &request) == 0 &&
                        strncmp(driver.driver, "veth", sizeof driver.driver) == 0;
    return 0;
}

} // namespace vma::ether
