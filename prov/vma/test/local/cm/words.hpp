// SPDX-License-Identifier: BSD-2-Clause
// What tests of words share: secrets, and a clock that goes as they like. One file of a test includes it.
#pragma once

#include "fabtests/unit.hpp"

#include <cstring>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

#include "local/cm/secret.hpp"

namespace vma::test {

inline constinit std::uint64_t g_ahead_ns = 0;

} // namespace vma::test

// So hours pass at once.
extern "C" [[gnu::used]] inline int clock_gettime(clockid_t clock, timespec *now) noexcept
{
    const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
    now->tv_sec += static_cast<time_t>(vma::test::g_ahead_ns / 1'000'000'000);
    return result;
}

namespace vma::test {

using local::CmaMark;
using local::Said;
using local::Secret;
using local::Statement;

inline constexpr std::uint64_t kHourNs = 3'600'000'000'000;
inline constexpr Statement kAny{.tcp_socket = 11, .link_end = 22, .connection = 33, .message = 2};
inline constexpr std::uint64_t kNoWord = 0xabcdef;

struct Opened : Secret {
    Opened() { assert_int_equal(open(), 0); }
};

// As this process may do with its own memory; a peer only reads it.
inline Secret::Words &memory_of(const Secret &secret)
{
    return *reinterpret_cast<Secret::Words *>(secret.mark().address);
}

inline Said say_to(const CmaMark &mark, const Statement &statement, std::uint64_t &word, pid_t process = ::getpid())
{
    word = kNoWord;
    const Said said = local::say({process, mark}, statement, word);
    assert_true(said == Said::yes || word == kNoWord);
    return said;
}

inline std::uint64_t word_for(const CmaMark &mark, const Statement &statement)
{
    std::uint64_t word = 0;
    assert_true(say_to(mark, statement, word) == Said::yes);
    return word;
}

inline std::uint64_t word_for(const Secret &secret, const Statement &statement = kAny)
{
    return word_for(secret.mark(), statement);
}

} // namespace vma::test
