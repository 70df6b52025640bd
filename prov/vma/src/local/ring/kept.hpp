// SPDX-License-Identifier: BSD-2-Clause
// The receiving end of a sender's ring, which stays mapped as long as the program has records of it on loan
// (fi_vma_lender).
#pragma once

#include <cstddef>
#include <cstdint>

#include "local/ring/reader.hpp"
#include "local/segment.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

struct KeptRing final : fi_vma_lender {
    RingReader reader;
    Mapping memory;

    KeptRing() noexcept : fi_vma_lender{end_loan, begin_loan} {}

    // Around an offer of what was peeked. end_offer() lends it if the taker has kept it and not said so before.
    void begin_offer() noexcept { lent_ = false; }
    void end_offer(const Arrived &arrived) noexcept
    {
        if (!lent_)
            reader.keep(arrived);
    }
    void leave() noexcept // it is not read any more
    {
        if (reader.leave())
            delete this;
    }

private:
    static void begin_loan(fi_vma_lender *lender, const void *payload, std::size_t length)
    {
        KeptRing &self = *static_cast<KeptRing *>(lender);
        self.reader.keep({static_cast<const std::byte *>(payload), length, false, 0});
        self.lent_ = true;
    }
    static void end_loan(fi_vma_lender *lender, const void *payload, std::size_t length)
    {
        KeptRing &self = *static_cast<KeptRing *>(lender);
        if (self.reader.unkeep(static_cast<const std::byte *>(payload), length)) [[unlikely]]
            delete &self;
    }

    bool lent_ = false;
};

} // namespace vma::local
