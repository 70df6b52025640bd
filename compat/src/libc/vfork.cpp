// SPDX-License-Identifier: BSD-2-Clause
// Tells a child of vfork() from its parent.
#include "compat/src/libc/vfork.hpp"

#include <unistd.h>

#include "compat/src/libc/sections.hpp"

namespace vma::libc {

void entering_vfork()
{
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
