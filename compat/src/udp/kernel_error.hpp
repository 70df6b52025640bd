// SPDX-License-Identifier: BSD-2-Clause
// Whether the kernel's socket may have an error for the program: a hint. The error stays there, whoever takes it first,
// by a call, SO_ERROR or the error queue, has it; so whoever meets the hint asks the kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock::udp {

class KernelError
{
public:
    // Of the word as it was read: what has been noted since the kernel was asked stands.
    using Known = std::uint32_t;

    Known known() const { return word_.load(std::memory_order_relaxed); }
    // The next send or receive fails by it.
    bool may_fail() const { return (known() & kForCalls) != 0; }
    // poll() and its kin tell of it.
    static bool may_be_told(Known known) { return (known & kForPoll) != 0; }

    void note()
    {
        Known word = known();
        while (!word_.compare_exchange_weak(word, (word | kForCalls | kForPoll) + kOne, std::memory_order_relaxed)) {
        }
    }
    void is_taken(Known known) { forget(known, kForCalls); }
    void is_over(Known known) { forget(known, kForPoll); }
    void clear() { word_.store(0, std::memory_order_relaxed); }

private:
    static constexpr Known kForCalls = 1;
    static constexpr Known kForPoll = 2;
    static constexpr Known kOne = 4; // note of one; their number is above

    void forget(Known known, Known bit)
    {
        if ((known & bit) != 0)
            word_.compare_exchange_strong(known, known & ~bit, std::memory_order_relaxed);
    }

    std::atomic<Known> word_{0};
};

} // namespace vma::sock::udp
