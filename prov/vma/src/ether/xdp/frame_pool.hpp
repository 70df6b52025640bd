// SPDX-License-Identifier: BSD-2-Clause
// The frames of one queue, as the processes share them that have sockets on it: which are free, who holds the others,
// and the two rings that the kernel has one of for all (fill, completion). What a process held that has died is found
// again, whatever it was doing: doc/shared-port.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <linux/if_xdp.h>
#include <span>

#include "ether/nic/frames.hpp"
#include "ether/xdp/ring.hpp"

namespace vma::ether {

inline constexpr unsigned kMostPlaces = 32; // processes that share a queue; each has a place

struct FramePoolSize {
    std::uint32_t receive = 0;      // frames, a buffer each: those below this number
    std::uint32_t send = 0;         // frames; their buffers are behind, side by side
    std::uint32_t send_buffers = 1; // of a frame
    std::uint32_t frame_size = 0;   // bytes of a buffer
};

// The owner of a place calls what is not recover(): one thread at a time. The memory is shared with processes of this
// user that may open the interface as we may; what they write is trusted, as the kernel's rings are.
class FramePool
{
public:
    static std::size_t bytes(const FramePoolSize &size) noexcept; // of the shared memory, a multiple of 64

    FramePool() noexcept = default;
    // `memory` is zeroed before the first one of all processes is made; it is aligned to 64 bytes, and outlives this.
    FramePool(void *memory, const FramePoolSize &size, unsigned place) noexcept;
    // The rings of the kernel, as this process has mapped them.
    void use(const XdpRing<std::uint64_t> &fill, const XdpRing<std::uint64_t> &completed) noexcept;
    // All frames are free from here on. Once, by who made the memory.
    void begin() noexcept;

    bool is_receive_frame(FrameIndex frame) const noexcept { return frame < size_.receive; }
    std::uint32_t buffers() const noexcept { return size_.receive + size_.send * size_.send_buffers; }
    std::uint64_t address(FrameIndex buffer) const noexcept { return std::uint64_t{buffer} * size_.frame_size; }

    // It is this process's: the kernel has given it, by a ring that is ours alone.
    void hold(FrameIndex buffer) noexcept { holders_[buffer].store(mine_, std::memory_order_relaxed); }
    // It is in our send ring, which is written up to that position now; `further` buffers of it follow its first.
    void note_queued(FrameIndex frame, std::uint32_t position, std::uint32_t further) noexcept;

    // Received frames that we held are the kernel's again. False: another process is at it, they are still ours.
    [[nodiscard]] bool put_back(std::span<const FrameIndex> frames) noexcept;
    // The kernel gets more to receive into, where others hold so much that it runs short.
    void top_up() noexcept;
    bool is_short() const noexcept
    {
        return fill_.level() < fill_.size() / 2 && shared_->receive_free.load(std::memory_order_relaxed) != 0;
    }
    // Frames to send become ours, of which we hold `held` already in `frames`: those that were sent, and if there are
    // none, free ones. How many we hold now. Received frames that were sent are the kernel's again.
    std::size_t take(std::span<FrameIndex> frames, std::size_t held) noexcept;
    std::size_t reap(std::span<FrameIndex> frames, std::size_t held) noexcept; // likewise, only those that were sent
    bool has_completed() const noexcept { return completed_.level() != 0; }
    [[nodiscard]] bool give_back(std::span<const FrameIndex> frames) noexcept; // likewise, frames to send

    // So many of the frames that we hold are on loan to the program. How many the programs of others have.
    std::uint32_t note_lent(std::uint32_t count) noexcept;

    const XdpRing<std::uint64_t> &fill() const noexcept { return fill_; }
    std::uint32_t free_to_receive() const noexcept; // with those that the kernel receives into next
    std::uint32_t free_to_send() const noexcept;

    // What the process at `place` held, which is dead or leaves, is free again; its rings are mapped here, and nobody
    // else uses them. `dead`: a bit for each place whose process is, as who holds the lock may be another one of them.
    // False: somebody who lives keeps the lock for too long.
    struct Estate {
        unsigned place;
        XdpRing<xdp_desc> *received;
        XdpRing<xdp_desc> *queued;
    };
    [[nodiscard]] bool recover(const Estate &estate, std::uint32_t dead) noexcept;

private:
    using Holder = std::uint8_t; // 0: nobody of us; else the number of the place + 1, with kQueued
    static constexpr Holder kQueued = 0x80;
    static constexpr std::uint32_t kMostReaped = 64;

    // In shared memory. All but `written` is under the lock.
    struct Shared {
        std::atomic<std::uint32_t> lock; // 0, or the holder's place + 1
        std::atomic<std::uint32_t> receive_free;
        std::atomic<std::uint32_t> send_free;
        std::atomic<std::uint32_t> lent; // by all places; without the lock
        // What is being done to a ring of the kernel's, so that another can end it.
        // Not 0: to the fill ring, from this position on. How many, and in the low byte whose they are until then.
        std::atomic<std::uint32_t> publishing;
        std::atomic<std::uint32_t> publishing_from;
        std::atomic<std::uint32_t> reaping; // not 0: out of the completion ring, from this position on
        std::atomic<std::uint32_t> reaping_from;
        std::atomic<std::uint32_t> reaped_count;
        std::atomic<std::uint32_t> reaped_done;
        std::atomic<std::uint32_t> reaping_further; // its number + 1 and, in the low half, what is in unsent_ before it
        std::atomic<std::uint32_t> reaped[kMostReaped];
        struct alignas(64) Place {
            std::atomic<std::uint32_t> written; // its send ring, up to this position
            std::atomic<std::uint32_t> lent;
        };
        Place places[kMostPlaces];
    };
    class Marks;

    bool try_lock() noexcept;
    bool lock(std::uint32_t dead) noexcept;
    void unlock() noexcept { shared_->lock.store(0, std::memory_order_release); }
    void publish(std::span<const FrameIndex> frames) noexcept;
    void push(FrameIndex frame) noexcept;
    FrameIndex pop(std::atomic<std::uint32_t> &count, const std::atomic<std::uint32_t> *stack) noexcept;
    std::size_t reap_locked(std::span<FrameIndex> frames, std::size_t held) noexcept;
    FrameIndex settle(std::uint32_t number) noexcept;
    FrameIndex first_buffer(std::uint64_t address) const noexcept;
    void finish_for_the_dead() noexcept;
    void mark_free(Marks &marks) const noexcept;
    void hold_estate(const Estate &estate, Holder theirs) noexcept;

    Shared *shared_ = nullptr;
    std::atomic<std::uint32_t> *receive_stack_ = nullptr;
    std::atomic<std::uint32_t> *send_stack_ = nullptr;
    std::atomic<Holder> *holders_ = nullptr;      // of each buffer; of a frame to send, its first one's counts
    std::atomic<std::uint8_t> *unsent_ = nullptr; // of each frame's first buffer: further ones that are not sent yet
    FramePoolSize size_;
    unsigned place_ = 0;
    Holder mine_ = 0;
    XdpRing<std::uint64_t> fill_;
    XdpRing<std::uint64_t> completed_;
};

} // namespace vma::ether
