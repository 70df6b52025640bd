// SPDX-License-Identifier: BSD-2-Clause
// Wakes the helper thread from a rest, in which it looks at nothing (engine/helper_rest.hpp).
#pragma once

#include <atomic>

#include "compat/src/base/process_words.hpp"

namespace vma::sock {

void end_rest();

// Something is due that is not to wait for the end of a rest. Any thread, whatever locks it has; asks for no memory.
inline void wake_resting_helper()
{
    if (g_process.rest.on.load(std::memory_order_seq_cst)) [[unlikely]]
        end_rest();
}

} // namespace vma::sock
