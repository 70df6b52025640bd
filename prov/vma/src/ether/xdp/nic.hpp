// SPDX-License-Identifier: BSD-2-Clause
// A NIC by AF_XDP: the XDP program on its interface, a socket on each of its queues, and the flows that are ours.
// Opening takes nothing from the kernel until a flow is added.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ether/nic/interface.hpp"
#include "ether/xdp/flows.hpp"
#include "ether/xdp/group.hpp"
#include "ether/xdp/program.hpp"
#include "ether/xdp/socket.hpp"

struct ibv_pd;

namespace vma::ether {

struct XdpNicOptions {
    XdpSocketOptions sockets; // of more than one place: other processes of this user may join, as long as one is there
    XdpProgram::Size tables;  // `queues` is found out
    XdpMode mode = XdpMode::kAuto;
    std::vector<unsigned> queues;        // empty: all. Frames that come by others go to the kernel
    XdpStamps stamps = XdpStamps::kNone; // what the kernel and the device can of it
};

class XdpNic
{
public:
    XdpNic() noexcept = default;
    XdpNic(XdpNic &&) noexcept = default;
    XdpNic &operator=(XdpNic &&) noexcept = default;
    ~XdpNic();

    // 0 or negative errno, which is logged: those of XdpSocket::open, XdpProgram::open and attach, -ENODEV, and
    // -EMSGSIZE where frames of the interface's MTU take several buffers and the kernel has no such frames.
    [[nodiscard]] static int open(const char *interface, const XdpNicOptions &options, XdpNic &opened) noexcept;

    unsigned interface() const noexcept { return interface_; } // its index
    std::span<XdpSocket> queues() noexcept { return sockets_; }
    XdpProgram &program() noexcept { return program_; }
    Flows &flows() noexcept { return *flows_; }
    bool takes_several_buffers() const noexcept { return program_.takes_several_buffers(); } // frames that have them
    XdpStamps stamps() const noexcept { return program_.stamps(); }
    // What comes over veth is as its sender's kernel made it, and generic XDP runs behind GRO.
    bool has_partial_sums() const noexcept { return is_veth_ || program_.mode() == XdpMode::kGeneric; }
    inet::SendOffloads offloads() const noexcept
    {
        const bool sums = std::ranges::all_of(sockets_, &XdpSocket::computes_checksums);
        return {sums, sums};
    }
    bool arm() noexcept { return true; } // its sockets are always ready to wake
    void follow() noexcept
    {
        if (group_)
            group_->serve(program_);
    }
    int wait_fd() const noexcept { return group_ ? group_->wait_fd() : -1; } // readable: follow() has something to do
    // Interrupts are the interface's (ethtool -C), for all programs that use it.
    static int moderate(std::uint16_t, std::uint16_t) noexcept { return -EOPNOTSUPP; }
    static ibv_pd *protection_domain() noexcept { return nullptr; }
    static int tell_interrupts(std::uint64_t &, std::uint64_t &) noexcept { return -EOPNOTSUPP; } // the kernel's
    static bool takes(std::span<const std::uint8_t>) noexcept { return true; } // what the program has steered here

private:
    int open_all(const char *name, const XdpNicOptions &options) noexcept;
    int open_first(const Interface &described, std::span<const unsigned> queues, const XdpNicOptions &options) noexcept;
    int open_later() noexcept;
    int run_program(const XdpNicOptions &options, XdpStamps stamps) noexcept;
    int open_sockets(std::span<const unsigned> queues, const XdpSocketOptions &wanted) noexcept;
    int attach_sockets() noexcept;
    int steer_to_sockets() noexcept;

    unsigned interface_ = 0;
    bool is_veth_ = false;
    std::unique_ptr<XdpGroup> group_; // nullptr: the queues are this process's alone
    std::vector<XdpSocket> sockets_;
    XdpProgram program_; // goes before the sockets: its frames go to the kernel then
    std::unique_ptr<XdpFlows> flows_;
};

} // namespace vma::ether
