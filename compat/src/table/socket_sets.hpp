// SPDX-License-Identifier: BSD-2-Clause
// Which places of the pool are in use, and which of them a fork, an exec or the process's end has to look at: a bit
// each. A program has ten thousand connections of which it never offloaded one, and a look at each costs some cache
// misses.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/libc/descriptor_map.hpp"
#include "compat/src/libc/thread_key.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

using SocketSet = libc::DescriptorMap<kMaxTracked>; // of indices

inline constexpr std::uint32_t kChunkSockets = 256; // whose addresses are had at once

// The pool, and what is kept of its places beside the sockets.
struct Sockets {
    SocketSet open;              // in use; changed with the pool's lock held
    SocketSet noted;             // in use, and something more than a stream that was on the kernel all the time; atomic
    alignas(64) Mutex lock;      // the pool's
    Socket *free_list = nullptr; // its lock
    std::atomic<int> above_fds{0}; // of those that are tracked, or were
    Mutex facts_lock;              // of what is told of a socket in several words (accounting.cpp)
    libc::ThreadKey calls;         // to end those of a thread that ends (calls.cpp); atomic
    alignas(64) std::atomic<Stream *> chunks[kMaxTracked / kChunkSockets] = {}; // the pool's lock, and read without
};
extern constinit Sockets g_sockets;

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
