// SPDX-License-Identifier: BSD-2-Clause
// The data path. Buffers below receive_frames are received into, the others are sent from; the fill ring is the list of
// free ones of the former. A frame's number is that of its first buffer.
#include "ether/xdp/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "core/kernel.hpp"
#include "ether/xdp/metadata.hpp"

#ifndef XDP_PKT_CONTD // Linux 6.6
#define XDP_PKT_CONTD (1 << 0)
#endif

namespace vma::ether {
namespace {

constexpr int kMaxKicks = 256;           // of 32 frames each in copy mode
constexpr std::uint32_t kHeadroom = 256; // XDP_PACKET_HEADROOM, which the kernel keeps before each frame

} // namespace

std::size_t XdpSocket::receive(std::span<ReceivedFrame> burst) noexcept
{
    refill();
    std::uint32_t left = received_.ready();
    if (left == 0)
        return 0;
    gatherer_.forget();
    std::size_t count = 0;
    for (; left != 0 && count < burst.size(); --left) {
        const xdp_desc &got = received_.get();
        if ((got.options & XDP_PKT_CONTD) != 0 || gatherer_.is_gathering()) [[unlikely]] {
            count += gather(got, burst[count]) ? 1 : 0;
            if (!gatherer_.has_room())
                break;
            continue;
        }
        const auto index = static_cast<FrameIndex>(got.addr / frame_size_);
        received_at_[index] = static_cast<std::uint16_t>(got.addr % frame_size_);
        burst[count++] = {index, {frames_.data() + got.addr, got.len}};
    }
    if (stamps_) [[unlikely]]
        read_stamps(burst.first(count));
    received_.give_back();
    return count;
}

// They lie before the frame, where the kernel keeps 256 bytes of its buffer free.
void XdpSocket::read_stamps(std::span<ReceivedFrame> burst) noexcept
{
    for (ReceivedFrame &frame : burst) {
        if (frame.index != kNoFrame && received_at_[frame.index] >= sizeof frame.stamps)
            std::memcpy(&frame.stamps, frame.bytes.data() - sizeof frame.stamps, sizeof frame.stamps);
    }
}

// One buffer of a frame that has several; it is free again at once. True: the frame is whole. That a buffer is one of
// ours is looked at here, as lengths add up.
[[gnu::noinline]] bool XdpSocket::gather(const xdp_desc &part, ReceivedFrame &frame) noexcept
{
    const std::uint64_t index = part.addr / frame_size_;
    const bool ours = several_ && index < fill_.size() && part.len <= frame_size_ - part.addr % frame_size_;
    if (!ours)
        gatherer_.spoil();
    if (stamps_ && !gatherer_.is_gathering() && ours && part.addr % frame_size_ >= sizeof gathered_at_)
        std::memcpy(&gathered_at_, frames_.data() + part.addr - sizeof gathered_at_, sizeof gathered_at_);
    const std::span<const std::uint8_t> bytes{frames_.data() + (ours ? part.addr : 0), ours ? part.len : 0};
    const Gatherer::Took took = gatherer_.take(bytes, (part.options & XDP_PKT_CONTD) != 0);
    if (index < fill_.size())
        release(static_cast<FrameIndex>(index));
    if (took == Gatherer::Took::kFrame) {
        ++gathered_;
        frame = {kNoFrame, gatherer_.frame(), false, gathered_at_};
    } else if (took == Gatherer::Took::kDropped) {
        ++broken_;
    }
    return took == Gatherer::Took::kFrame;
}

void XdpSocket::release(FrameIndex frame) noexcept
{
    if (!is_receive_frame(frame)) {
        if (frame != kNoFrame)
            free_[free_count_++] = frame;
        return;
    }
    if (lent_ && !lent_->release(frame)) [[unlikely]]
        return;
    fill_.put(std::uint64_t{frame} * frame_size_);
    unpublished_ = true;
}

XdpSocket::~XdpSocket()
{
    fd_.reset(); // before the memory that it uses
    if (lent_)
        lent_->keep(std::move(frames_));
}

void XdpSocket::refill() noexcept
{
    if (lent_)
        lent_->collect([this](FrameIndex frame) {
            fill_.put(std::uint64_t{frame} * frame_size_);
            unpublished_ = true;
        });
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
    const std::size_t offset = is_receive_frame(frame) ? 0 : send_offset_;
    return {frames_.data() + std::size_t{frame} * frame_size_ + offset,
            std::size_t{send_buffers_} * frame_size_ - offset};
}

bool XdpSocket::submit(FrameIndex frame, std::uint32_t length, const inet::FrameWork &work) noexcept
{
    if (length > frame_size_) [[unlikely]]
        return submit_parts(frame, length);
    // A sent frame leaves its place in the send ring before it is in the completion ring; both are of one size.
    if (queued_.space() == 0)
        return false;
    const std::uint64_t offset = is_receive_frame(frame) ? received_at_[frame] : send_offset_;
    const std::uint64_t at = std::uint64_t{frame} * frame_size_ + offset;
    std::uint32_t options = 0;
    if (work.transport != 0) {
        XdpSendMetadata metadata;
        metadata.flags = kXdpSendChecksum;
        metadata.checksum_start = work.transport;
        metadata.checksum_offset = work.checksum;
        std::memcpy(frames_.data() + at - sizeof metadata, &metadata, sizeof metadata);
        options = kXdpSendMetadata;
    }
    queued_.put({at, length, options});
    return true;
}

// The kernel sees all of its buffers or none: they are published together.
bool XdpSocket::submit_parts(FrameIndex frame, std::uint32_t length) noexcept
{
    const std::uint32_t count = (length + frame_size_ - 1) / frame_size_;
    if (count > send_buffers_ || !queued_.has_space(count))
        return false;
    unsent_[frame] = static_cast<std::uint8_t>(count - 1);
    std::uint64_t at = std::uint64_t{frame} * frame_size_;
    for (std::uint32_t i = 1; i < count; ++i, at += frame_size_, length -= frame_size_)
        queued_.put({at, frame_size_, XDP_PKT_CONTD});
    queued_.put({at, length, 0});
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
        const int status = core::kernel::send(fd_.get(), nullptr, 0, MSG_DONTWAIT) >= 0 ? 0 : errno;
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
        (void)core::kernel::recvfrom(fd_.get(), nullptr, 0, MSG_DONTWAIT);
}

// Frames that were sent become free.
void XdpSocket::reap() noexcept
{
    const std::uint32_t count = completed_.ready();
    if (count == 0)
        return;
    if (send_buffers_ == 1) {
        for (std::uint32_t i = 0; i < count; ++i)
            release(static_cast<FrameIndex>(completed_.get() / frame_size_));
    } else {
        for (std::uint32_t i = 0; i < count; ++i)
            settle(static_cast<FrameIndex>(completed_.get() / frame_size_));
    }
    completed_.give_back();
}

// The kernel tells of each buffer, in any order: a frame is free with the last of its own.
void XdpSocket::settle(FrameIndex buffer) noexcept
{
    if (is_receive_frame(buffer))
        return release(buffer);
    const FrameIndex frame = buffer - (buffer - fill_.size()) % send_buffers_;
    if (unsent_[frame] != 0)
        --unsent_[frame];
    else
        release(frame);
}

std::uint32_t XdpSocket::buffer_room() const noexcept
{
    return frame_size_ - kHeadroom;
}

QueueState XdpSocket::state() const noexcept
{
    QueueState now;
    now.dropped = broken_;
    now.waiting = received_.waiting();
    now.frames = fill_.size();
    now.free = std::min(fill_.untaken(), now.frames);
    now.lent = lent_ ? lent_->lent() : 0;
    now.send_frames = send_frames_;
    now.send_free = free_count_;
    return now;
}

void XdpSocket::ask_kernel(QueueState &state) const noexcept
{
    xdp_statistics kernel{};
    socklen_t size = sizeof kernel;
    if (core::kernel::getsockopt(fd_.get(), SOL_XDP, XDP_STATISTICS, &kernel, &size) != 0)
        return;
    state.dropped += kernel.rx_dropped + kernel.rx_ring_full;
    state.no_frame += kernel.rx_fill_ring_empty_descs;
}

int XdpSocket::counters(XdpSocketCounters &counters) const noexcept
{
    xdp_statistics kernel{};
    socklen_t size = sizeof kernel;
    if (core::kernel::getsockopt(fd_.get(), SOL_XDP, XDP_STATISTICS, &kernel, &size) != 0)
        return -errno;
    counters = {kernel.rx_dropped,
                kernel.rx_ring_full,
                kernel.rx_fill_ring_empty_descs,
                kernel.rx_invalid_descs,
                kernel.tx_invalid_descs,
                refused_,
                gathered_,
                broken_};
    return 0;
}

} // namespace vma::ether
