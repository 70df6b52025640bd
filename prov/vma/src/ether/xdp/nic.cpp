// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/nic.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "core/log.hpp"
#include "ether/xdp/release_wait.hpp"

namespace vma::ether {
namespace {

// Why an interface can't be had, and what the caller is told: EBUSY, where others have it.
struct Refusal {
    const char *reason;
    int status;
};

Refusal explain(int status) noexcept
{
    switch (status) {
    case -EMSGSIZE:
        return {"frames of its MTU take several buffers, and AF_XDP of this kernel has one a frame (Linux 6.6 has "
                "several)",
                status};
    case -EBUSY:
        return {"another user's process has it, or one that shares it with nobody", status};
    case -EUSERS:
        return {"all places are taken (FI_VMA_ETHERNET_PROCESSES of the process that opened it first)", -EBUSY};
    case -ETIMEDOUT:
    case -ECONNRESET:
        return {"another process of this user has it, and doesn't answer", -EBUSY};
    case -EXDEV:
        return {"a process of another pid namespace has it", -EBUSY};
    default:
        return {strerror(-status), status};
    }
}

// Whoever has the name by which processes of this user would share the interface has not shown that he is this user,
// and anybody can have it. Where it is this user all the same, the queues are found busy.
bool is_in_the_way(int status) noexcept
{
    return status == -EACCES || status == -ECONNREFUSED || status == -EAGAIN;
}

void warn_of_holder(const char *interface, int status, uid_t holder) noexcept
{
    char who[32] = "somebody who lets nobody ask";
    if (status == -EACCES)
        std::snprintf(who, sizeof who, "user %u", static_cast<unsigned>(holder));
    VMA_WARN(domain,
             "%s: %s has taken the name by which processes of this user find each other: the interface is this "
             "process's alone",
             interface, who);
}

} // namespace

int XdpNic::open(const char *interface, const XdpNicOptions &options, XdpNic &opened) noexcept
{
    XdpNic made;
    if (const int status = made.open_all(interface, options); status != 0) {
        const Refusal refusal = explain(status);
        VMA_WARN(domain, "%s stays the kernel's: %s", interface, refusal.reason);
        return refusal.status;
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
    if (made.group_)
        VMA_INFO(domain, "%s: shared by processes of this user, place %u of %u", interface, made.group_->place() + 1,
                 made.group_->places());
    opened = std::move(made);
    return 0;
}

XdpNic::~XdpNic()
{
    if (!group_)
        return;
    const bool lent = std::ranges::any_of(sockets_, [](const XdpSocket &socket) { return socket.lent() != 0; });
    group_->withdraw(program_);
    sockets_.clear();
    group_->leave(program_, lent);
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
    int unshared = 0;
    uid_t holder = 0;
    if (options.sockets.places > 1)
        unshared = XdpGroup::open(interface_, group_, holder);
    if (unshared != 0 && !is_in_the_way(unshared))
        return unshared;
    const bool first = !group_ || group_->founded();
    int status = first ? open_first(described, queues, options) : open_later();
    if (status == 0 && !takes_several_buffers() && described.longest_frame() > sockets_.front().buffer_room())
        status = -EMSGSIZE;
    if (status == 0 && group_ && first)
        group_->begin(program_);
    if (status == 0 && unshared != 0)
        warn_of_holder(name, unshared, holder);
    return status;
}

int XdpNic::open_first(const Interface &described, std::span<const unsigned> queues,
                       const XdpNicOptions &options) noexcept
{
    XdpSocketOptions wanted = options.sockets;
    wanted.longest_sent = described.longest_frame();
    if (const int failed = open_sockets(queues, wanted); failed != 0)
        return failed;
    int status = run_program(options, options.stamps);
    // Native mode can't be had: what needs it goes.
    if (status != 0 && program_.stamps() == XdpStamps::kHardware)
        status = run_program(options, XdpStamps::kSoftware);
    return status;
}

int XdpNic::open_later() noexcept
{
    program_ = group_->take_program();
    const int status = attach_sockets();
    return status != 0 ? status : steer_to_sockets();
}

int XdpNic::run_program(const XdpNicOptions &options, XdpStamps stamps) noexcept
{
    XdpProgram::Size tables = options.tables;
    tables.places = group_ ? group_->places() : 1;
    for (const XdpSocket &socket : sockets_)
        tables.queues = std::max(tables.queues, socket.queue() + 1);
    // A program that lets such frames through to sockets that can't take them would lose them.
    const bool several = std::ranges::all_of(sockets_, &XdpSocket::has_several_buffers);
    if (const int status = XdpProgram::open(tables, {several, stamps, interface_}, program_); status != 0)
        return status;
    int status = steer_to_sockets();
    if (status == 0)
        status = program_.attach(interface_, options.mode);
    for (ReleaseWait wait(interface_); status == -EBUSY && wait.next();)
        status = program_.attach(interface_, options.mode);
    return status;
}

int XdpNic::steer_to_sockets() noexcept
{
    const unsigned place = group_ ? group_->place() : 0;
    GroupMutex *const turn = group_ ? group_->mutex() : nullptr;
    flows_ = std::make_unique<XdpFlows>(program_.flows_map(), program_.addresses_map(), place, turn);
    for (XdpSocket &socket : sockets_) {
        if (program_.stamps() != XdpStamps::kNone)
            socket.expect_stamps();
        if (const int status = program_.set_socket(socket.queue(), socket.fd(), place); status != 0)
            return status;
    }
    return 0;
}

// Where the system has no such sharing, or it takes too much memory, the queues are ours alone.
int XdpNic::open_sockets(std::span<const unsigned> queues, const XdpSocketOptions &wanted) noexcept
{
    if (group_) {
        const int status = group_->make(interface_, queues, wanted);
        if (status == 0)
            return attach_sockets();
        group_.reset();
        if (status == -EBUSY || status == -EPERM)
            return status;
        VMA_INFO(domain, "other processes can't share the interface: %s", strerror(-status));
    }
    XdpSocketOptions alone = wanted;
    alone.places = 1;
    sockets_.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
        if (const int status = XdpSocket::open(interface_, queues[i], alone, sockets_[i]); status != 0)
            return status;
    }
    return 0;
}

int XdpNic::attach_sockets() noexcept
{
    sockets_.resize(group_->queues().size());
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
        QueueParts &parts = group_->queues()[i];
        int status = bind_place(interface_, parts, group_->place());
        if (status == 0)
            status = XdpSocket::attach(parts, group_->place(), sockets_[i]);
        if (status != 0)
            return status;
    }
    return 0;
}

} // namespace vma::ether
