// SPDX-License-Identifier: BSD-2-Clause
// The memory of rings that nobody uses. A ring keeps the pages that ever carried a byte; after two seconds in which
// none went through it they go back to the kernel, and come again, as zeros, when they are written to.
#pragma once

#include <cstdint>

#include "compat/src/table/idle_marks.hpp"

namespace vma::sock {

class IdleStreams;
class Stream;

// Looks at some of the sockets, and at all of them in so many of the helper thread's turns. Offload lock held.
void look_at_idle_rings(std::uint32_t turns_per_round, std::uint32_t &next, IdleStreams &idle);

// At one, which has an endpoint of this host. The second look that finds its streams where they were gives the pages
// back.
void look_at_idle_ring(Stream &s);

} // namespace vma::sock
