// SPDX-License-Identifier: BSD-2-Clause
// The memory of rings that nobody uses. A ring keeps the pages that ever carried a byte; after two seconds in which none went through it
// they go back to the kernel, and come again, as zeros, when they are written to.
#pragma once

#include <cstdint>

namespace vma::sock {

class IdleStreams;
class Socket;

// Where a socket's streams were when it was last looked at, and when their pages were given back.
struct IdleMarks {
    std::uint64_t sent_seen = 0;
    std::uint64_t sent_given = 0;
    std::uint64_t read_seen = 0;
    std::uint64_t read_given = 0;
    std::uint64_t moved = 0; // bytes of both ways (idle_streams.cpp)
    std::uint32_t still = 0; // looks since then
};

// Looks at some of the sockets, and at all of them in so many of the helper thread's turns. Lift lock held.
void look_at_idle_rings(std::uint32_t turns_per_round, IdleStreams &idle);

// At one, which has an endpoint of this host. The second look that finds its streams where they were gives the pages back.
void look_at_idle_ring(Socket &s);

} // namespace vma::sock
