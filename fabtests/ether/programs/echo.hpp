// SPDX-License-Identifier: BSD-2-Clause
// Turning a UDP frame round in place: the answer to its sender, with a checksum of our own. For the programs of this
// folder, which have no stack.
#pragma once

#include <cstdint>
#include <span>

namespace fabtest {

// False, and the frame as it was, unless it is a whole UDP datagram over IPv4 without options or IPv6.
bool turn_round(std::span<std::uint8_t> frame);

} // namespace fabtest
