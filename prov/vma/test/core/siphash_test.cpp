// SPDX-License-Identifier: BSD-2-Clause
// SipHash against the vectors that its authors have published: the key is 00 01 ... 0f, and what is hashed 00 01 ... of
// each length.
#include "fabtests/unit.hpp"

#include "core/siphash.hpp"

namespace {

using vma::core::HashKey;
using vma::core::SecretHash;

constexpr HashKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::uint64_t counted(unsigned from, unsigned bytes)
{
    std::uint64_t word = 0;
    for (unsigned i = 0; i < bytes; ++i)
        word |= std::uint64_t{from + i} << (8 * i);
    return word;
}

std::uint64_t hash_of(unsigned length)
{
    SecretHash hash(kKey);
    for (unsigned at = 0; at + 8 <= length; at += 8)
        hash.add(counted(at, 8));
    return hash.finish(counted(length / 8 * 8, length % 8), length % 8);
}

// vectors_sip64 of the reference implementation, and the example of the paper's appendix A, which has 15 bytes.
void the_published_vectors(void **)
{
    const struct {
        unsigned length;
        std::uint64_t hash;
    } vectors[] = {
        {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {2, 0x0d6c8009d9a94f5a},  {3, 0x85676696d7fb7e2d},
        {4, 0xcf2794e0277187b7}, {5, 0x18765564cd99a68d}, {6, 0xcbc9466e58fee3ce},  {7, 0xab0200f58b01d137},
        {8, 0x93f5f5799a932462}, {9, 0x9e0082df0ba9e4b0}, {15, 0xa129ca6149be45e5}, {63, 0x958a324ceb064572},
    };
    for (const auto &vector : vectors)
        assert_int_equal(hash_of(vector.length), vector.hash);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
