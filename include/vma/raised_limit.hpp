// SPDX-License-Identifier: BSD-2-Clause
// Descriptors of ours above the program's limit (RLIMIT_NOFILE), where it is a small one. The limit only says which
// numbers are given out: one above it is as good as any, and takes none of those that the program may have. So the
// limit is raised for as long as it takes to duplicate one. Numbers stay below 1024, so that the kernel's table of
// descriptors, which is as long as the highest one, costs little.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace vma {

inline constexpr rlim_t kSmallLimit = 1024; // the common one, and what select() can name
inline constexpr rlim_t kRoomAbove = 128;   // numbers that are kept for ours below that

// All zero where the kernel doesn't say.
inline rlimit limit_of_descriptors()
{
    rlimit limit = {};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit : rlimit{};
}

// The limit, where it need not be asked for each time: of one that isn't small it only matters that it isn't. That it
// has been lowered in the meantime shows in the first number that the kernel refuses, or, where it is still above those
// that we ask for, when it has no more of them. Any thread.
class NotedLimit
{
public:
    // duplicate(limit) is tried with {kSmallLimit, kSmallLimit} in place of one that isn't small. read() is
    // limit_of_descriptors().
    template <typename Read, typename Duplicate> int with(Read read, Duplicate duplicate)
    {
        if (is_common_.load(std::memory_order_relaxed)) {
            const int made = duplicate(rlimit{kSmallLimit, kSmallLimit});
            if (made >= 0 || (errno != EINVAL && errno != EMFILE))
                return made;
        }
        const rlimit limit = read();
        is_common_.store(limit.rlim_cur >= kSmallLimit, std::memory_order_relaxed);
        return duplicate(limit);
    }

private:
    std::atomic<bool> is_common_{false};
};

// The number that duplicate(lowest) makes, or -1 where nothing is to be gained or done. prlimit(new, old) is
// prlimit(2) of this process and RLIMIT_NOFILE. Another thread may set the limit in the meantime: its limit stays. What
// another thread opens or spawns in that moment has the raised one; who forks puts it back in the child.
template <typename Prlimit, typename Duplicate>
int duplicate_above(const rlimit &limit, Prlimit prlimit, Duplicate duplicate)
{
    const rlimit raised = {std::min(kSmallLimit, limit.rlim_max), limit.rlim_max};
    if (limit.rlim_cur >= raised.rlim_cur)
        return -1;
    rlimit before = {};
    if (prlimit(&raised, &before) != 0)
        return -1;
    const rlim_t high = raised.rlim_cur > kRoomAbove ? raised.rlim_cur - kRoomAbove : 0;
    const int made = duplicate(static_cast<int>(std::max(limit.rlim_cur, high)));
    rlimit found = {};
    prlimit(&before, &found);
    if (found.rlim_cur != raised.rlim_cur || found.rlim_max != raised.rlim_max)
        prlimit(&found, nullptr);
    return made;
}

} // namespace vma
