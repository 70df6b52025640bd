// SPDX-License-Identifier: BSD-2-Clause
// SipHash (Aumasson and Bernstein, 2012): a keyed hash that a peer can't steer. Tables use one and three rounds,
// numbers that the peer sees (initial sequence numbers, cookies) two and four.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vma::core {

using HashKey = std::array<std::uint64_t, 2>;

template <int Compress, int Finish> class SipHash
{
public:
    explicit SipHash(const HashKey &key)
        : v0_(key[0] ^ 0x736f6d6570736575), v1_(key[1] ^ 0x646f72616e646f6d), v2_(key[0] ^ 0x6c7967656e657261),
          v3_(key[1] ^ 0x7465646279746573)
    {
    }

    void add(std::uint64_t word) // little endian, as the paper's bytes
    {
        v3_ ^= word;
        rounds<Compress>();
        v0_ ^= word;
        length_ += 8;
    }

    // Whole words only, and the last 0 to 7 bytes with their number: 64 bits of hash.
    std::uint64_t finish(std::uint64_t rest = 0, unsigned rest_bytes = 0)
    {
        const std::uint64_t last = (std::uint64_t{length_ + rest_bytes} << 56) | rest;
        v3_ ^= last;
        rounds<Compress>();
        v0_ ^= last;
        v2_ ^= 0xff;
        rounds<Finish>();
        return v0_ ^ v1_ ^ v2_ ^ v3_;
    }

private:
    template <int N> void rounds()
    {
        for (int i = 0; i < N; ++i) {
            v0_ += v1_;
            v1_ = std::rotl(v1_, 13) ^ v0_;
            v0_ = std::rotl(v0_, 32);
            v2_ += v3_;
            v3_ = std::rotl(v3_, 16) ^ v2_;
            v0_ += v3_;
            v3_ = std::rotl(v3_, 21) ^ v0_;
            v2_ += v1_;
            v1_ = std::rotl(v1_, 17) ^ v2_;
            v2_ = std::rotl(v2_, 32);
        }
    }

    std::uint64_t v0_, v1_, v2_, v3_;
    unsigned length_ = 0;
};

using TableHash = SipHash<1, 3>;
using SecretHash = SipHash<2, 4>;

} // namespace vma::core
