// SPDX-License-Identifier: BSD-2-Clause
// What the kernel knows of a running process's sockets: addresses, state and queues, which the process itself needn't
// be asked for, nor has to keep. Needs the right to look at the process; without it, or when it is dead, facts are as
// its file has them.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <vector>

#include "util/vma_stats/snapshot.hpp"

namespace vma_stats {

// Completes the facts of all sockets; where nothing can be known they stay as they are.
void ask_kernel(Snapshot &s);

struct Queues {
    std::uint64_t receive = 0; // bytes
    std::uint64_t send = 0;
};

struct KernelSocket {
    std::uint64_t inode = 0;
    std::uint8_t protocol = 0; // IPPROTO_TCP, IPPROTO_UDP
    std::uint8_t state = 0;    // of the kernel's numbers
    bool v6 = false;
    in6_addr local = {}; // IPv4 as ::ffff:a.b.c.d
    in6_addr peer = {};
    std::uint16_t local_port = 0; // host byte order
    std::uint16_t peer_port = 0;  // 0: it has no peer
    Queues queues;
};
// All TCP and UDP sockets that have an inode in the network namespace of this process; none where it can't be looked
// at.
std::vector<KernelSocket> sockets_in_namespace_of(pid_t pid);

// Of sockets that are not accelerated, as of the last ask_kernel().
Queues kernel_queues(std::uint64_t inode);

} // namespace vma_stats
