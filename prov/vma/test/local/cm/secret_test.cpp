// SPDX-License-Identifier: BSD-2-Clause
// A process's secret, and words by which others show that they can read it: what they say, and for how long.
#include "prov/vma/test/local/cm/words.hpp"

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

using namespace vma;
using namespace vma::test;

namespace {

void a_word_says_one_thing(void **)
{
    const Opened secret;
    const Opened other;
    const std::uint64_t word = word_for(secret);
    assert_true(secret.was_said(kAny, word));
    assert_false(other.was_said(kAny, word));
    const std::function<void(Statement &)> changes[] = {
        [](Statement &s) { ++s.tcp_socket; },
        [](Statement &s) { ++s.link_end; },
        [](Statement &s) { ++s.connection; },
        [](Statement &s) { ++s.message; },
        [](Statement &s) { std::swap(s.tcp_socket, s.link_end); },
        [](Statement &s) { s.tcp_socket += std::uint64_t{1} << 32; },
    };
    for (const auto &change : changes) {
        Statement changed = kAny;
        change(changed);
        assert_false(secret.was_said(changed, word));
    }
    for (unsigned bit = 0; bit < 64; ++bit)
        assert_false(secret.was_said(kAny, word ^ std::uint64_t{1} << bit));
    const Secret::Words &words = memory_of(secret);
    for (const std::uint64_t told : {std::uint64_t{0}, words.number, words.check, words.key[0], words.key[1]})
        assert_false(secret.was_said(kAny, told));
}

// Also memory that we may read, and who names it may not: it gets no hash of what stands there.
void no_other_place_is_a_secret(void **)
{
    const Opened secret;
    std::uint64_t word = 0;
    auto *const pages =
        static_cast<std::byte *>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    assert_true(pages != MAP_FAILED);
    assert_int_equal(::mprotect(pages + 4096, 4096, PROT_NONE), 0);
    const auto end = reinterpret_cast<std::uintptr_t>(pages + 4096);
    const std::uint64_t number = secret.mark().number;
    std::memcpy(pages + 4096 - sizeof number, &number, sizeof number);
    for (const std::uint64_t address :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{end}, end - sizeof number, UINT64_MAX, UINT64_MAX - 4096})
        assert_true(say_to({address, number}, kAny, word) == Said::never);
    assert_true(say_to({secret.mark().address, number + 1}, kAny, word) == Said::never);
    assert_true(say_to({secret.mark().address + 8, number}, kAny, word) == Said::never);
    for (const pid_t process : {0, -1, INT32_MAX})
        assert_true(say_to(secret.mark(), kAny, word, process) == Said::never);
    const Secret::Words like_one{number, memory_of(secret).made_ns, {1, 2}, memory_of(secret).check};
    std::memcpy(pages, &like_one, sizeof like_one);
    assert_true(say_to({reinterpret_cast<std::uintptr_t>(pages), number}, kAny, word) != Said::yes);
    assert_int_equal(::munmap(pages, 8192), 0);
    CmaMark gone{};
    {
        const Opened closed;
        gone = closed.mark();
    }
    assert_true(say_to(gone, kAny, word) == Said::never);
}

// The owner writes while others read.
void half_a_secret_is_none(void **)
{
    const Opened secret;
    const std::uint64_t word = word_for(secret);
    std::uint64_t none = 0;
    memory_of(secret).key[1] ^= 1;
    assert_true(say_to(secret.mark(), kAny, none) == Said::not_now);
    assert_false(secret.was_said(kAny, word));
    memory_of(secret).key[1] ^= 1;
    assert_int_equal(word_for(secret), word);
    memory_of(secret).made_ns += 1;
    assert_true(say_to(secret.mark(), kAny, none) == Said::not_now);
    memory_of(secret).made_ns += kHourNs; // of another time namespace
    assert_true(say_to(secret.mark(), kAny, none) == Said::never);
    assert_false(secret.was_said(kAny, word));
}

void an_old_one_does_not_count(void **)
{
    Opened secret;
    const std::uint64_t first = word_for(secret);
    std::uint64_t word = 0;
    secret.renew_if_old();
    assert_int_equal(word_for(secret), first);
    g_ahead_ns += Secret::kFreshNs;
    assert_true(say_to(secret.mark(), kAny, word) == Said::not_now);
    assert_true(secret.was_said(kAny, first));
    secret.renew_if_old();
    const std::uint64_t second = word_for(secret);
    assert_true(second != first && secret.was_said(kAny, first) && secret.was_said(kAny, second));
    g_ahead_ns += Secret::kCountsNs - Secret::kFreshNs;
    assert_false(secret.was_said(kAny, first));
    assert_true(secret.was_said(kAny, second));
    secret.renew_if_old();
    secret.renew_if_old();
    assert_true(secret.was_said(kAny, second));
    g_ahead_ns += kHourNs; // of a process that does nothing, and so renews nothing
    assert_false(secret.was_said(kAny, second));
    assert_true(say_to(secret.mark(), kAny, word) == Said::not_now);
    secret.renew_if_old();
    assert_false(secret.was_said(kAny, second));
}

// In the child: 0, or which step went wrong.
int what_a_child_finds(Secret &secret, std::uint64_t word)
{
    const Secret::Words wiped{};
    if (std::memcmp(&memory_of(secret), &wiped, sizeof wiped) != 0)
        return 1;
    if (secret.was_said(kAny, word))
        return 2;
    memory_of(secret).number = secret.mark().number; // as if it had kept the place, but for the key
    std::uint64_t forged = 0;
    if (local::say({::getpid(), secret.mark()}, kAny, forged) != Said::never || secret.was_said(kAny, 0))
        return 3;
    core::SecretHash by_no_key({0, 0});
    memory_of(secret).made_ns = 1;
    if (secret.was_said(kAny, by_no_key.finish()))
        return 4;
    memory_of(secret).made_ns = 0;
    secret.renew_if_old();
    if (local::say({::getpid(), secret.mark()}, kAny, forged) != Said::yes || !secret.was_said(kAny, forged))
        return 5;
    return forged != word && !secret.was_said(kAny, word) ? 0 : 6;
}

void a_child_has_none(void **)
{
    Opened secret;
    const std::uint64_t word = word_for(secret);
    for (const bool by_number : {false, true}) {
        const pid_t child = by_number ? static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : ::fork();
        if (child == 0)
            ::_exit(what_a_child_finds(secret, word));
        int status = -1;
        assert_int_equal(::waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_true(secret.was_said(kAny, word));
    assert_int_equal(word_for(secret), word);
}

// A child of ours that is another user's, or where we have said that nobody may trace us.
void who_may_not_read_says_nothing(void **)
{
    constexpr uid_t kOther = 12345;
    const Opened secret;
    const bool is_root = ::geteuid() == 0;
    const pid_t owner = ::getpid();
    if (!is_root)
        assert_int_equal(::prctl(PR_SET_DUMPABLE, 0), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        std::uint64_t word = kNoWord;
        if (is_root && ::setresuid(kOther, kOther, kOther) != 0)
            ::_exit(1);
        ::_exit(local::say({owner, secret.mark()}, kAny, word) == Said::never && word == kNoWord ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    if (!is_root)
        assert_int_equal(::prctl(PR_SET_DUMPABLE, 1), 0);
}

// What the kernel keeps out of core files it says of the mapping: "dd" stands there, and "wf" for children.
void no_core_file_has_it(void **)
{
    const Opened secret;
    char start[32];
    std::snprintf(start, sizeof start, "%lx-", static_cast<unsigned long>(secret.mark().address));
    FILE *const maps = std::fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    char line[512];
    bool is_its = false;
    std::string flags;
    while (flags.empty() && std::fgets(line, sizeof line, maps) != nullptr) {
        is_its = is_its || std::strncmp(line, start, std::strlen(start)) == 0;
        if (is_its && std::strncmp(line, "VmFlags:", 8) == 0)
            flags = line;
    }
    std::fclose(maps);
    assert_true(flags.find(" dd") != std::string::npos && flags.find(" wf") != std::string::npos);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_word_says_one_thing), cmocka_unit_test(no_other_place_is_a_secret),
        cmocka_unit_test(half_a_secret_is_none), cmocka_unit_test(an_old_one_does_not_count),
        cmocka_unit_test(a_child_has_none),      cmocka_unit_test(who_may_not_read_says_nothing),
        cmocka_unit_test(no_core_file_has_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
