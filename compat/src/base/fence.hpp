// SPDX-License-Identifier: BSD-2-Clause
// Orders between threads that no single word carries: doc/memory-order.md has each pair. What x86-64 does anyway costs
// no instruction there. ThreadSanitizer knows no fences, and needs none of these: none is all that keeps data apart.
#pragma once

#include <atomic>

namespace vma::sock {

// Behind a store, an exchange or an addition with memory_order_seq_cst, which is a locked instruction on x86-64, and
// before a load that is to see what another thread has stored, or be what that one's own look comes after.
inline void fence_after_exchange()
{
#if defined(__x86_64__) || defined(__SANITIZE_THREAD__)
    std::atomic_signal_fence(std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Who sees one of the stores behind it, in another process perhaps, sees those before it.
inline void fence_between_stores()
{
#if defined(__SANITIZE_THREAD__)
    std::atomic_signal_fence(std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_release);
#endif
}

} // namespace vma::sock
