// SPDX-License-Identifier: BSD-2-Clause
// What the helper thread remembers of a socket to see that it is idle (transport/idle.hpp).
#pragma once

#include <cstdint>

namespace vma::sock {

// Where a socket's streams were when it was last looked at, and when their pages were given back.
struct IdleMarks {
    std::uint64_t sent_seen = 0;
    std::uint64_t sent_given = 0;
    std::uint64_t read_seen = 0;
    std::uint64_t read_given = 0;
    std::uint64_t moved = 0; // bytes of both ways (idle_streams.cpp)
    std::uint32_t still = 0; // looks since then
};

} // namespace vma::sock
