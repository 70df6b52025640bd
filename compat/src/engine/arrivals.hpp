// SPDX-License-Identifier: BSD-2-Clause
// What a ring has for the datagrams that its polls take. Guarded by the ring's poll lock.
#pragma once

#include <cstddef>
#include <cstdint>

struct fi_vma_lender;

namespace vma::sock {
class Socket;
}

namespace vma::sock::udp {

struct Direct; // state.hpp

struct Arrivals {
    Direct *direct = nullptr; // of the call that polls now
    std::uint32_t taken = 0;  // datagrams, ever
};

// The provider calls it, with the ring's Arrivals (udp/arrive.cpp).
int take(void *context, const void *payload, std::size_t length, std::uint64_t data, fi_vma_lender *lender);

} // namespace vma::sock::udp
