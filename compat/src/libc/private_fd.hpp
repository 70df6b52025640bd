// SPDX-License-Identifier: BSD-2-Clause
// Descriptors of our own. They get high numbers, so that the program's are what they would be without us, and the
// program can't close them: what it closes without having opened (closefrom(3) of a daemon) leaves them open.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/libc/descriptor_map.hpp"
#include "include/vma/raised_limit.hpp"

namespace vma::libc {

inline constexpr int kMaxPrivate = 1 << 16;

// What is ours and the provider's, and none of the program's. Atomic.
struct Private {
    // Where the provider's code is; nowhere until it is loaded. Set once (provider_text.hpp).
    std::atomic<std::uintptr_t> provider_start{0};
    std::atomic<std::uintptr_t> provider_end{0};
    // Asks the provider, once it is loaded, which descriptors are its own. It gives one up before it closes it.
    std::atomic<int (*)(int fd)> provider_owns{nullptr};
    // How many threads are about to raise the program's limit, have it raised, or have just put it back; what it was.
    std::atomic<unsigned> raised_by{0};
    std::atomic<std::uint64_t> limit{0};
    NotedLimit limit_noted;
    DescriptorMap<kMaxPrivate> ours;
};
extern Private g_private;

inline bool is_private(int fd)
{
    int (*const owns)(int) = g_private.provider_owns.load(std::memory_order_acquire);
    return g_private.ours.has(fd) || (owns != nullptr && owns(fd) != 0);
}

// The lowest private number from `from` to `last`, or -1.
int next_private(unsigned from, unsigned last);

// What dup2() to a private number says: EBADF where the program has no such number, by its limit, else EBUSY.
int refused_duplicate(int old_fd, int private_fd);

// Moves `fd` to a high number and returns that, close-on-exec; keeps its number if there is no better one.
int make_private(int fd);

// In the child of a fork: the limit that another thread had raised is put back.
void limit_after_fork_in_child();

// Closes it.
void close_private(int fd);

// It becomes the provider's.
inline void disown_private(int fd)
{
    g_private.ours.remove(fd);
}

} // namespace vma::libc
