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

enum class Turn {
    kNotNow,    // another thread has the lock, or forks
    kTaken,     // it was done
    kStaysAsIs, // it was not: beside a ring of io_uring, or under a filter of system calls, that was not seen before
};

template <typename What> Turn do_in_turn(What &&what)
{
    if (!g_offload.lock.try_lock())
        return Turn::kNotNow;
    Turn turn = Turn::kNotNow;
    if (g_forks.gate.try_lock()) {
        turn = meets_filter() ? Turn::kStaysAsIs : Turn::kTaken; // first: all else makes more calls
        if (turn == Turn::kTaken)
            g_engine_tables.stack.run(what);
        g_forks.gate.unlock();
    }
    g_offload.lock.unlock();
    return turn;
}

// The same, and once more where it has found a library missing that is loaded then. Not now while the provider is, too.
template <typename What> Turn open_in_turn(What &&what, Patience patience)
{
    if (is_loading_still(patience)) [[unlikely]]
        return Turn::kNotNow;
    Turn turn = do_in_turn(what);
    if (load_what_is_wanted(patience)) [[unlikely]]
        turn = do_in_turn(what);
    if (turn == Turn::kStaysAsIs) [[unlikely]]
        stay_in_sandbox();
    return turn;
}

} // namespace vma::sock
