// SPDX-License-Identifier: BSD-2-Clause
// How often a queue's readers look for new senders: counts of reads have 32 bits, and pass over their end and over half
// of their range with the reads of some minutes.
#include "fabtests/unit.hpp"

#include <initializer_list>

#include "local/lookout.hpp"

using vma::local::Lookout;

namespace {

// Of a clock that is far ahead: what the real one says after it is an interval later in any case, as differences wrap.
constexpr std::uint64_t kAhead = std::uint64_t{1} << 62;
constexpr unsigned kStarts[] = {0U,        1U, 1'000'000U, (1U << 31) - 32, (1U << 31) - 1, 1U << 31, UINT32_MAX - 32,
                                UINT32_MAX};

// Who reads all the time, of whom the clock is asked each kMost reads.
void spin_up(Lookout &lookout, unsigned reads)
{
    for (unsigned most = 1; most <= Lookout::kMost; most *= 2)
        static_cast<void>(lookout.check(reads, kAhead));
}

void looks_again_after_so_many_reads(void **)
{
    for (const unsigned start : kStarts) {
        Lookout lookout;
        spin_up(lookout, start);
        for (unsigned i = 1; i < Lookout::kMost; ++i)
            assert_false(lookout.due(start + i));
        assert_true(lookout.due(start + Lookout::kMost));
    }
}

// A queue may be read without anybody to look for, as often as it likes: the first read after it looks.
void looks_after_any_number_of_reads(void **)
{
    for (const unsigned start : kStarts) {
        for (const unsigned passed : {Lookout::kMost, Lookout::kMost + 1, (1U << 31) - 1, 1U << 31, (1U << 31) + 1,
                                      (1U << 31) + Lookout::kMost, UINT32_MAX - Lookout::kMost, UINT32_MAX}) {
            Lookout lookout;
            spin_up(lookout, start);
            assert_true(lookout.due(start + passed));
        }
    }
}

// By time: a look an interval, however often it is asked.
void looks_once_an_interval(void **)
{
    for (const unsigned start : kStarts) {
        Lookout lookout;
        std::uint64_t now = kAhead;
        assert_true(lookout.check(start, now));
        assert_false(lookout.check(start + 1, now + Lookout::kInterval - 1));
        assert_true(lookout.check(start + 2, now + Lookout::kInterval));
        now += Lookout::kInterval;
        assert_true(lookout.due_at(now + Lookout::kInterval));
        assert_false(lookout.check(start + 3, now + Lookout::kInterval + 1));
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(looks_again_after_so_many_reads),
        cmocka_unit_test(looks_after_any_number_of_reads),
        cmocka_unit_test(looks_once_an_interval),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
