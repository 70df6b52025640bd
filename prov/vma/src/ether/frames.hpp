// SPDX-License-Identifier: BSD-2-Clause
// Frames as a port's queue hands them out. All of a queue's frames are numbered; who has a number has the frame.
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

struct ReceivedFrame {
    FrameIndex
        index; // kNoFrame: it came in several buffers, and is ours until the next receive(); release() does nothing
    std::span<std::uint8_t> bytes; // from the Ethernet header on; ours until release() or submit()
    bool checksums_good = false;   // the device has verified those of IP and the transport
    FrameStamps stamps = {};
};

} // namespace vma::ether
