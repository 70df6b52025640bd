// SPDX-License-Identifier: BSD-2-Clause
// Opening an AF_XDP socket: its rings are mapped, at whatever place of a queue it is.
#include <cerrno>
#include <sys/socket.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/xdp/socket.hpp"

namespace vma::ether {
int XdpSocket::open(unsigned interface, unsigned queue, const XdpSocketOptions &options, XdpSocket &opened) noexcept
{
    auto parts = std::make_unique<QueueParts>();
    if (options.places != 1)
        return -EINVAL;
    if (const int status = plan_queue(queue, options, parts->facts); status != 0)
        return status;
    if (const int status = make_queue(interface, options, *parts); status != 0)
        return status;
    XdpSocket made;
    if (const int status = attach(*parts, 0, made); status != 0)
        return status;
    made.alone_ = std::move(parts);
    if (options.busy_poll_usec != 0)
        made.set_busy_polling(options);
    opened = std::move(made);
    return 0;
}

int XdpSocket::attach(QueueParts &parts, unsigned place, XdpSocket &attached) noexcept
{
    XdpSocket made;
    made.facts_ = parts.facts;
    made.fd_ = parts.sockets[place].get();
    made.place_ = place;
    made.pool_ = FramePool(parts.pool, parts.facts.size, place);
    if (const int status = made.map(parts, place); status != 0)
        return status;
    const std::uint32_t received = parts.facts.size.receive;
    made.kept_ = parts.facts.kept;
    made.received_at_ = std::make_unique<std::uint16_t[]>(received);
    made.released_ = std::make_unique<FrameIndex[]>(received);
    made.free_ = std::make_unique<FrameIndex[]>(parts.facts.size.send);
    made.lent_ = LentFrames::make(made.frames_.data(), parts.facts.size.frame_size, received, parts.facts.lendable);
    if (parts.fresh)
        made.pool_.begin();
    else if (!made.pool_.recover(made.estate(), 0)) // what came after the last one was cleared away
        return -EBUSY;
    if (parts.facts.several) {
        if (const int status = made.gatherer_.open(); status != 0)
            return status;
    }
    attached = std::move(made);
    return 0;
}

int XdpSocket::map(QueueParts &parts, unsigned place) noexcept
{
    frames_ = parts.memory ? map_shared_memory(parts.memory.get(), parts.facts.bytes()) : std::move(parts.frames);
    if (!frames_)
        return -errno;
    int status = map_shared(parts, shared_);
    if (status == 0)
        status = map_place(parts, place, rings_);
    if (status != 0)
        return status;
    pool_.use(shared_.fill, shared_.completed);
    rings_.received.resume_consuming();
    rings_.queued.resume_producing();
    return 0;
}

void XdpSocket::set_busy_polling(const XdpSocketOptions &options) noexcept
{
    int status = set_option(fd_, SOL_SOCKET, SO_PREFER_BUSY_POLL, int{1});
    if (status == 0)
        status = set_option(fd_, SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(options.busy_poll_usec));
    if (status == 0)
        status = set_option(fd_, SOL_SOCKET, SO_BUSY_POLL_BUDGET, static_cast<int>(options.busy_poll_budget));
    busy_polling_ = status == 0;
    if (!busy_polling_)
        VMA_WARN(domain, "no busy polling of queue %u: this kernel has none", facts_.queue);
}

} // namespace vma::ether
