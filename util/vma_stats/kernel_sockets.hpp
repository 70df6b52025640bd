// SPDX-License-Identifier: BSD-2-Clause
// What the kernel knows of a running process's sockets: addresses, state and queues, which the process itself needn't
// be asked for, nor has to keep. Needs the right to look at the process; without it, or when it is dead, facts are as
// its file has them.
#pragma once

#include <sys/types.h>

#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

// Completes the facts of all sockets; where nothing can be known they stay as they are.
void ask_kernel(Snapshot &s);

struct Queues {
    std::uint64_t receive = 0; // bytes
    std::uint64_t send = 0;
};
// Of sockets that are not accelerated, as of the last ask_kernel().
Queues kernel_queues(std::uint64_t inode);

} // namespace vma_stats
