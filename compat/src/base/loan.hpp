// SPDX-License-Identifier: BSD-2-Clause
// Received bytes where they arrived, which nobody overwrites until they are given back: by any thread, in any order
// (doc/extra-api.md).
#pragma once

#include <rdma/fi_ext_vma.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace vma::sock {

struct Loan {
    fi_vma_lender *lender = nullptr; // nullptr: there is none
    const std::uint8_t *record = nullptr;
    std::uint32_t size = 0;   // of the record, bytes
    std::uint32_t header = 0; // of these, not for the program

    const std::uint8_t *data() const { return record + header; }
    std::size_t length() const { return size - header; }
    // Before another thread can know of it, of one that is offered.
    void begin() const
    {
        if (lender->lend != nullptr)
            lender->lend(lender, record, size);
    }
    void end()
    {
        if (fi_vma_lender *const from = std::exchange(lender, nullptr))
            from->give_back(from, record, size);
    }
};

// A copy as a loan, in memory of the program's allocator (base/memory.hpp), or else in pages of its own; lender
// nullptr: none could be had.
Loan lend_copy(const void *bytes, std::size_t length);
Loan lend_copy(const msghdr &message, std::size_t length); // of the first bytes of its parts, which hold so many

} // namespace vma::sock
