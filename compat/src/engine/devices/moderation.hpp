// SPDX-License-Identifier: BSD-2-Clause
// Moderation of interrupts of the devices that reach other hosts (VMA_CQ_MODERATION_*), and its adaptation to the
// traffic (VMA_CQ_AIM_*): that of RDMA devices alone, as how many packets a port's stack takes is not told here.
#pragma once

#include <cstdint>

namespace vma::sock {

struct Device;

void moderate(Device &d); // one that was just opened; helper thread, offload lock held

// What the program asks for (vma_modify_ring()), instead of VMA_CQ_MODERATION_* and VMA_CQ_AIM_*, from now on: by all
// that are open, and that will be. Completions and us, 65535 at most: more is that. How many devices took it. Takes the
// offload lock.
unsigned moderate_as_asked(std::uint32_t completions, std::uint32_t period);

// Helper thread, offload lock held: looks at what has come since the last look, if it is time for one.
void adapt_moderation(std::uint32_t turns);

struct Moderation {
    std::uint16_t completions = 0;
    std::uint16_t period = 0; // us
    bool operator==(const Moderation &) const = default;
};

// What suits so many completions with so many bytes within so many milliseconds. libvma's rule (ring_simple.cpp): few
// packets a second, or small ones, want latency; else as many interrupts a second as VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC
// says.
Moderation fitting(std::uint64_t completions, std::uint64_t bytes, std::uint32_t milliseconds);

} // namespace vma::sock
