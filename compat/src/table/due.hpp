// SPDX-License-Identifier: BSD-2-Clause
// Which sockets the helper thread has to look at: those of which a flag says that something could not be done at once.
// It doesn't walk over ten thousand connections each ten milliseconds that have nothing for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "compat/src/base/fence.hpp"
#include "compat/src/base/helper_wake.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

std::uint32_t pool_size();

// By index in the pool. What was written before add() is seen by who takes the bit.
class DueSet
{
public:
    void add(std::uint32_t index)
    {
        words_[index / kBits].fetch_or(std::uint64_t{1} << (index % kBits), std::memory_order_seq_cst);
        fence_after_exchange(); // also for who finds a lock taken now, and leaves the work to its holder
        wake_resting_helper();
    }
    bool any() const
    {
        const std::uint32_t words = (pool_size() + kBits - 1) / kBits;
        return std::any_of(words_, words_ + words,
                           [](const std::atomic<std::uint64_t> &word) { return word.load() != 0; });
    }
    // Each that is in it, which is not in it any more. One that is added meanwhile may come now or the next time.
    template <typename Visit> void take_each(Visit visit)
    {
        const std::uint32_t words = (pool_size() + kBits - 1) / kBits;
        for (std::uint32_t w = 0; w < words; ++w) {
            if (words_[w].load(std::memory_order_relaxed) == 0)
                continue;
            std::uint64_t bits = words_[w].exchange(0, std::memory_order_acq_rel);
            for (; bits != 0; bits &= bits - 1)
                visit(w * kBits + static_cast<unsigned>(std::countr_zero(bits)));
        }
    }

private:
    static constexpr unsigned kBits = 64;
    std::atomic<std::uint64_t> words_[kMaxTracked / kBits] = {};
};

extern DueSet g_due; // atomic; who takes from it is the helper thread

// A word that is also a reason to look at the socket.
class DueFlag
{
public:
    void belongs_to(std::uint32_t index) { index_ = index; }
    bool load(std::memory_order order = std::memory_order_seq_cst) const { return on_.load(order); }
    operator bool() const { return load(); }
    void store(bool on, std::memory_order order = std::memory_order_seq_cst)
    {
        on_.store(on, order);
        if (on)
            g_due.add(index_);
    }
    DueFlag &operator=(bool on)
    {
        store(on);
        return *this;
    }
    bool exchange(bool on, std::memory_order order = std::memory_order_seq_cst)
    {
        const bool before = on_.exchange(on, order);
        if (on)
            g_due.add(index_);
        return before;
    }

private:
    std::atomic<bool> on_{false};
    std::uint32_t index_ = 0;
};

} // namespace vma::sock
