// SPDX-License-Identifier: BSD-2-Clause
// Frames as a NIC's queue hands them out. All of a queue's frames are numbered; who has a number has the frame.
#pragma once

#include <cstdint>
#include <span>

namespace vma::ether {

using FrameIndex = std::uint32_t;
inline constexpr FrameIndex kNoFrame = ~FrameIndex{0};

// When a frame came, as the XDP program writes it before the frame's bytes. 0: not known.
struct FrameStamps {
    std::uint64_t arrived = 0;  // CLOCK_MONOTONIC, nanoseconds: when the driver gave it to the program
    std::uint64_t hardware = 0; // the device's own clock, nanoseconds
};

// How a queue is doing. Numbers since it was opened, but for what is now.
struct QueueState {
    std::uint64_t dropped = 0;     // frames lost before they were handed out, as far as the kernel says
    std::uint64_t no_frame = 0;    // times that the driver found no frame to receive into
    std::uint32_t waiting = 0;     // frames received and not handed out, now
    std::uint32_t frames = 0;      // to receive into
    std::uint32_t free = 0;        // of these, now
    std::uint32_t lent = 0;        // of these, now: to the program
    std::uint32_t send_frames = 0; //
    std::uint32_t send_free = 0;   // of these, now; those that were sent and not looked after are not
};

struct ReceivedFrame {
    FrameIndex
        index; // kNoFrame: it came in several buffers, and is ours until the next receive(); release() does nothing
    std::span<std::uint8_t> bytes; // from the Ethernet header on; ours until release() or submit()
    bool checksums_good = false;   // the device has verified those of IP and the transport
    FrameStamps stamps = {};
};

} // namespace vma::ether
