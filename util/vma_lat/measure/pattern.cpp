// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/pattern.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace vma::lat {

namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15; // odd: 2^64 words before one comes again

// The finalizer of splitmix64.
std::uint64_t mix(std::uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

std::uint64_t little(std::uint64_t word)
{
    if constexpr (std::endian::native == std::endian::big)
        return __builtin_bswap64(word);
    return word;
}

std::uint64_t first_word(std::uint64_t seed, std::uint64_t number)
{
    return mix(seed + mix(number + kStep));
}

} // namespace

std::uint64_t derive(std::uint64_t seed, std::uint64_t a, std::uint64_t b)
{
    return mix(mix(mix(seed + kStep) + a + kStep) + b + kStep);
}

void fill(std::span<std::byte> place, std::uint64_t seed, std::uint64_t number)
{
    std::uint64_t word = first_word(seed, number);
    while (!place.empty()) {
        const std::uint64_t bytes = little(word);
        const std::size_t part = std::min(place.size(), sizeof bytes);
        std::memcpy(place.data(), &bytes, part);
        place = place.subspan(part);
        word += kStep;
    }
}

std::optional<Difference> compare(std::span<const std::byte> place, std::uint64_t seed, std::uint64_t number)
{
    std::uint64_t word = first_word(seed, number);
    for (std::size_t at = 0; at < place.size(); at += sizeof word, word += kStep) {
        const std::uint64_t bytes = little(word);
        const std::size_t part = std::min(place.size() - at, sizeof bytes);
        if (std::memcmp(place.data() + at, &bytes, part) == 0)
            continue;
        const auto *expected = reinterpret_cast<const std::byte *>(&bytes);
        std::size_t i = 0;
        while (place[at + i] == expected[i])
            ++i;
        return Difference{at + i, place[at + i], expected[i]};
    }
    return {};
}

} // namespace vma::lat
