// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/packet_socket.hpp"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

#include <cerrno>

#include "fabtests/ether/programs/commands.hpp"

namespace fabtest {

vma::core::UniqueFd open_packet_socket(const char *interface)
{
    vma::core::UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL)));
    sockaddr_ll address = {};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(interface));
    const int on = 1;
    const int room = 8 << 20;
    if (!fd || address.sll_ifindex == 0 ||
        ::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        die(interface, errno);
    return fd;
}

} // namespace fabtest
