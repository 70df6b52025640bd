// SPDX-License-Identifier: BSD-2-Clause
// Whether this process has done anything by the kernel that somebody may hear of by a descriptor. What it sends by an
// endpoint after that says so, and whoever reports that asks the kernel first (doc/multiplexing.md, the order of
// events). Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::libc {

constexpr std::uint32_t kActed = 1; // since the number above it was given

// Read by each send by an endpoint, written once between two of them at the most.
struct alignas(64) KernelActs {
    std::atomic<std::uint32_t> word{2};
};
extern KernelActs g_kernel_acts; // atomic; any thread

// Behind the call: another thread's send may come between.
inline void note_kernel_act()
{
    std::atomic<std::uint32_t> &word = g_kernel_acts.word;
    if ((word.load(std::memory_order_relaxed) & kActed) == 0) [[unlikely]]
        word.fetch_or(kActed, std::memory_order_release);
}

template <typename Result> inline Result by_kernel(Result result)
{
    note_kernel_act();
    return result;
}

// Where a number other than the last one that a connection has told of comes out, it is told to its peer with what is
// sent next.
inline std::uint32_t number_of_kernel_acts()
{
    std::atomic<std::uint32_t> &word = g_kernel_acts.word;
    std::uint32_t now = word.load(std::memory_order_acquire);
    while ((now & kActed) != 0) {
        if (word.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire))
            return now + 1;
    }
    return now;
}

} // namespace vma::libc
