// SPDX-License-Identifier: BSD-2-Clause
// When the helper thread rests, and that what comes, or is due, ends it.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sched.h>

#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/table/due.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;
using sock::Rests;
using sock::Sleep;

namespace {

// Turns without anything until it has longer sleeps.
unsigned turns_until_rest(Rests &rests)
{
    unsigned turns = 0;
    for (; rests.next() == Sleep::kTurn; ++turns)
        rests.note(false, 1);
    return turns;
}

void seconds_of_quiet_come_before_a_rest(void **)
{
    Rests rests;
    const unsigned turns = turns_until_rest(rests);
    assert_int_equal(turns, sock::helper_turns_in(3000));
    assert_true(rests.next() == Sleep::kRest);
    rests.note(false, sock::helper_turns_in(sock::kRestMs));
    assert_true(rests.next() == Sleep::kRest);
    rests.note(true, 1);
    assert_int_equal(turns_until_rest(rests), turns);
}

void a_program_that_looks_itself_makes_long_turns(void **)
{
    Rests rests;
    turns_until_rest(rests);
    rests.was_disturbed();
    unsigned long_turns = 0;
    for (; rests.next() == Sleep::kLongTurn; ++long_turns)
        rests.note(false, sock::helper_turns_in(sock::long_turn_ms()));
    assert_true(long_turns > 1);
    assert_true(rests.next() == Sleep::kRest);
    rests.was_disturbed();
    rests.note(true, 1); // it was news after all
    assert_true(rests.next() == Sleep::kTurn);
    turns_until_rest(rests);
    assert_true(rests.next() == Sleep::kRest);
}

bool is_told()
{
    pollfd news = {Rests::told_fd(), POLLIN, 0};
    return ::poll(&news, 1, 0) == 1;
}

void whoever_has_something_ends_it_once(void **)
{
    const Pair plain; // the helper thread is not there yet
    assert_true(Rests::begin());
    assert_false(is_told());
    sock::wake_resting_helper();
    sock::wake_resting_helper();
    assert_true(is_told());
    Rests::end(true);
    assert_false(is_told());
    sock::wake_resting_helper(); // nobody rests
    assert_false(is_told());
    assert_true(Rests::begin());
    assert_false(is_told());
    sock::g_due.add(plain.a.s->index);
    assert_true(sock::g_due.any());
    assert_true(is_told());
    Rests::end(true);
    sock::g_due.take_each([](std::uint32_t) {});
    assert_false(sock::g_due.any());
}

void wait_for_rest(bool wanted)
{
    while (sock::g_process.rest.on.load() != wanted)
        sched_yield(); // to the helper thread
}

// Nobody reads: it is the helper thread that hears of it, and as soon as it is there.
void bytes_for_a_program_that_computes_end_it(void **)
{
    Pair pair;
    assert_true(offload(pair));
    for (int round = 0; round < 2; ++round) {
        wait_for_rest(true);
        const std::uint64_t before = pair.b.s->rx.written.load();
        send_some(pair.a, 1000);
        while (pair.b.s->rx.written.load() != before + 1000)
            sched_yield();
        drain(pair);
    }
}

void what_is_due_ends_it(void **)
{
    Pair pair;
    assert_true(offload(pair));
    wait_for_rest(true);
    pair.a.s->tx_work = true;
    wait_for_rest(false);
    while (pair.a.s->tx_work)
        sched_yield();
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(seconds_of_quiet_come_before_a_rest),
        cmocka_unit_test(a_program_that_looks_itself_makes_long_turns),
        cmocka_unit_test(whoever_has_something_ends_it_once),
        cmocka_unit_test(bytes_for_a_program_that_computes_end_it),
        cmocka_unit_test(what_is_due_ends_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
