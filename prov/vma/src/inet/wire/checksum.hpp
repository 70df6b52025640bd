// SPDX-License-Identifier: BSD-2-Clause
// The internet checksum (RFC 1071) of headers and payloads, alone or while they are copied. A partial sum goes through
// any number of calls, whatever their lengths, before it is finished.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "prov/vma/src/inet/wire/bytes.hpp"
#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

// A partial sum is the plain sum of big-endian 16-bit words below kOddSum, so a field in host byte order may be added
// to it with +. Each call adds less than 2^16, so 2^15 of them can't reach the flag.
inline constexpr std::uint32_t kOddSum = std::uint32_t{1} << 31; // an odd number of bytes was summed so far

// `partial`: what an earlier call gave for the bytes before these. An odd number of bytes may be followed by more of
// them.
std::uint32_t sum(const std::uint8_t *data, std::size_t length, std::uint32_t partial = 0);

// As sum(), and copies the bytes; the two areas don't overlap.
std::uint32_t copy_and_sum(std::uint8_t *target, const std::uint8_t *source, std::size_t length,
                           std::uint32_t partial = 0);

inline std::uint32_t fold16(std::uint64_t total) // at most 0xffff
{
    total = (total >> 32) + (total & 0xffffffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    return static_cast<std::uint32_t>((total >> 16) + (total & 0xffff));
}

// What a header's field gets through store16. 0 means that a sum over a packet with its checksum in it is right.
inline std::uint16_t finish(std::uint32_t partial)
{
    return static_cast<std::uint16_t>(~fold16(partial & ~kOddSum));
}

// Words of this machine's byte order, summed, as the partial sum that the wire's order gives (RFC 1071, 2.B).
inline std::uint32_t fold_native(std::uint64_t total)
{
    const std::uint32_t folded = fold16(total);
    return std::endian::native == std::endian::little ? __builtin_bswap16(static_cast<std::uint16_t>(folded)) : folded;
}

// As sum() for a length that is known when it is compiled, for headers: no call and no loop.
template <std::size_t kLength> std::uint32_t sum_fixed(const std::uint8_t *data)
{
    static_assert(kLength % 4 == 0);
    std::uint64_t total = 0;
#pragma GCC unroll 16
    for (std::size_t at = 0; at < kLength; at += 4) {
        std::uint32_t word;
        memcpy(&word, data + at, sizeof word);
        total += word;
    }
    return fold_native(total);
}

// The pseudo-header of TCP, UDP and ICMPv6 (RFC 9293, 3.1; RFC 8200, 8.1). `length`: of the transport's header and
// data.
inline std::uint32_t pseudo_sum(const IpAddress &source, const IpAddress &target, Protocol protocol,
                                std::uint32_t length)
{
    const std::uint32_t fixed = static_cast<std::uint32_t>(protocol) + (length >> 16) + (length & 0xffff);
    if (target.is_v4())
        return fixed + sum_fixed<4>(source.v4_bytes()) + sum_fixed<4>(target.v4_bytes());
    return fixed + sum_fixed<16>(source.bytes.data()) + sum_fixed<16>(target.bytes.data());
}

// Writes the sum of the pseudo-header where a device is to write the checksum: what is_partial() reads.
inline void leave_sum(std::uint8_t *header, std::size_t field, std::uint32_t pseudo)
{
    store16(header + field, static_cast<std::uint16_t>(fold16(pseudo)));
}

// Whether a transport's field holds no checksum but the sum of its pseudo-header: PartialSums.
inline bool is_partial(std::uint16_t field, std::uint32_t pseudo)
{
    return field == fold16(pseudo);
}

} // namespace vma::inet
