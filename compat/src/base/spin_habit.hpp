// SPDX-License-Identifier: BSD-2-Clause
// How long a wait spins where nobody has said it: what spinning has brought lately decides, and whether others want
// this processor (doc/waiting.md, "How long a wait spins"). A look costs no system call and next to no time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace vma::mux {

// Of the waits of a kind: a socket's receives or sends, an epoll set's waits, a thread's poll() and select(). Threads
// may share it: an update that is lost changes when the next wait spins, and nothing else.
class SpinHabit
{
public:
    // A sleep and the waking take 5 to 50 us: the answer of a peer that sleeps comes within.
    static constexpr std::int64_t kMostNs = 50'000;

    // Whether this wait spins. Each one asks once.
    bool is_due()
    {
        const std::uint32_t left = left_out_.load(std::memory_order_relaxed);
        if (left != 0)
            left_out_.store(left - 1, std::memory_order_relaxed);
        return left == 0;
    }
    // `in_turn`: it came while others had the processor, to which the wait had given it.
    void hit(bool in_turn = false)
    {
        const std::uint32_t turns = turns_.load(std::memory_order_relaxed);
        if (in_turn ? turns < kMostTurns : turns != 0) [[unlikely]]
            turns_.store(in_turn ? turns + 1 : 0, std::memory_order_relaxed);
        if (next_.load(std::memory_order_relaxed) == kFewest) [[likely]]
            return;
        next_.store(kFewest, std::memory_order_relaxed);
        shares_processor_.store(false, std::memory_order_relaxed);
    }
    void missed()
    {
        const std::uint32_t next = next_.load(std::memory_order_relaxed);
        left_out_.store(next, std::memory_order_relaxed);
        next_.store(std::min(2 * next, kMost), std::memory_order_relaxed);
    }
    // The wait has slept, and took so long in all: a spin would have brought what came.
    void slept(std::int64_t ns)
    {
        if (ns <= kMostNs && !shares_processor_.load(std::memory_order_relaxed))
            left_out_.store(0, std::memory_order_relaxed);
    }
    // The same, of one that spun in vain. What comes as soon as it sleeps needed this processor.
    void slept_after_spin(std::int64_t ns)
    {
        if (ns <= kMostNs + kSoonNs)
            shares_processor_.store(true, std::memory_order_relaxed);
    }

    // Who is waited for needs this processor, so a wait lets others run at once.
    bool by_turns() const { return turns_.load(std::memory_order_relaxed) != 0; }
    // It has for some time: it runs here, and not just somebody who did something for it.
    bool by_many_turns() const { return turns_.load(std::memory_order_relaxed) >= kManyTurns; }

private:
    static constexpr std::int64_t kSoonNs = 25'000; // two sleeps and wakings
    static constexpr std::uint32_t kManyTurns = 4;
    static constexpr std::uint32_t kMostTurns = 8;
    static constexpr std::uint32_t kFewest = 2; // waits left out after one that spun in vain
    static constexpr std::uint32_t kMost = 256; // after several in a row: a spin in 257 waits

    std::atomic<std::uint32_t> left_out_{0};
    std::atomic<std::uint32_t> next_{kFewest};
    std::atomic<bool> shares_processor_{false};
    std::atomic<std::uint32_t> turns_{0}; // hits in a row that came in turns
};

} // namespace vma::mux
