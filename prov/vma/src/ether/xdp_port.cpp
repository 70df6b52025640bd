// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp_port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/log.hpp"

namespace vma::ether {

int XdpPort::open(const char *interface, const XdpPortOptions &options, XdpPort &opened) noexcept
{
    XdpPort port;
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

int XdpPort::open_all(const char *name, const XdpPortOptions &options) noexcept
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
    flows_ = std::make_unique<XdpFlows>(program_.flows_map(), program_.addresses_map());

    sockets_.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
        XdpSocket &socket = sockets_[i];
        if (const int status = XdpSocket::open(interface_, queues[i], options.sockets, socket); status != 0)
            return status;
        if (described.longest_frame() > socket.max_received())
            return -EMSGSIZE;
        if (const int status = program_.set_socket(queues[i], socket.fd()); status != 0)
            return status;
    }
    return program_.attach(interface_, options.mode);
}

} // namespace vma::ether
