// SPDX-License-Identifier: BSD-2-Clause
// A full fence for rare paths that also ThreadSanitizer understands: of two threads that pass here, the second sees all
// that the first had stored.
#pragma once

#include <atomic>

namespace vma::mux {

inline constinit std::atomic<unsigned> g_fence{0};

inline void full_fence()
{
    g_fence.fetch_add(1, std::memory_order_seq_cst);
}

} // namespace vma::mux
