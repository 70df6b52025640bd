// SPDX-License-Identifier: BSD-2-Clause
// A RAW_PACKET queue pair of an RDMA device with the memory of its frames: bursts of received frames out, frames to
// send in, as XdpSocket has it. Which frames come is said by RawFlows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/sysfs.hpp"
#include "ether/nic/frames.hpp"
#include "ether/nic/lent_frames.hpp"
#include "ether/nic/memory_map.hpp"
#include "ether/nic/raw_clock.hpp"
#include "ether/raw/verbs_object.hpp"
#include "inet/wire/send_offloads.hpp"

namespace vma::ether {

struct RawQueueOptions {
    std::uint32_t receive_frames = 2048; // less where the device's queues are shorter
    std::uint32_t send_frames = 2048;
    std::uint32_t frame_size = 2048; // bytes; a longer frame ends the queue
    bool stamps = false;             // received frames have the device's, if it stamps completions
    bool offloads = false; // the device computes checksums of frames to send, and cuts TCP segments, if it can
};

struct RawQueueCounters {
    std::uint64_t received = 0;  // frames
    std::uint64_t sent = 0;      // frames given to the device
    std::uint64_t doorbells = 0; // calls that gave them
    std::uint64_t posts = 0;     // calls that gave back frames to receive into
    std::uint64_t cut = 0;       // of those sent: given to the device to be cut
    std::uint64_t lost = 0;      // frames to send that found the device gone
    std::uint64_t armings = 0;   // interrupts asked for
    std::uint64_t wakes = 0;     // and seen by arm()
};

// One owner at a time. A forked child can't use it.
class RawQueue
{
public:
    // 0 or negative errno: -ENODEV: no such device, or it is gone; -EOPNOTSUPP (or what the device says): it has no
    // such queue pairs; -EPERM without CAP_NET_RAW; -ENOMEM: RLIMIT_MEMLOCK is too small.
    [[nodiscard]] static int open(const core::RdmaPort &port, const RawQueueOptions &options,
                                  std::unique_ptr<RawQueue> &opened) noexcept;

    // Received frames, oldest first, as many as there are and fit; 0 at once if there are none. No system call.
    std::size_t receive(std::span<ReceivedFrame> burst) noexcept;
    // The frame is free again: to receive into with the next receive(); or, if take() gave it, to be taken.
    void release(FrameIndex frame) noexcept;
    void drive() noexcept { refill(); }
    // Who lends this part of a received frame; nullptr: nobody, it is none, or half of the frames are lent.
    LentFrames *lender_of(const std::uint8_t *data, std::size_t length) const noexcept
    {
        return memory_.lent && memory_.lent->may_lend(data, length) ? memory_.lent.get() : nullptr;
    }

    // A free frame to write into; kNoFrame: all are under way, try later.
    FrameIndex take() noexcept;
    std::span<std::uint8_t> bytes(FrameIndex frame) noexcept; // the whole of it
    // Queues a frame that take() gave; it comes back by itself when it is sent. True: there is always room for it.
    bool submit(FrameIndex frame, std::uint32_t length, const inet::FrameWork &work = {}) noexcept;
    // Gives what is queued to the device. -ENODEV: it is gone, and the frames are lost.
    int flush() noexcept;

    // Before a sleep on fd(), which frames make readable only after it. False: some are there already.
    bool arm() noexcept;
    // Interrupts of received frames are held back until there are so many, or for so many microseconds; both 0: not. 0
    // or negative errno, -EOPNOTSUPP where the device can't.
    int moderate(std::uint16_t frames, std::uint16_t microseconds) noexcept
    {
        return verbs::moderate_queue(receive_cq_.get(), frames, microseconds);
    }
    // Reads what the device has to tell. One system call.
    void follow() noexcept;

    int fd() const noexcept { return wait_set_.get(); }
    ibv_qp *qp() const noexcept { return qp_.get(); }
    ibv_pd *pd() const noexcept { return pd_.get(); }
    bool is_broken() const noexcept { return broken_; } // the device or the queue pair: frames neither come nor go
    bool has_stamps() const noexcept { return stamped_cq_ != nullptr; }
    ibv_context *context() const noexcept { return context_.get(); }
    const RawClock &clock() const noexcept { return clock_; } // of the stamps; it goes on with each
    // Of IPv4: IBV_SEND_IP_CSUM is not said to mean IPv6.
    inet::SendOffloads offloads() const noexcept { return {sends_checksums_, false, segment_limit_}; }
    const RawQueueCounters &counters() const noexcept { return counters_; }
    QueueState state() const noexcept;
    static void ask_kernel(QueueState &) noexcept {} // what the device drops it counts by itself

private:
    static constexpr std::uint32_t kBurst = 32; // completions that are read at a time

    // A work request of each frame, filled once: only lengths, flags and chains change.
    template <typename Request> struct Work {
        Request request;
        ibv_sge part;
    };
    template <typename Request> struct Chain {
        Request *first = nullptr;
        Request *last = nullptr;
    };

    // What is lent of it stays when the device and its registration are gone.
    struct FrameMemory {
        MemoryMap map;
        LentFrames::Owned lent; // nullptr: no memory for it, nothing is lent

        ~FrameMemory()
        {
            if (lent)
                lent->keep(std::move(map));
        }
    };

    int open_device(const core::RdmaPort &port, const RawQueueOptions &options) noexcept;
    void choose_offloads(const RawQueueOptions &options, const ibv_device_attr &plain,
                         const ibv_device_attr_ex &attr) noexcept;
    void start_clock(const ibv_device_attr_ex &attr) noexcept;
    int open_queues() noexcept;
    VerbsObject<ibv_cq> make_receive_cq() noexcept;
    VerbsObject<ibv_qp> make_qp(ibv_qp_init_attr &attr) noexcept;
    int start(std::uint8_t port) noexcept;
    int map_frames() noexcept;
    void fill_work() noexcept;
    template <typename Request> void fill(Work<Request> &work, FrameIndex frame) noexcept;
    int open_wait_set() noexcept;
    void fill_segments(Work<ibv_send_wr> &work, FrameIndex frame, const inet::FrameWork &left) noexcept;
    void refill() noexcept;
    void reap() noexcept;
    void poll() noexcept;
    void poll_stamped() noexcept;
    void break_down(const char *reason) noexcept;

    std::uint32_t receive_frames_ = 0;
    std::uint32_t send_frames_ = 0;
    std::uint32_t frame_size_ = 0;
    std::uint32_t send_frame_size_ = 0;
    std::uint32_t segment_limit_ = 0; // bytes of TCP data that the device takes at a time; 0: it cuts nothing
    bool sends_checksums_ = false;
    bool verifies_checksums_ = false;
    bool broken_ = false;
    bool armed_ = false;
    std::array<ibv_wc, kBurst> arrived_{}; // completions of receives that are not handed out yet: from next_ up to end_
    std::array<std::uint64_t, kBurst> stamped_at_{}; // theirs, where has_stamps(); ns
    std::uint32_t next_ = 0;
    std::uint32_t end_ = 0;
    std::uint32_t unsignalled_ = 0;
    Chain<ibv_recv_wr> given_back_;
    Chain<ibv_send_wr> queued_;
    std::unique_ptr<Work<ibv_recv_wr>[]> receive_work_;
    std::unique_ptr<Work<ibv_send_wr>[]> send_work_;
    std::unique_ptr<FrameIndex[]> free_; // frames to send
    std::uint32_t free_count_ = 0;
    std::unique_ptr<FrameIndex[]> under_way_; // a ring, in the order of submit(): from sent_ up to submitted_
    std::uint64_t sent_ = 0;
    std::uint64_t submitted_ = 0;
    RawQueueCounters counters_;

    FrameMemory memory_;
    VerbsObject<ibv_context> context_; // these go in the reverse order
    VerbsObject<ibv_pd> pd_;
    VerbsObject<ibv_mr> mr_;
    VerbsObject<ibv_comp_channel> channel_;
    VerbsObject<ibv_cq> receive_cq_;
    ibv_cq_ex *stamped_cq_ = nullptr; // the same, if its completions have times
    RawClock clock_;
    VerbsObject<ibv_cq> send_cq_;
    VerbsObject<ibv_qp> qp_;
    core::UniqueFd wait_set_; // epoll: the channel's and the device's events
};

} // namespace vma::ether
