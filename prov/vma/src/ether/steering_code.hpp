// SPDX-License-Identifier: BSD-2-Clause
// The instructions of the XDP program. Apart from its loading, so that they can be read in one piece.
#pragma once

#include "ether/assembler.hpp"

namespace vma::ether {

// Descriptors of the maps it uses.
struct SteeringMaps {
    int flows;
    int addresses;
    int sockets;
    int counters;
};

// The counters' fields, 64 bits each, in the one value of their map.
inline constexpr int kHitsAt = 0;
inline constexpr int kPassesAt = 8;
inline constexpr int kErrorsAt = 16;
inline constexpr int kCountersSize = 24;

void assemble_steering(Assembler &code, const SteeringMaps &maps);

} // namespace vma::ether
