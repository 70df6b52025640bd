// SPDX-License-Identifier: BSD-2-Clause
// Whether the process is under a filter of system calls that leaves the library nothing to do (engine/sandbox.hpp).
#pragma once

#include "compat/src/base/process_words.hpp"

namespace vma::sock {

inline bool sandboxed()
{
    return g_process.sandboxed.load(std::memory_order_relaxed);
}

// Before the first socket: the filters that the program was started under, as far as is known.
void remember_inherited_filters();

// Before something is opened that acceleration needs, with the offload lock held: looks at the filters of this thread.
// False: not here; said in the log, once.
bool filters_allow();

} // namespace vma::sock
