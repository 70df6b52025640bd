// SPDX-License-Identifier: BSD-2-Clause
// A quick hash of an address for tables that forget rather than grow: with a secret key it spreads well, but it doesn't
// keep the key from one who sees results, as SipHash does.
#pragma once

#include <cstdint>
#include <cstring>

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

// The high half is the better one.
inline std::uint64_t address_hash(const IpAddress &address, std::uint64_t key)
{
    std::uint64_t words[2];
    memcpy(words, address.bytes.data(), sizeof words);
    for (const std::uint64_t word :
         words) { // a multiplication carries upward only: the high half is brought down twice
        key ^= word;
        for (unsigned round = 0; round < 2; ++round) {
            key ^= key >> 32;
            key *= 0x9e3779b97f4a7c15;
        }
    }
    return key;
}

} // namespace vma::inet
