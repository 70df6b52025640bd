// SPDX-License-Identifier: BSD-2-Clause
// What lanes say to each other beside their data: control messages, two numbers in network byte order, and the
// immediate data of a write.
#pragma once

#include "util/vma_lat/transport/endpoints.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace vma::lat {

inline constexpr std::uint64_t kCredit = 1; // so many of the peer's operations have been taken, from the first on
inline constexpr std::uint64_t kLook = 2;   // so many writes are there, from the first on: verify them

struct ControlMessage {
    std::uint64_t kind = 0;
    std::uint64_t number = 0;
};

inline void write_number(std::byte *place, std::uint64_t value)
{
    for (unsigned i = 0; i < 8; ++i)
        place[i] = static_cast<std::byte>(value >> (56 - 8 * i));
}

inline std::uint64_t read_number(const std::byte *place)
{
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i)
        value = value << 8 | std::to_integer<std::uint64_t>(place[i]);
    return value;
}

inline void write_control(std::span<std::byte> place, ControlMessage message) // kControlBytes at least
{
    write_number(place.data(), message.kind);
    write_number(place.data() + 8, message.number);
}

inline ControlMessage read_control(std::span<const std::byte> place)
{
    return {read_number(place.data()), read_number(place.data() + 8)};
}

inline constexpr std::uint32_t kSequenceBits = 24;
inline constexpr std::uint32_t kSequenceMask = (1U << kSequenceBits) - 1;

inline std::uint64_t immediate(std::uint8_t tag, std::uint64_t sequence)
{
    return std::uint64_t{tag} << kSequenceBits | (sequence & kSequenceMask);
}

} // namespace vma::lat
