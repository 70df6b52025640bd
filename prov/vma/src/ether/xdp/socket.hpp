// SPDX-License-Identifier: BSD-2-Clause
// An AF_XDP socket on one queue of an interface, with the memory of its frames: bursts of received frames out, frames
// to send in, without a copy of ours and without allocation. Which frames come is the XDP program's affair.
#pragma once

#include <cstdint>
#include <linux/if_xdp.h>
#include <memory>
#include <span>

#include "core/fd.hpp"
#include "ether/nic/frames.hpp"
#include "ether/nic/gatherer.hpp"
#include "ether/nic/lent_frames.hpp"
#include "ether/nic/memory_map.hpp"
#include "ether/xdp/queue_parts.hpp"
#include "ether/xdp/ring.hpp"
#include "inet/wire/send_offloads.hpp"

namespace vma::ether {

// What the kernel counts (if_xdp.h): frames lost and descriptors that it refused.
struct XdpSocketCounters {
    std::uint64_t dropped = 0;   // frames lost: longer than a frame may be, or no buffer of ours was left in copy mode
    std::uint64_t ring_full = 0; // frames lost: the receive ring was full
    std::uint64_t no_frame = 0;  // times the driver found no frame to receive into
    std::uint64_t bad_received = 0;
    std::uint64_t bad_sent = 0; // descriptors of ours that were wrong
    std::uint64_t refused =
        0; // times that the driver or its queue discarded a frame of ours; counted here, as what follows
    std::uint64_t gathered = 0; // frames that came in several buffers
    std::uint64_t broken =
        0; // of those, and thrown away: longer than Gatherer::kLongest, or a buffer that is none of ours
};

// One owner at a time. A forked child can't use it.
class XdpSocket
{
public:
    XdpSocket() noexcept = default;
    ~XdpSocket();
    XdpSocket(XdpSocket &&) noexcept = default;
    XdpSocket &operator=(XdpSocket &&) noexcept = default;

    // Negative errno: -EINVAL for sizes and for a queue that isn't there, -EBUSY if another socket has the queue,
    // -EPERM without CAP_NET_RAW, -ENOBUFS if RLIMIT_MEMLOCK is too small. Waits up to 0.1 s for the queue's last owner
    // to be gone.
    [[nodiscard]] static int open(unsigned interface, unsigned queue, const XdpSocketOptions &options,
                                  XdpSocket &opened) noexcept;
    // The socket at one place of a queue that other processes may share. `parts` outlive it, and nobody else has the
    // place. 0 or negative errno: those of mmap().
    [[nodiscard]] static int attach(QueueParts &parts, unsigned place, XdpSocket &attached) noexcept;

    // Received frames, oldest first, as many as there are and fit; 0 at once if there are none, or a part of one. No
    // system call.
    std::size_t receive(std::span<ReceivedFrame> burst) noexcept;
    // The frame is the kernel's again, to receive into; or, if take() gave it, free again. Nothing for kNoFrame.
    void release(FrameIndex frame) noexcept;
    // What release() has collected becomes visible to the kernel. receive() does it too.
    void refill() noexcept;

    // Who lends this part of a received frame; nullptr: nobody, it is none, or half of the frames are lent.
    LentFrames *lender_of(const std::uint8_t *data, std::size_t length) const noexcept
    {
        return lent_ && lent_->may_lend(data, length, others_lent_) ? lent_.get() : nullptr;
    }

    // A free frame to write into; kNoFrame: all are under way, flush() and try later.
    FrameIndex take() noexcept;
    std::span<std::uint8_t> bytes(FrameIndex frame) noexcept; // the whole of it: longest_sent and more
    // Queues the frame; it comes back by itself when it is sent. Taken frames are sent from their first byte, received
    // ones from where they were received, so a frame that is answered in place is no copy; kNoFrame can't. False: the
    // send ring is full, the frame stays the caller's. `work`: for the kernel or the device to do; nothing unless
    // computes_checksums().
    [[nodiscard]] bool submit(FrameIndex frame, std::uint32_t length, const inet::FrameWork &work = {}) noexcept;
    // Sends what is queued, with a system call only if the kernel asks for one. -EAGAIN: some is still queued, as the
    // device's queue or the socket's buffer is full: call again. -ENETDOWN, -ENXIO: the interface is down, gone.
    [[nodiscard]] int flush() noexcept;
    // Lets the kernel receive, where that takes a system call: busy polling, or a driver that waits for frames. Call it
    // when receive() found nothing. No system call otherwise.
    void drive() noexcept;

    // The program of its interface writes FrameStamps before the frames; before it is attached.
    void expect_stamps() noexcept { stamps_ = true; }

    int fd() const noexcept { return fd_; } // POLLIN: frames have arrived
    unsigned queue() const noexcept { return facts_.queue; }
    bool is_zero_copy() const noexcept { return facts_.zero_copy; }
    FramePool &pool() noexcept { return pool_; }
    std::uint32_t lent() const noexcept { return lent_ ? lent_->lent() : 0; } // frames that the program has
    // Those of frames that are sent. Without a copy it would be the driver's, and not all drivers do it.
    bool computes_checksums() const noexcept { return facts_.send_offset != 0 && !facts_.zero_copy; }
    bool has_several_buffers() const noexcept { return facts_.several; } // a frame may
    std::uint32_t buffer_room() const noexcept;                          // bytes of a received frame in one buffer
    [[nodiscard]] int counters(XdpSocketCounters &counters) const noexcept;
    QueueState state() const noexcept;
    void ask_kernel(QueueState &state) const noexcept; // adds what it counts: a system call; thread-safe

private:
    // Frames to send that are kept here: no lock is taken for each. Where others share them, not more than these.
    static constexpr std::uint32_t kKept = 64;

    int map(QueueParts &parts, unsigned place) noexcept;
    void set_busy_polling(const XdpSocketOptions &options) noexcept;
    void read_stamps(std::span<ReceivedFrame> burst) noexcept;
    bool gather(const xdp_desc &part, ReceivedFrame &frame) noexcept;
    bool submit_parts(FrameIndex frame, std::uint32_t length) noexcept;
    void reap() noexcept;
    void leave() noexcept;
    FramePool::Estate estate() noexcept { return {place_, &rings_.received, &rings_.queued}; }
    std::span<FrameIndex> kept() noexcept { return {free_.get(), kept_}; }
    bool is_receive_frame(FrameIndex frame) const noexcept { return frame < facts_.size.receive; }

    std::unique_ptr<QueueParts> alone_; // of a queue that is ours alone; goes last
    MemoryMap frames_;
    SharedRings shared_;
    PlaceRings rings_;
    QueueFacts facts_;
    FramePool pool_;
    unsigned place_ = 0;
    std::uint32_t generation_ = core::fork_generation();
    std::unique_ptr<std::uint16_t[]> received_at_; // offset of the data in each frame to receive
    std::unique_ptr<FrameIndex[]> free_;           // frames to send that we hold: the first buffer of each
    std::unique_ptr<FrameIndex[]> released_;       // received frames that are no longer needed
    std::uint32_t free_count_ = 0;
    std::uint32_t released_count_ = 0;
    std::uint32_t kept_ = 0;
    int fd_ = -1; // the queue's parts have it
    Gatherer gatherer_;
    FrameStamps gathered_at_; // of the frame that is being gathered
    std::uint64_t gathered_ = 0;
    std::uint64_t broken_ = 0;
    std::uint64_t refused_ = 0;
    std::uint32_t others_lent_ = 0; // frames that programs of other processes have
    bool stamps_ = false;
    bool busy_polling_ = false;
    LentFrames::Owned lent_; // nullptr: no memory for it, nothing is lent
};

} // namespace vma::ether
