// SPDX-License-Identifier: BSD-2-Clause
// Where our own descriptors live: just below the program's limit, yet never so high that the kernel's table of
// descriptors, which is as long as the highest one, would cost memory.
#include "compat/src/libc/private_fd.hpp"

#include <sys/resource.h>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::libc {

[[VMA_TABLE]] constinit Private g_private;

namespace {

constexpr int kCeiling = 1024; // the common limit, and what select() can name
constexpr int kRoom = 128;

int first_number()
{
    rlimit limit;
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 3;
    const int top = limit.rlim_cur < kCeiling ? static_cast<int>(limit.rlim_cur) : kCeiling;
    return top > 2 * kRoom ? top - kRoom : top / 2;
}

} // namespace

int next_private(unsigned from, unsigned last)
{
    if (g_private.provider_owns.load(std::memory_order_acquire) == nullptr)
        return g_private.ours.next(from, last);
    for (unsigned fd = from; fd <= last && fd < static_cast<unsigned>(kMaxPrivate); ++fd)
        if (is_private(static_cast<int>(fd)))
            return static_cast<int>(fd);
    return -1;
}

int make_private(int fd)
{
    int moved = real.fcntl(fd, F_DUPFD_CLOEXEC, first_number());
    if (moved >= 0)
        uncancelled::close(fd);
    else
        moved = fd;
    g_private.ours.add(moved);
    return moved;
}

void close_private(int fd)
{
    if (fd < 0)
        return;
    g_private.ours.remove(fd);
    uncancelled::close(fd);
}

} // namespace vma::libc
