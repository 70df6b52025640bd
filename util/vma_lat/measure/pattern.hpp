// SPDX-License-Identifier: BSD-2-Clause
// The bytes of an operation of a sweep or a mesh: 64-bit words, least byte first, that follow from a seed and the
// number of the operation. No two words of an operation are alike, so that a byte in a wrong place is seen, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace vma::lat {

// A seed of its own for each pair of numbers: for a direction, a connection, a sender and a receiver.
std::uint64_t derive(std::uint64_t seed, std::uint64_t a, std::uint64_t b);

void fill(std::span<std::byte> place, std::uint64_t seed, std::uint64_t number);

struct Difference {
    std::size_t at = 0;
    std::byte came{};
    std::byte expected{};
};

// The first byte that is wrong.
std::optional<Difference> compare(std::span<const std::byte> place, std::uint64_t seed, std::uint64_t number);

} // namespace vma::lat
