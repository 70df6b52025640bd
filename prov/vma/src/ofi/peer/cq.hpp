// SPDX-License-Identifier: BSD-2-Clause
// Where the completions of a queue go that was opened with FI_PEER: to its owner's, at once (fi_peer(3)).
#pragma once

#include <atomic>
#include <cstdint>

#include "ofi/peer/abi.hpp"

namespace vma::ofi {

struct Completion;

class OwnersQueue
{
public:
    // `context` is that of fi_cq_open(). 0 or -FI_EINVAL.
    int attach(const void *context) noexcept;
    bool any() const noexcept { return cq_ != nullptr; }

    // The owner takes locks of its own in here.
    void tell(const Completion &completion, std::uint64_t tag) noexcept;
    // Whether it was told something since this was asked last.
    bool was_told() noexcept
    {
        const bool told = told_.load(std::memory_order_relaxed);
        if (told)
            told_.store(false, std::memory_order_relaxed);
        return told;
    }

private:
    peer::Cq *cq_ = nullptr;
    std::atomic<bool> told_{false};
};

} // namespace vma::ofi
