// SPDX-License-Identifier: BSD-2-Clause
// What the program has on loan of a stream's receive ring: the peer gets no credit for it, and for nothing that
// follows, before it is given back. The ring stays as it is when the endpoint is closed meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/loan.hpp"

namespace vma::sock {

class Stream;

struct StreamLoans final : fi_vma_lender {
    static constexpr std::uint32_t kMost = 256; // of one stream

    struct One {
        std::uint64_t position;
        const void *payload;
        bool ended;
    };
    explicit StreamLoans(Stream &of) noexcept;

    // All but `users` is guarded by the socket's rx_lock.
    Stream &socket;
    One list[kMost] = {}; // in the order of the stream; `first` to `first` + `count`
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    void *mapping = nullptr; // of the ring, once the endpoint is closed
    std::size_t mapping_size = 0;
    std::atomic<std::uint32_t> users{1}; // the socket, and each loan
};

// rx_lock held. Up to `most` bytes that can be read now, in one piece. No lender: they can't be lent.
Loan ring_lend(Stream &s, std::size_t most);

std::uint64_t creditable(const Stream &s); // so far the ring may be written again; no lock needed
void part_from_loans(Stream &s);           // before the endpoint is closed; rx_lock and poll lock held

} // namespace vma::sock
