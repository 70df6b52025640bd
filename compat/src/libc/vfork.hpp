// SPDX-License-Identifier: BSD-2-Clause
// A child of vfork() runs in its parent's memory with descriptors of its own: what it closes, duplicates or opens must
// leave our tables alone. A thread remembers that it called vfork(); whether it is the child or the parent again is
// then seen by the process's id.
#pragma once

#include "compat/src/libc/this_thread.hpp"

namespace vma::libc {

void entering_vfork(); // before the system call

bool look_for_vfork_child(); // slow half of in_vfork_child()

inline bool in_vfork_child()
{
    return t_libc.vfork_caller != 0 && look_for_vfork_child();
}

} // namespace vma::libc
