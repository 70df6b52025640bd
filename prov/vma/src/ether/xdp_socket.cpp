// SPDX-License-Identifier: BSD-2-Clause
// The data path. Frames below receive_frames are received into, the others are sent from; the fill ring is the list of
// free ones of the former.
#include "ether/xdp_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

namespace vma::ether {
namespace {

constexpr int kMaxKicks = 256;           // of 32 frames each in copy mode
constexpr std::uint32_t kHeadroom = 256; // XDP_PACKET_HEADROOM, which the kernel keeps before each frame

} // namespace

std::size_t XdpSocket::receive(std::span<ReceivedFrame> burst) noexcept
{
    refill();
    const std::size_t count = std::min<std::size_t>(received_.ready(), burst.size());
    if (count == 0)
        return 0;
    for (ReceivedFrame &frame : burst.first(count)) {
        const xdp_desc &got = received_.get();
        const auto index = static_cast<FrameIndex>(got.addr / frame_size_);
        received_at_[index] = static_cast<std::uint16_t>(got.addr % frame_size_);
        frame = {index, {frames_.data() + got.addr, got.len}};
    }
    received_.give_back();
    return count;
}

void XdpSocket::release(FrameIndex frame) noexcept
{
    if (!is_receive_frame(frame)) {
        free_[free_count_++] = frame;
        return;
    }
    fill_.put(std::uint64_t{frame} * frame_size_);
    unpublished_ = true;
}

void XdpSocket::refill() noexcept
{
    if (unpublished_)
        fill_.publish();
    unpublished_ = false;
}

FrameIndex XdpSocket::take() noexcept
{
    if (free_count_ == 0)
        reap();
    return free_count_ == 0 ? kNoFrame : free_[--free_count_];
}

std::span<std::uint8_t> XdpSocket::bytes(FrameIndex frame) noexcept
{
    return {frames_.data() + std::size_t{frame} * frame_size_, frame_size_};
}

bool XdpSocket::submit(FrameIndex frame, std::uint32_t length) noexcept
{
    // A sent frame leaves its place in the ring before it is in the other one; both are of one size.
    if (queued_.space() == 0)
        return false;
    const std::uint64_t offset = is_receive_frame(frame) ? received_at_[frame] : 0;
    queued_.put({std::uint64_t{frame} * frame_size_ + offset, length, 0});
    return true;
}

int XdpSocket::flush() noexcept
{
    queued_.publish();
    reap();
    std::uint32_t left = queued_.untaken();
    for (int kicks = 0; left != 0 && kicks < kMaxKicks; ++kicks) {
        if ((queued_.flags() & XDP_RING_NEED_WAKEUP) == 0)
            return 0; // the driver is at it
        const int status = ::sendto(fd_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0 ? 0 : errno;
        if (status == EBUSY)
            ++refused_; // lost, as on a wire; what is behind it goes on
        else if (status != 0 && status != EAGAIN && status != ENOBUFS && status != EINTR)
            return -status;
        reap();
        if (zero_copy_ && status == 0)
            return 0;
        const std::uint32_t before = std::exchange(left, queued_.untaken());
        if (left == before)
            return -EAGAIN;
    }
    return left == 0 ? 0 : -EAGAIN;
}

void XdpSocket::drive() noexcept
{
    refill();
    if (busy_polling_ || (fill_.flags() & XDP_RING_NEED_WAKEUP) != 0)
        (void)::recvfrom(fd_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

// Frames that were sent become free.
void XdpSocket::reap() noexcept
{
    const std::uint32_t count = completed_.ready();
    for (std::uint32_t i = 0; i < count; ++i)
        release(static_cast<FrameIndex>(completed_.get() / frame_size_));
    if (count != 0)
        completed_.give_back();
}

std::uint32_t XdpSocket::max_received() const noexcept
{
    return frame_size_ - kHeadroom;
}

int XdpSocket::counters(XdpSocketCounters &counters) const noexcept
{
    xdp_statistics kernel{};
    socklen_t size = sizeof kernel;
    if (::getsockopt(fd_.get(), SOL_XDP, XDP_STATISTICS, &kernel, &size) != 0)
        return -errno;
    counters = {kernel.rx_dropped,       kernel.rx_ring_full,     kernel.rx_fill_ring_empty_descs,
                kernel.rx_invalid_descs, kernel.tx_invalid_descs, refused_};
    return 0;
}

} // namespace vma::ether
