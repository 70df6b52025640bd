// SPDX-License-Identifier: BSD-2-Clause
// What opens something of the provider's does it in its turn: with the offload lock, while nobody forks, under no
// filter of system calls that was not seen before, and on the deep stack. No lock is held before.
#pragma once

#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/tables.hpp"

namespace vma::sock {

// Not at all where another thread has the lock, or forks. True: it was not done, as there is such a filter.
template <typename What> bool do_in_turn(What &&what)
{
    if (!g_offload.lock.try_lock())
        return false;
    bool met = false;
    if (g_forks.gate.try_lock()) {
        met = meets_filter(); // first: all else makes more calls, the change of stacks too
        if (!met)
            g_engine_tables.stack.run(what);
        g_forks.gate.unlock();
    }
    g_offload.lock.unlock();
    return met;
}

// The same, and once more where it has found a library missing that is loaded then. Not at all while the provider is.
template <typename What> void open_in_turn(What &&what, Patience patience)
{
    if (is_loading_still(patience)) [[unlikely]]
        return;
    bool met = do_in_turn(what);
    if (load_what_is_wanted(patience)) [[unlikely]]
        met = do_in_turn(what);
    if (met) [[unlikely]]
        stay_in_sandbox();
}

} // namespace vma::sock
