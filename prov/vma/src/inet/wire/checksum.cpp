// SPDX-License-Identifier: BSD-2-Clause
// The internet checksum's loop: 32 bytes a step in vectors of the compiler's, which every machine it knows can add.
#include "prov/vma/src/inet/wire/checksum.hpp"

namespace vma::inet {
namespace {

using Vector = std::uint64_t __attribute__((vector_size(16)));

template <bool kCopy> std::uint64_t add(std::uint8_t *to, const std::uint8_t *from, std::size_t length)
{
    constexpr Vector kLow = {0xffffffff, 0xffffffff};
    Vector low[2] = {};
    Vector high[2] = {}; // of each 64-bit word the halves are summed apart, so no carry is lost below 2^32 steps
    for (; length >= 32; length -= 32, from += 32, to += kCopy ? 32 : 0)
        for (unsigned i = 0; i < 2; ++i) {
            Vector v;
            memcpy(&v, from + std::size_t{16} * i, sizeof v);
            if constexpr (kCopy)
                memcpy(to + std::size_t{16} * i, &v, sizeof v);
            low[i] += v & kLow;
            high[i] += v >> 32;
        }
    const Vector both = low[0] + low[1] + high[0] + high[1];
    std::uint64_t total = both[0] + both[1];
    for (; length >= 4; length -= 4, from += 4, to += kCopy ? 4 : 0) {
        std::uint32_t word;
        memcpy(&word, from, sizeof word);
        if constexpr (kCopy)
            memcpy(to, &word, sizeof word);
        total += word;
    }
    if (length) { // the missing bytes count as zero
        std::uint32_t word = 0;
        memcpy(&word, from, length);
        if constexpr (kCopy)
            memcpy(to, from, length);
        total += word;
    }
    return total;
}

std::uint32_t append(std::uint64_t total, std::size_t length, std::uint32_t partial)
{
    std::uint32_t folded = fold_native(total);
    if (partial & kOddSum) // the first of these bytes is the second of a word
        folded = __builtin_bswap16(static_cast<std::uint16_t>(folded));
    return (partial + folded) ^ (length & 1 ? kOddSum : 0);
}

} // namespace

std::uint32_t sum(const std::uint8_t *data, std::size_t length, std::uint32_t partial)
{
    return append(add<false>(nullptr, data, length), length, partial);
}

std::uint32_t copy_and_sum(std::uint8_t *target, const std::uint8_t *source, std::size_t length, std::uint32_t partial)
{
    return append(add<true>(target, source, length), length, partial);
}

} // namespace vma::inet
