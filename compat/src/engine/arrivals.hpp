// SPDX-License-Identifier: BSD-2-Clause
// What a ring has for the datagrams that its polls take. Guarded by the ring's poll lock.
#pragma once

#include <cstdint>

namespace vma::sock::udp {

struct Direct; // state.hpp

struct Arrivals {
    Direct *direct = nullptr; // of the call that polls now
    std::uint32_t taken = 0;  // datagrams, ever
};

extern Arrivals g_main_arrivals; // those of the main ring, and of all ports

} // namespace vma::sock::udp
