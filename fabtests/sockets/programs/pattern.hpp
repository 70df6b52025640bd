// SPDX-License-Identifier: BSD-2-Clause
// Seeded random data that is a function of the position in the stream: a receiver checks each byte where it stands, and
// can tell lost, repeated and reordered bytes apart. Nothing is kept in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fabtest {

class Pattern
{
public:
    explicit Pattern(std::uint64_t seed) : seed_(seed) {}

    void fill(std::uint64_t position, void *buf, std::size_t len) const
    {
        auto *out = static_cast<unsigned char *>(buf);
        while (len > 0) {
            const std::uint64_t word = at(position / 8);
            const std::size_t skip = position % 8;
            const std::size_t take = len < 8 - skip ? len : 8 - skip;
            std::memcpy(out, reinterpret_cast<const unsigned char *>(&word) + skip, take);
            out += take;
            position += take;
            len -= take;
        }
    }

    // Index of the first byte that is not the stream's, or `len` when all are.
    std::size_t check(std::uint64_t position, const void *buf, std::size_t len) const
    {
        const auto *in = static_cast<const unsigned char *>(buf);
        std::size_t done = 0;
        while (done < len) {
            const std::uint64_t word = at((position + done) / 8);
            const std::size_t skip = (position + done) % 8;
            const std::size_t take = len - done < 8 - skip ? len - done : 8 - skip;
            const auto *want = reinterpret_cast<const unsigned char *>(&word) + skip;
            if (std::memcmp(in + done, want, take) != 0) {
                while (in[done] == *want) {
                    ++done;
                    ++want;
                }
                return done;
            }
            done += take;
        }
        return len;
    }

    // Where in the stream, up to `limit`, the 16 bytes at buf stand; -1 when nowhere. For diagnosis only.
    std::int64_t find(const void *buf, std::size_t len, std::uint64_t limit) const
    {
        if (len < 16)
            return -1;
        for (std::uint64_t p = 0; p + 16 <= limit; ++p)
            if (check(p, buf, 16) == 16)
                return static_cast<std::int64_t>(p);
        return -1;
    }

private:
    std::uint64_t at(std::uint64_t index) const // splitmix64
    {
        std::uint64_t z = seed_ + (index + 1) * 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

    std::uint64_t seed_;
};

// Small deterministic generator for sizes and choices.
class Random
{
public:
    explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}

    std::uint64_t next()
    {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93U;
        z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93U;
        return z ^ (z >> 32);
    }

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

    // 1 .. 2^bits, every magnitude equally likely.
    std::size_t size(unsigned bits)
    {
        const std::size_t magnitude = std::size_t{1} << below(bits); // 1 .. 2^(bits - 1)
        return magnitude + below(magnitude + 1);
    }

private:
    std::uint64_t state_;
};

} // namespace fabtest
