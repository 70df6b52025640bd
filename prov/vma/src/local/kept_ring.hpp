// SPDX-License-Identifier: BSD-2-Clause
// The receiving end of a sender's ring, which stays mapped as long as the program has records of it on loan (fi_vma_lender).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "local/ring.hpp"
#include "local/segment.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

struct KeptRing final : fi_vma_lender {
    RingReader reader;
    Mapping memory;
    std::atomic<std::uint32_t> users{1}; // the inlet, and each loan

    KeptRing() noexcept : fi_vma_lender{end_loan} {}

    void lend(const Arrived &arrived) noexcept
    {
        users.fetch_add(1, std::memory_order_relaxed);
        reader.keep(arrived);
    }
    void leave() noexcept
    {
        if (users.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

private:
    static void end_loan(fi_vma_lender *lender, const void *payload, std::size_t length)
    {
        KeptRing &self = *static_cast<KeptRing *>(lender);
        self.reader.unkeep(static_cast<const std::byte *>(payload), length);
        self.leave();
    }
};

} // namespace vma::local
