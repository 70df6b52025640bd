// SPDX-License-Identifier: BSD-2-Clause
// What every part of the stack speaks of: addresses, ports, the time. Addresses of both families have one form, the 16
// bytes of IPv6 with IPv4 mapped into it (RFC 4291, 2.5.5.2), so that tables and comparisons are written once.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vma::inet {

// Nanoseconds of a clock that never goes back, from wherever the caller likes. The stack has no other clock.
using Nanos = std::uint64_t;

inline constexpr Nanos kNever = ~Nanos{0};
inline constexpr Nanos kMicrosecond = 1000;
inline constexpr Nanos kMillisecond = 1000 * kMicrosecond;
inline constexpr Nanos kSecond = 1000 * kMillisecond;

struct Mac {
    std::array<std::uint8_t, 6> bytes{};

    bool operator==(const Mac &) const = default;
    bool is_multicast() const { return (bytes[0] & 1) != 0; } // broadcast too
};

struct IpAddress {
    std::array<std::uint8_t, 16> bytes{};

    bool operator==(const IpAddress &) const = default;

    // `host`: in host byte order, so 0x7f000001 is 127.0.0.1.
    static constexpr IpAddress v4(std::uint32_t host)
    {
        IpAddress a;
        a.bytes[10] = a.bytes[11] = 0xff;
        for (unsigned i = 0; i < 4; ++i)
            a.bytes[12 + i] = static_cast<std::uint8_t>(host >> (24 - 8 * i));
        return a;
    }
    static IpAddress v4(const std::uint8_t *wire) // 4 bytes as they stand in a header
    {
        // In registers: bytes that are written one by one and read as a whole stall the processor.
        std::uint32_t word;
        memcpy(&word, wire, sizeof word);
        const std::uint64_t low = std::endian::native == std::endian::little ? std::uint64_t{word} << 32 | 0xffff0000
                                                                             : std::uint64_t{0xffff} << 32 | word;
        const std::uint64_t halves[2] = {0, low};
        IpAddress a;
        memcpy(a.bytes.data(), halves, sizeof halves);
        return a;
    }
    static IpAddress v6(const std::uint8_t *wire) // 16 bytes as they stand in a header
    {
        IpAddress a;
        memcpy(a.bytes.data(), wire, 16);
        return a;
    }

    bool is_v4() const
    {
        static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        return memcmp(bytes.data(), kMapped, sizeof kMapped) == 0;
    }
    const std::uint8_t *v4_bytes() const { return &bytes[12]; }
    bool is_any() const // 0.0.0.0 and ::
    {
        static constexpr std::uint8_t kZero[16] = {};
        return is_v4() ? memcmp(v4_bytes(), kZero, 4) == 0 : memcmp(bytes.data(), kZero, 16) == 0;
    }
    bool is_multicast() const { return is_v4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff; }
};

struct Endpoint {
    IpAddress address;
    std::uint16_t port = 0; // host byte order

    bool operator==(const Endpoint &) const = default;
};

// A connection, or a datagram's way: what the steering rules and the tables of the stack are keyed by.
struct Flow {
    Endpoint local;
    Endpoint remote;

    bool operator==(const Flow &) const = default;
};

enum class Protocol : std::uint8_t { kIcmp = 1, kTcp = 6, kUdp = 17, kIcmp6 = 58 }; // IANA's numbers

} // namespace vma::inet
