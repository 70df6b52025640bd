// SPDX-License-Identifier: BSD-2-Clause
// What the AF_XDP sockets of one queue are made of: the memory of its frames, and a socket for each process that may
// share it. Whoever makes them gives descriptors of all to the others: doc/shared-port.md.
#pragma once

#include <cerrno>
#include <cstdint>
#include <vector>

#include "core/fd.hpp"
#include "core/kernel.hpp"
#include "ether/nic/memory_map.hpp"
#include "ether/xdp/frame_pool.hpp"

namespace vma::ether {

struct XdpSocketOptions {
    std::uint32_t receive_frames = 2048; // each a power of two: the frames, and the XDP rings' sizes
    std::uint32_t send_frames = 2048;
    std::uint32_t frame_size = 2048;  // bytes of a buffer, 2048 or 4096 (a page is the most without huge ones)
    std::uint32_t longest_sent = 0;   // bytes of a frame; where a buffer is shorter a frame to send has several of them
    bool several_buffers = true;      // frames of several buffers, where the kernel can (Linux 6.6)
    bool zero_copy = true;            // where the driver can, else the kernel copies
    bool offloads = true;             // frames to send have room for metadata before them, where the kernel knows it
    std::uint32_t busy_poll_usec = 0; // 0: off. Linux 5.11 and sysctls: see doc/raw-ethernet.md
    std::uint32_t busy_poll_budget = 64; // frames a call
    unsigned places = 1; // processes that may share the queue, 1 to kMostPlaces. More than one: rings are shorter, and
                         // there are frames for the rings of all, so that one that stops takes nobody else's
};

// Plain numbers: they lie in memory that the processes share.
struct QueueFacts {
    FramePoolSize size;
    std::uint32_t queue = 0;
    std::uint32_t receive_ring = 0; // entries
    std::uint32_t send_ring = 0;
    std::uint32_t fill_ring = 0;
    std::uint32_t completion_ring = 0;
    std::uint32_t lendable = 0;    // frames that programs may have on loan, all together
    std::uint32_t kept = 0;        // frames to send that a process holds without need, at most
    std::uint32_t send_offset = 0; // of a frame to send in its buffer: there is metadata before it
    bool zero_copy = false;
    bool several = false;

    std::size_t bytes() const noexcept
    {
        return (size.receive + std::size_t{size.send} * size.send_buffers) * size.frame_size;
    }
};

struct QueueParts {
    QueueFacts facts;
    core::UniqueFd memory; // of the frames, a memfd; none: they lie in `frames`
    MemoryMap frames;
    MemoryMap own_pool; // of a queue with one place
    void *pool = nullptr;
    std::vector<core::UniqueFd> sockets; // by place; the first has the rings that all share
    bool fresh = false;                  // the pool has not begun
};

inline constexpr std::uint32_t kFewSendFrames = 64; // of a queue that nothing is sent by

// Rings that a process maps: those of one place, and those that all places of a queue share.
struct PlaceRings {
    MemoryMap memory[2];
    XdpRing<xdp_desc> received;
    XdpRing<xdp_desc> queued;
};
struct SharedRings {
    MemoryMap memory[2];
    XdpRing<std::uint64_t> fill;
    XdpRing<std::uint64_t> completed;
};
// 0 or negative errno: -EOPNOTSUPP, Linux before 5.4; those of mmap().
[[nodiscard]] int map_place(const QueueParts &parts, unsigned place, PlaceRings &mapped) noexcept;
[[nodiscard]] int map_shared(const QueueParts &parts, SharedRings &mapped) noexcept;
// Memory of a descriptor that others have too, without a part in forked children: a child's mapping would keep the
// socket, and so the queue, after our end. Empty, with errno.
[[nodiscard]] MemoryMap map_shared_memory(int fd, std::size_t bytes, std::uint64_t where = 0) noexcept;

// Of a socket. 0 or a negative errno.
template <typename T> [[nodiscard]] int set_option(int fd, int level, int option, const T &value) noexcept
{
    return core::kernel::setsockopt(fd, level, option, &value, sizeof value) == 0 ? 0 : -errno;
}

// Sizes as the options ask for: -EINVAL where they are no sizes. What a queue turns out to be is filled in by make().
[[nodiscard]] int plan_queue(unsigned queue, const XdpSocketOptions &options, QueueFacts &facts) noexcept;

// `parts` has the facts of plan_queue(), and the pool's memory, zeroed, where there are several places. Negative errno
// as XdpSocket::open().
[[nodiscard]] int make_queue(unsigned interface, const XdpSocketOptions &options, QueueParts &parts) noexcept;

// Binds the socket of a place that is taken, not before: the kernel lets go of each bound one after a grace period of
// RCU, some 12 ms, and the last process's end would take that for each place. 0 or negative errno.
[[nodiscard]] int bind_place(unsigned interface, const QueueParts &parts, unsigned place) noexcept;

} // namespace vma::ether
