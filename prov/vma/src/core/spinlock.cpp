// SPDX-License-Identifier: BSD-2-Clause
// The contended half of SpinLock.
#include "core/spinlock.hpp"

#include <sched.h>
#include <time.h>

#include "core/kernel.hpp"

namespace vma::core {

void SpinLock::lock_slow() noexcept
{
    constexpr unsigned kSpins = 200;
    constexpr unsigned kYields = 200;
    for (unsigned round = 0;; ++round) {
        for (unsigned i = 0; i < kSpins; ++i) {
            if (!held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire))
                return;
            cpu_relax();
        }
        if (round < kYields) {
            sched_yield();
        } else {
            // A holder of lower real-time priority never runs while we only yield.
            const timespec nap{0, 50'000};
            static_cast<void>(kernel::nanosleep(&nap, nullptr));
        }
    }
}

} // namespace vma::core
