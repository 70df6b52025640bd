// SPDX-License-Identifier: BSD-2-Clause
// The first message of a new sender: a reader finds it soon, however seldom it reads, or has the processor.
#include "prov/vma/test/rdm/pair.hpp"

#include <ctime>

#include "local/lookout.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using local::Lookout;

constexpr std::uint64_t kStart = Lookout::kInterval; // ns

// Reads until it has looked `looks` times, each `apart` nanoseconds; how many reads were made.
unsigned reads_for(Lookout &lookout, unsigned looks, std::uint64_t apart, unsigned &reads, std::uint64_t &now)
{
    const unsigned before = reads;
    while (looks != 0) {
        now += apart;
        // As due(), with the test's clock.
        looks -= lookout.check(++reads, now) ? 1 : 0;
    }
    return reads - before;
}

void looks_go_by_time(void **)
{
    Lookout lookout;
    std::uint64_t now = kStart;
    unsigned reads = 0;
    assert_int_equal(reads_for(lookout, 1, 1, reads, now), 1); // the first one
    assert_int_equal(reads_for(lookout, 4, Lookout::kInterval, reads, now), 4);
    assert_int_equal(reads_for(lookout, 4, Lookout::kInterval / 10, reads, now), 40);
    assert_true(lookout.due_at(now + Lookout::kInterval));
    assert_false(lookout.due_at(now + Lookout::kInterval));
    assert_false(lookout.due_at(now + Lookout::kInterval * 2 - 1));
    assert_true(lookout.due_at(now + Lookout::kInterval * 2));
}

// Who spins is not asked the time in most of its reads.
void the_clock_is_read_seldom(void **)
{
    Lookout lookout;
    unsigned reads = 0;
    for (unsigned i = 0; i < 20; ++i)
        static_cast<void>(lookout.check(++reads, kStart + i));
    for (unsigned i = 1; i < Lookout::kMost; ++i)
        assert_false(lookout.due(reads + i)); // it would be time by the real clock, if that was read
}

// A program that reads its queue once a millisecond.
void a_slow_reader_finds_a_new_sender(void **)
{
    OwnDirectory directory;
    Rdm a;
    const timespec millisecond{0, 1'000'000};
    char got[4] = {};
    REQUIRE(fi_recv(a.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0);
    for (int i = 0; i < 4; ++i) {
        nanosleep(&millisecond, nullptr); // the program's own work
        REQUIRE(no_entry(a.cq));
    }
    Rdm b;
    REQUIRE(fi_inject(b.ep, "new", 4, to(b, a)) == 0);
    unsigned reads = 0;
    for (Entry entry; !read_entry(a.cq, entry); ++reads) {
        REQUIRE(reads < 64); // it was 1024
        nanosleep(&millisecond, nullptr);
    }
    assert_string_equal(got, "new");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(looks_go_by_time),
        cmocka_unit_test(the_clock_is_read_seldom),
        cmocka_unit_test(a_slow_reader_finds_a_new_sender),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
