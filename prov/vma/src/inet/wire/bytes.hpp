// SPDX-License-Identifier: BSD-2-Clause
// Integers of the wire: big endian, at any alignment.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace vma::inet {

// From the host's order to the network's, or back.
template <typename T> constexpr T big_endian(T v)
{
    if constexpr (std::endian::native == std::endian::little) {
        if constexpr (sizeof(T) == 2)
            v = __builtin_bswap16(v);
        else if constexpr (sizeof(T) == 4)
            v = __builtin_bswap32(v);
        else if constexpr (sizeof(T) == 8)
            v = __builtin_bswap64(v);
    }
    return v;
}

template <typename T> T load_be(const std::uint8_t *p)
{
    T v;
    memcpy(&v, p, sizeof v);
    return big_endian(v);
}

template <typename T> void store_be(std::uint8_t *p, T v)
{
    v = big_endian(v);
    memcpy(p, &v, sizeof v);
}

inline std::uint16_t load16(const std::uint8_t *p)
{
    return load_be<std::uint16_t>(p);
}
inline std::uint32_t load32(const std::uint8_t *p)
{
    return load_be<std::uint32_t>(p);
}
inline void store16(std::uint8_t *p, std::uint16_t v)
{
    store_be(p, v);
}
inline void store32(std::uint8_t *p, std::uint32_t v)
{
    store_be(p, v);
}

} // namespace vma::inet
