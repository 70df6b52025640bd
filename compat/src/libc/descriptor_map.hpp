// SPDX-License-Identifier: BSD-2-Clause
// A set of descriptor numbers: one bit each, in zeroed memory that costs nothing until it is written to. One load tells
// whether a number is in it; any thread may add and remove.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace vma::libc {

template <unsigned kSize> class DescriptorMap
{
public:
    bool has(int fd) const
    {
        const auto number = static_cast<unsigned>(fd);
        return number < kSize && (words_[number / 64].load(std::memory_order_relaxed) & bit_of(number)) != 0;
    }
    void add(int fd)
    {
        const auto number = static_cast<unsigned>(fd);
        if (number < kSize)
            words_[number / 64].fetch_or(bit_of(number), std::memory_order_relaxed);
    }
    void remove(int fd)
    {
        const auto number = static_cast<unsigned>(fd);
        if (number < kSize)
            words_[number / 64].fetch_and(~bit_of(number), std::memory_order_relaxed);
    }
    // The lowest number in it from `from` to `last`, or -1.
    int next(unsigned from, unsigned last) const
    {
        for (unsigned word = from / 64; word < kSize / 64 && word <= last / 64; ++word) {
            std::uint64_t bits = words_[word].load(std::memory_order_relaxed);
            if (word == from / 64)
                bits &= ~std::uint64_t{0} << (from % 64);
            if (bits == 0)
                continue;
            const unsigned number = word * 64 + static_cast<unsigned>(std::countr_zero(bits));
            return number <= last ? static_cast<int>(number) : -1;
        }
        return -1;
    }

private:
    static_assert(kSize % 64 == 0);
    static constexpr std::uint64_t bit_of(unsigned number) { return std::uint64_t{1} << (number % 64); }
    std::atomic<std::uint64_t> words_[kSize / 64] = {};
};

} // namespace vma::libc
