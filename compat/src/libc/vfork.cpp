// SPDX-License-Identifier: BSD-2-Clause
// Tells a child of vfork() from its parent, and remembers that threads have tables of their own.
#include "compat/src/libc/vfork.hpp"

#include <unistd.h>

#include "compat/src/libc/sections.hpp"

namespace vma::libc {

constinit Tables g_tables;

void tables_come_apart()
{
    g_tables.may_differ.store(true, std::memory_order_seq_cst);
    g_tables.apart.store(true, std::memory_order_seq_cst);
}

void entering_vfork()
{
    g_tables.may_differ.store(true, std::memory_order_relaxed);
    if (!in_vfork_child()) // a child that calls vfork() again stays a child
        t_libc.vfork_caller = ::getpid();
}

[[VMA_AT_STARTUP]] bool look_for_vfork_child()
{
    if (::getpid() != t_libc.vfork_caller)
        return true;
    t_libc.vfork_caller = 0;
    return false;
}

} // namespace vma::libc
