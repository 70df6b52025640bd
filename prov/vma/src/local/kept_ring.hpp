// SPDX-License-Identifier: BSD-2-Clause
// The receiving end of a sender's ring, which stays mapped as long as the program has records of it on loan (fi_vma_lender).
#pragma once

#include <cstddef>
#include <cstdint>

#include "local/ring.hpp"
#include "local/segment.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

struct KeptRing final : fi_vma_lender {
    RingReader reader;
    Mapping memory;

    KeptRing() noexcept : fi_vma_lender{end_loan} {}

    void lend(const Arrived &arrived) noexcept { reader.keep(arrived); }
    void leave() noexcept // it is not read any more
    {
        if (reader.leave())
            delete this;
    }

private:
    static void end_loan(fi_vma_lender *lender, const void *payload, std::size_t length)
    {
        KeptRing &self = *static_cast<KeptRing *>(lender);
        if (self.reader.unkeep(static_cast<const std::byte *>(payload), length)) [[unlikely]]
            delete &self;
    }
};

} // namespace vma::local
