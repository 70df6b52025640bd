// SPDX-License-Identifier: BSD-2-Clause
// What the parts of liar.so have in common.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace liar {

// xorshift64*: the same values for the same seed, everywhere.
class Random
{
public:
    explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
    std::uint64_t bits()
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1d;
    }
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(bits() >> 16) % end; }

private:
    std::uint64_t state_;
};

long real_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);

Random &source(); // of the environment's FUZZ_SEED

// Any of a word's values that a program may not expect, or one by chance.
std::uint64_t other_value(std::uint64_t now);

// The shared memory that a message brings or takes away is this process's to spoil from here on.
void keep_shared(const msghdr &header, bool are_others);

// Sends it, or what has been made of it.
long send_lie(int socket, const msghdr &header, int flags);

} // namespace liar
