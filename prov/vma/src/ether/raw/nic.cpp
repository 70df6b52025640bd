// SPDX-License-Identifier: BSD-2-Clause
#include "ether/raw/nic.hpp"

#include <algorithm>
#include <cerrno>

#include "inet/wire/ethernet.hpp"

namespace vma::ether {
namespace {

constexpr std::uint32_t kFrameSize = 2048; // bytes, unless the interface has longer ones
constexpr std::uint32_t kAlignment = 256;  // bytes

} // namespace

int RawNic::open(const Interface &interface, const core::RdmaPort &device, RawNic &opened,
                 RawQueueOptions options) noexcept
{
    if (interface.mac == inet::Mac{})
        return -EOPNOTSUPP;
    RawNic made;
    made.interface_ = interface.index;
    const std::uint32_t longest = (interface.longest_frame() + kAlignment - 1) / kAlignment * kAlignment;
    options.frame_size = std::max(longest, kFrameSize);
    if (const int status = RawQueue::open(device, options, made.queue_); status != 0)
        return status;
    made.flows_ = std::make_unique<RawFlows>(made.queue_->qp(), device.port, interface.mac);
    if (const int status = made.flows_->try_rule(); status != 0)
        return status;
    opened = std::move(made);
    return 0;
}

// Without its queue a rule would only keep frames from the kernel.
void RawNic::follow() noexcept
{
    queue_->follow();
    if (queue_->is_broken())
        flows_->give_up();
}

bool RawNic::takes(std::span<const std::uint8_t> frame) const noexcept
{
    if (frame.size() < inet::kEthernetHeader)
        return false;
    const std::uint16_t type = inet::load16(&frame[inet::kEthernetHeader - 2]);
    const bool tagged = type == inet::kEtherVlan || type == inet::kEtherServiceVlan;
    return !tagged || flows_->owns_tagged(frame);
}

} // namespace vma::ether
