// SPDX-License-Identifier: BSD-2-Clause
// Lends to programs what streams have received: parts of the stack's blocks (fi_vma_lender). The memory stays until all
// is given back if the stack is gone meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "inet/base/block_arena.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

class BlockLender final : public fi_vma_lender
{
public:
    // Ends the owner's part.
    struct Leave {
        void operator()(BlockLender *lender) const noexcept { lender->leave(); }
    };
    using Owned = std::unique_ptr<BlockLender, Leave>;

    static Owned make(inet::BlockArena &arena) noexcept // nullptr: no memory
    {
        return Owned(new (std::nothrow) BlockLender(arena.share()));
    }
    void note_loan() noexcept { users_.fetch_add(1, std::memory_order_relaxed); } // one more give_back() comes

private:
    explicit BlockLender(inet::BlockArena::Owned arena) noexcept
        : fi_vma_lender{end_loan, nullptr}, arena_(std::move(arena))
    {
    }
    ~BlockLender() = default;

    static void end_loan(fi_vma_lender *lender, const void *payload, std::size_t)
    {
        BlockLender &self = *static_cast<BlockLender *>(lender);
        self.arena_->give_back(payload);
        self.leave();
    }
    void leave() noexcept
    {
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    const inet::BlockArena::Owned arena_;
    std::atomic<std::uint32_t> users_{1}; // the owner, and each loan
};

} // namespace vma::ether
