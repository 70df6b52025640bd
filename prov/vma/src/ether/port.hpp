// SPDX-License-Identifier: BSD-2-Clause
// An Ethernet port of this process: the XDP program on its interface, a socket on each of its queues, and the flows that are
// ours. Opening takes nothing from the kernel until a flow is added.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ether/flows.hpp"
#include "ether/xdp_program.hpp"
#include "ether/xdp_socket.hpp"

namespace vma::ether {

struct PortOptions {
    XdpSocketOptions sockets;
    XdpProgram::Size tables; // `queues` is found out
    XdpMode mode = XdpMode::kAuto;
    std::vector<unsigned> queues; // empty: all. Frames that come by others go to the kernel
};

class Port
{
public:
    // 0 or negative errno, which is logged: those of XdpSocket::open, XdpProgram::open and attach, -ENODEV, and -EMSGSIZE where
    // frames of the interface's MTU don't fit into ours.
    [[nodiscard]] static int open(const char *interface, const PortOptions &options, Port &opened) noexcept;

    unsigned interface() const noexcept { return interface_; } // its index
    std::span<XdpSocket> sockets() noexcept { return sockets_; }
    XdpProgram &program() noexcept { return program_; }
    Flows &flows() noexcept { return *flows_; }

private:
    int open_all(const char *name, const PortOptions &options) noexcept;

    unsigned interface_ = 0;
    std::vector<XdpSocket> sockets_;
    XdpProgram program_; // goes before the sockets: its frames go to the kernel then
    std::unique_ptr<Flows> flows_;
};

} // namespace vma::ether
