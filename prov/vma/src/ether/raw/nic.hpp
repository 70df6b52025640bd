// SPDX-License-Identifier: BSD-2-Clause
// A NIC by a RAW_PACKET queue pair of the RDMA device that a network interface belongs to. The device gives it the
// frames of the flows that are ours, the kernel gets the others. Opening takes nothing from the kernel until a flow is
// added.
#pragma once

#include <memory>
#include <span>

#include "core/sysfs.hpp"
#include "ether/nic/interface.hpp"
#include "ether/raw/flows.hpp"
#include "ether/raw/queue.hpp"
#include "ether/xdp/program.hpp"

namespace vma::ether {

class RawNic
{
public:
    // 0 or negative errno, not logged: those of RawQueue::open, and what the device says to its first rule.
    // Of the options, `offloads` and `stamps` are read.
    [[nodiscard]] static int open(const Interface &interface, const core::RdmaPort &device, RawNic &opened,
                                  RawQueueOptions options = {}) noexcept;

    unsigned interface() const noexcept { return interface_; } // its index
    std::span<RawQueue> queues() noexcept { return {queue_.get(), 1}; }
    Flows &flows() noexcept { return *flows_; }
    bool arm() noexcept { return queue_->arm(); }
    // Of the device alone: when the driver had a frame nobody says.
    XdpStamps stamps() const noexcept { return queue_->has_stamps() ? XdpStamps::kHardware : XdpStamps::kNone; }
    static bool has_partial_sums() noexcept { return false; }
    inet::SendOffloads offloads() const noexcept { return queue_->offloads(); }
    int moderate(std::uint16_t frames, std::uint16_t us) noexcept { return queue_->moderate(frames, us); }
    ibv_pd *protection_domain() const noexcept { return queue_->pd(); }
    int tell_interrupts(std::uint64_t &asked, std::uint64_t &received) const noexcept // 0
    {
        asked = queue_->counters().armings;
        received = queue_->counters().wakes;
        return 0;
    }
    static int wait_fd() noexcept { return -1; }
    void follow() noexcept; // what the device has to tell
    // Whether a received frame is of a flow of ours.
    bool takes(std::span<const std::uint8_t> frame) const noexcept;

private:
    unsigned interface_ = 0;
    std::unique_ptr<RawQueue> queue_;
    std::unique_ptr<RawFlows> flows_; // goes before the queue: its frames go to the kernel then
};

} // namespace vma::ether
