// SPDX-License-Identifier: BSD-2-Clause
// The instructions of the XDP program. Apart from its loading, so that they can be read in one piece.
#pragma once

#include "ether/xdp/assembler.hpp"

namespace vma::ether {

// Descriptors of the maps it uses.
struct SteeringMaps {
    int flows;
    int addresses;
    int sockets;
    int counters;
    int queue_bits = 6; // the index of a socket: these bits are the queue, those above the flow's value
};

// The counters' fields, 64 bits each, in the one value of their map.
inline constexpr int kHitsAt = 0;
inline constexpr int kPassesAt = 8;
inline constexpr int kErrorsAt = 16;
inline constexpr int kCountersSize = 24;

// Whether it writes FrameStamps before the frames that it takes, and by which function of the kernel (its BTF id) it
// asks the device for its own; 0: not at all.
struct SteeringStamps {
    bool wanted = false;
    std::int32_t hardware_function = 0;
};

void assemble_steering(Assembler &code, const SteeringMaps &maps, const SteeringStamps &stamps = {});

} // namespace vma::ether
