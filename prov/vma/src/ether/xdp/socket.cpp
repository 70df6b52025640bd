// SPDX-License-Identifier: BSD-2-Clause
// The data path. Buffers below the pool's `receive` are received into, the others are sent from. A frame's number is
// that of its first buffer.
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

constexpr int kMaxKicks = 256; // of 32 frames each in copy mode

} // namespace

std::size_t XdpSocket::receive(std::span<ReceivedFrame> burst) noexcept
{
    refill();
    std::uint32_t left = rings_.received.ready();
    if (left == 0)
        return 0;
    gatherer_.forget();
    std::size_t count = 0;
    for (; left != 0 && count < burst.size(); --left) {
        const xdp_desc &got = rings_.received.get();
        if ((got.options & XDP_PKT_CONTD) != 0 || gatherer_.is_gathering()) [[unlikely]] {
            count += gather(got, burst[count]) ? 1 : 0;
            if (!gatherer_.has_room())
                break;
            continue;
        }
        const auto index = static_cast<FrameIndex>(got.addr / facts_.size.frame_size);
        pool_.hold(index);
        received_at_[index] = static_cast<std::uint16_t>(got.addr % facts_.size.frame_size);
        burst[count++] = {index, {frames_.data() + got.addr, got.len}};
    }
    if (stamps_) [[unlikely]]
        read_stamps(burst.first(count));
    rings_.received.give_back();
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
    const std::uint64_t index = part.addr / facts_.size.frame_size;
    const bool ours = facts_.several && index < facts_.size.receive &&
                      part.len <= facts_.size.frame_size - part.addr % facts_.size.frame_size;
    if (!ours)
        gatherer_.spoil();
    if (stamps_ && !gatherer_.is_gathering() && ours && part.addr % facts_.size.frame_size >= sizeof gathered_at_)
        std::memcpy(&gathered_at_, frames_.data() + part.addr - sizeof gathered_at_, sizeof gathered_at_);
    const std::span<const std::uint8_t> bytes{frames_.data() + (ours ? part.addr : 0), ours ? part.len : 0};
    const Gatherer::Took took = gatherer_.take(bytes, (part.options & XDP_PKT_CONTD) != 0);
    if (index < facts_.size.receive) {
        pool_.hold(static_cast<FrameIndex>(index));
        release(static_cast<FrameIndex>(index));
    }
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
        if (frame == kNoFrame)
            return;
        free_[free_count_++] = frame;
        return;
    }
    if (lent_ && !lent_->release(frame)) [[unlikely]]
        return;
    released_[released_count_++] = frame;
}

XdpSocket::~XdpSocket()
{
    if (!frames_)
        return; // it was moved, or never opened
    leave();
    if (lent_)
        lent_->keep(std::move(frames_));
}

// Others go on with the frames. What is on loan stays held: it is found again when this process has ended.
void XdpSocket::leave() noexcept
{
    if (alone_ || generation_ != core::fork_generation())
        return;
    refill();
    if (lent() == 0) {
        (void)pool_.recover(estate(), 0);
    } else {
        (void)(pool_.put_back({released_.get(), released_count_}) && pool_.give_back({free_.get(), free_count_}));
    }
}

void XdpSocket::refill() noexcept
{
    if (lent_) {
        lent_->collect([this](FrameIndex frame) { released_[released_count_++] = frame; });
        others_lent_ = pool_.note_lent(lent_->lent());
    }
    if (released_count_ != 0 && pool_.put_back({released_.get(), released_count_}))
        released_count_ = 0;
}

FrameIndex XdpSocket::take() noexcept
{
    if (free_count_ == 0)
        free_count_ = static_cast<std::uint32_t>(pool_.take(kept(), 0));
    return free_count_ == 0 ? kNoFrame : free_[--free_count_];
}

std::span<std::uint8_t> XdpSocket::bytes(FrameIndex frame) noexcept
{
    const std::size_t offset = is_receive_frame(frame) ? 0 : facts_.send_offset;
    return {frames_.data() + std::size_t{frame} * facts_.size.frame_size + offset,
            std::size_t{facts_.size.send_buffers} * facts_.size.frame_size - offset};
}

bool XdpSocket::submit(FrameIndex frame, std::uint32_t length, const inet::FrameWork &work) noexcept
{
    if (length > facts_.size.frame_size) [[unlikely]]
        return submit_parts(frame, length);
    // A sent frame leaves its place in the send ring before it is in the completion ring; both are of one size.
    if (rings_.queued.space() == 0)
        return false;
    const std::uint64_t offset = is_receive_frame(frame) ? received_at_[frame] : facts_.send_offset;
    const std::uint64_t at = std::uint64_t{frame} * facts_.size.frame_size + offset;
    std::uint32_t options = 0;
    if (work.transport != 0) {
        XdpSendMetadata metadata;
        metadata.flags = kXdpSendChecksum;
        metadata.checksum_start = work.transport;
        metadata.checksum_offset = work.checksum;
        std::memcpy(frames_.data() + at - sizeof metadata, &metadata, sizeof metadata);
        options = kXdpSendMetadata;
    }
    rings_.queued.put({at, length, options});
    pool_.note_queued(frame, rings_.queued.position(), 0);
    return true;
}

// The kernel sees all of its buffers or none: they are published together.
bool XdpSocket::submit_parts(FrameIndex frame, std::uint32_t length) noexcept
{
    const std::uint32_t count = (length + facts_.size.frame_size - 1) / facts_.size.frame_size;
    if (count > facts_.size.send_buffers || !rings_.queued.has_space(count))
        return false;
    std::uint64_t at = std::uint64_t{frame} * facts_.size.frame_size;
    for (std::uint32_t i = 1; i < count; ++i, at += facts_.size.frame_size, length -= facts_.size.frame_size)
        rings_.queued.put({at, facts_.size.frame_size, XDP_PKT_CONTD});
    rings_.queued.put({at, length, 0});
    pool_.note_queued(frame, rings_.queued.position(), count - 1);
    return true;
}

int XdpSocket::flush() noexcept
{
    rings_.queued.publish();
    reap();
    std::uint32_t left = rings_.queued.untaken();
    for (int kicks = 0; left != 0 && kicks < kMaxKicks; ++kicks) {
        if ((rings_.queued.flags() & XDP_RING_NEED_WAKEUP) == 0)
            return 0; // the driver is at it
        const int status = core::kernel::send(fd_, nullptr, 0, MSG_DONTWAIT) >= 0 ? 0 : errno;
        if (status == EBUSY)
            ++refused_; // lost, as on a wire; what is behind it goes on
        else if (status != 0 && status != EAGAIN && status != ENOBUFS && status != EINTR)
            return -status;
        reap();
        if (facts_.zero_copy && status == 0)
            return 0;
        const std::uint32_t before = std::exchange(left, rings_.queued.untaken());
        if (left == before)
            return -EAGAIN;
    }
    return left == 0 ? 0 : -EAGAIN;
}

void XdpSocket::drive() noexcept
{
    refill();
    if (pool_.is_short()) [[unlikely]]
        pool_.top_up();
    if (busy_polling_ || (pool_.fill().flags() & XDP_RING_NEED_WAKEUP) != 0)
        (void)core::kernel::recvfrom(fd_, nullptr, 0, MSG_DONTWAIT);
}

// Frames that were sent become free.
void XdpSocket::reap() noexcept
{
    if (pool_.has_completed())
        free_count_ = static_cast<std::uint32_t>(pool_.reap(kept(), free_count_));
    if (free_count_ > kept_ && pool_.give_back({free_.get() + kept_, free_count_ - kept_})) [[unlikely]]
        free_count_ = kept_;
}

std::uint32_t XdpSocket::buffer_room() const noexcept
{
    return facts_.size.frame_size - kXdpHeadroom;
}

QueueState XdpSocket::state() const noexcept
{
    QueueState now;
    now.dropped = broken_;
    now.waiting = rings_.received.waiting();
    now.frames = facts_.size.receive;
    now.free = std::min(pool_.free_to_receive(), now.frames);
    now.lent = lent();
    now.send_frames = facts_.size.send;
    now.send_free = free_count_ + pool_.free_to_send();
    return now;
}

void XdpSocket::ask_kernel(QueueState &state) const noexcept
{
    xdp_statistics kernel{};
    socklen_t size = sizeof kernel;
    if (core::kernel::getsockopt(fd_, SOL_XDP, XDP_STATISTICS, &kernel, &size) != 0)
        return;
    state.dropped += kernel.rx_dropped + kernel.rx_ring_full;
    state.no_frame += kernel.rx_fill_ring_empty_descs;
}

int XdpSocket::counters(XdpSocketCounters &counters) const noexcept
{
    xdp_statistics kernel{};
    socklen_t size = sizeof kernel;
    if (core::kernel::getsockopt(fd_, SOL_XDP, XDP_STATISTICS, &kernel, &size) != 0)
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
