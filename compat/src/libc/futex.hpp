// SPDX-License-Identifier: BSD-2-Clause
// futex(2) on a word: threads sleep until it may have changed. No cancellation point, and past the program's wrappers.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "compat/src/libc/real.hpp"

namespace vma::libc {

// As long as it is `value`, at most for `limit` (nullptr: no limit); also returns for no reason.
inline void futex_wait(std::atomic<std::uint32_t> &word, std::uint32_t value, const timespec *limit = nullptr)
{
    real.syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAIT_PRIVATE, value, limit, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t> &word, int threads = INT_MAX)
{
    real.syscall(SYS_futex, reinterpret_cast<std::uint32_t *>(&word), FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// The same on a word that processes share.
inline void futex_wait_shared(const std::uint32_t &word, std::uint32_t value, const timespec *limit)
{
    real.syscall(SYS_futex, &word, FUTEX_WAIT, value, limit, nullptr, 0);
}

inline void futex_wake_shared(std::uint32_t &word)
{
    real.syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace vma::libc
