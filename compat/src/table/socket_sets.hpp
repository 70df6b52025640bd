// SPDX-License-Identifier: BSD-2-Clause
// Which places of the pool are in use, and which of them a fork, an exec or the process's end has to look at: a bit
// each. A program has ten thousand connections of which it never offloaded one, and a look at each costs some cache
// misses.
#pragma once

#include <cstdint>

#include "compat/src/libc/descriptor_map.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

using SocketSet = libc::DescriptorMap<kMaxTracked>; // of indices

struct SocketSets {
    SocketSet open;  // in use; changed with the pool's lock held
    SocketSet noted; // in use, and something more than a stream that was on the kernel all the time; atomic
};
extern SocketSets g_sockets;

std::uint32_t pool_size();

// Before a socket gets what a kernel-only stream doesn't have: an offer, an endpoint, unread bytes that others share.
inline void note_socket(std::uint32_t index)
{
    if (!g_sockets.noted.has(static_cast<int>(index)))
        g_sockets.noted.add(static_cast<int>(index));
}

// Those that come while it goes on may be left out.
template <typename Visit> void each_index(const SocketSet &set, Visit visit)
{
    const std::uint32_t count = pool_size();
    for (int i = 0; count != 0 && (i = set.next(static_cast<unsigned>(i), count - 1)) >= 0; ++i)
        visit(static_cast<std::uint32_t>(i));
}

} // namespace vma::sock
