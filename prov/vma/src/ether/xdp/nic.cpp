// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/nic.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/log.hpp"

namespace vma::ether {
namespace {

const char *reason(int status) noexcept
{
    return status == -EMSGSIZE
               ? "frames of its MTU take several buffers, and AF_XDP of this kernel has one a frame (Linux "
                 "6.6 has several)"
               : strerror(-status);
}

} // namespace

int XdpNic::open(const char *interface, const XdpNicOptions &options, XdpNic &opened) noexcept
{
    XdpNic made;
    if (const int status = made.open_all(interface, options); status != 0) {
        VMA_WARN(domain, "%s stays the kernel's: %s", interface, reason(status));
        return status;
    }
    VMA_INFO(domain, "%s: %zu queues, %s XDP, %s, frames of %s", interface, made.sockets_.size(),
             made.program_.mode() == XdpMode::kNative ? "native" : "generic",
             made.sockets_.front().is_zero_copy() ? "zero copy" : "copies",
             made.takes_several_buffers() ? "any length" : "one buffer");
    if (options.sockets.offloads)
        VMA_DEBUG(domain, "%s: checksums of frames to send are %s", interface,
                  made.offloads().checksums_v4
                      ? "left to the kernel"
                      : "computed here: the kernel has no metadata of AF_XDP's frames (Linux 6.11), the MTU asks for "
                        "several buffers, or the driver sends without a copy");
    opened = std::move(made);
    return 0;
}

int XdpNic::open_all(const char *name, const XdpNicOptions &options) noexcept
{
    Interface described;
    if (const int status = describe(name, described); status != 0)
        return status;
    interface_ = described.index;
    is_veth_ = described.is_veth;

    std::vector<unsigned> queues = options.queues;
    if (queues.empty()) {
        queues.resize(described.queues);
        std::iota(queues.begin(), queues.end(), 0u);
    }
    if (const int failed = open_sockets(described, queues, options); failed != 0)
        return failed;
    int status = run_program(options, options.stamps);
    // Native mode can't be had: what needs it goes.
    if (status != 0 && program_.stamps() == XdpStamps::kHardware)
        status = run_program(options, XdpStamps::kSoftware);
    if (status == 0 && !takes_several_buffers() && described.longest_frame() > sockets_.front().buffer_room())
        return -EMSGSIZE;
    return status;
}

int XdpNic::run_program(const XdpNicOptions &options, XdpStamps stamps) noexcept
{
    XdpProgram::Size tables = options.tables;
    for (const XdpSocket &socket : sockets_)
        tables.queues = std::max(tables.queues, socket.queue() + 1);
    // A program that lets such frames through to sockets that can't take them would lose them.
    const bool several = std::ranges::all_of(sockets_, &XdpSocket::has_several_buffers);
    if (const int status = XdpProgram::open(tables, {several, stamps, interface_}, program_); status != 0)
        return status;
    flows_ = std::make_unique<XdpFlows>(program_.flows_map(), program_.addresses_map());
    for (XdpSocket &socket : sockets_) {
        if (program_.stamps() != XdpStamps::kNone)
            socket.expect_stamps();
        if (const int status = program_.set_socket(socket.queue(), socket.fd()); status != 0)
            return status;
    }
    return program_.attach(interface_, options.mode);
}

int XdpNic::open_sockets(const Interface &described, std::span<const unsigned> queues,
                         const XdpNicOptions &options) noexcept
{
    XdpSocketOptions wanted = options.sockets;
    wanted.longest_sent = described.longest_frame();
    sockets_.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
        if (const int status = XdpSocket::open(interface_, queues[i], wanted, sockets_[i]); status != 0)
            return status;
    }
    return 0;
}

} // namespace vma::ether
