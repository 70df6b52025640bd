// SPDX-License-Identifier: BSD-2-Clause
// A child of vfork() runs in its parent's memory with descriptors of its own: what it closes, duplicates or opens must
// leave our tables alone. A thread remembers that it called vfork(); whether it is the child or the parent again is
// then seen by the process's id.
//
// A thread may have a table of descriptors of its own, too (unshare(2)): process.cpp's tables_part().
#pragma once

#include <atomic>

#include "compat/src/libc/this_thread.hpp"

namespace vma::libc {

// Both are set once, for good.
struct Tables {
    std::atomic<bool> may_differ{false}; // there was a vfork(), or `apart`
    std::atomic<bool> apart{false};      // threads have tables of their own, or are about to
};
[[gnu::visibility("hidden")]] extern constinit Tables g_tables; // read without a look for where it is

// A number that we know may be another file in the calling thread's table.
inline bool numbers_may_differ()
{
    return g_tables.may_differ.load(std::memory_order_relaxed);
}

inline bool tables_apart()
{
    return g_tables.apart.load(std::memory_order_relaxed);
}

void tables_come_apart(); // the number of no descriptor is told of the process's from here on

void entering_vfork(); // before the system call

bool look_for_vfork_child(); // slow half of in_vfork_child()

inline bool in_vfork_child()
{
    return t_libc.vfork_caller != 0 && look_for_vfork_child();
}

} // namespace vma::libc
