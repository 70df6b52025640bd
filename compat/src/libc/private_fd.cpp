// SPDX-License-Identifier: BSD-2-Clause
// Where our own descriptors live: just below the program's limit, yet never so high that the kernel's table of
// descriptors, which is as long as the highest one, would cost memory; above a limit that is small.
#include "compat/src/libc/private_fd.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "include/vma/raised_limit.hpp"

namespace vma::libc {

[[VMA_TABLE]] constinit Private g_private;

namespace {

int set_limit(const rlimit *now, rlimit *before)
{
    return static_cast<int>(real.syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, now, before));
}

int below_limit(const rlimit &limit)
{
    const int top = static_cast<int>(std::min(limit.rlim_cur, kSmallLimit));
    const int room = static_cast<int>(kRoomAbove);
    return top > 2 * room ? top - room : top / 2;
}

// While this thread may have the limit raised.
class Raising
{
public:
    explicit Raising(rlim_t instead_of) : raises_(instead_of < kSmallLimit) // else another thread may have, just now
    {
        if (!raises_)
            return;
        g_private.limit.store(instead_of, std::memory_order_relaxed);
        g_private.raised_by.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Raising() // a handler may have forked meanwhile, and this be the child
    {
        if (!raises_)
            return;
        unsigned by = g_private.raised_by.load(std::memory_order_relaxed);
        while (by != 0 && !g_private.raised_by.compare_exchange_weak(by, by - 1, std::memory_order_seq_cst)) {
        }
    }
    Raising(const Raising &) = delete;
    Raising &operator=(const Raising &) = delete;

private:
    bool raises_;
};

int duplicate_high(int fd, const rlimit &limit)
{
    const auto duplicate = [=](int lowest) { return real.fcntl(fd, F_DUPFD_CLOEXEC, lowest); };
    const Raising noted(limit.rlim_cur);
    const int above = duplicate_above(limit, set_limit, duplicate);
    return above >= 0 ? above : duplicate(std::max(below_limit(limit), 3));
}

} // namespace

void limit_after_fork_in_child()
{
    rlimit now = {};
    if (g_private.raised_by.exchange(0, std::memory_order_seq_cst) == 0 || ::getrlimit(RLIMIT_NOFILE, &now) != 0)
        return;
    const rlim_t before = g_private.limit.load(std::memory_order_relaxed);
    if (now.rlim_cur != std::min(kSmallLimit, now.rlim_max) || before >= now.rlim_cur)
        return;
    now.rlim_cur = before;
    set_limit(&now, nullptr);
}

int next_private(unsigned from, unsigned last)
{
    if (g_private.provider_owns.load(std::memory_order_acquire) == nullptr)
        return g_private.ours.next(from, last);
    for (unsigned fd = from; fd <= last && fd < static_cast<unsigned>(kMaxPrivate); ++fd)
        if (is_private(static_cast<int>(fd)))
            return static_cast<int>(fd);
    return -1;
}

int refused_duplicate(int old_fd, int private_fd)
{
    rlimit limit = {};
    const bool beyond = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(private_fd) >= limit.rlim_cur;
    return beyond || real.fcntl(old_fd, F_GETFD) < 0 ? EBADF : EBUSY;
}

int make_private(int fd)
{
    int moved = g_private.limit_noted.with(limit_of_descriptors,
                                           [fd](const rlimit &limit) { return duplicate_high(fd, limit); });
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
