// SPDX-License-Identifier: BSD-2-Clause
// Rings that are idle give their pages back, and carry on: what is unread, and what is sent meanwhile, is there.
#include "fabtests/unit.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "compat/src/engine/objects.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/idle.hpp"
#include "compat/src/transport/idle_streams.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kMuch = 20'000'000; // bytes

// None of a stream that the library itself has let go meanwhile: on a busy machine it takes this test's time for idle.
std::size_t resident_pages(const End &end)
{
    const sock::LockGuard guard(sock::g_offload.lock);
    if (!sock::has_endpoint(*end.s))
        return 0;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there(end.s->rx.ring / page);
    assert_int_equal(::mincore(const_cast<std::uint8_t *>(end.s->rx.base), end.s->rx.ring, there.data()), 0);
    std::size_t pages = 0;
    for (const unsigned char one : there)
        pages += one & 1U;
    return pages;
}

// As often as it takes that nothing seems to move, and more.
void look(Pair &pair)
{
    for (int i = 0; i < 3; ++i)
        for (const End *const end : {&pair.a, &pair.b}) {
            const sock::LockGuard guard(sock::g_offload.lock);
            sock::look_at_idle_ring(*end->s);
        }
}

void through(Pair &pair, End &from, End &to, std::uint64_t bytes)
{
    for (const std::uint64_t end = from.sent + bytes; from.sent < end;) {
        send_some(from, std::min<std::size_t>(5000, end - from.sent));
        receive_some(to, from, 5000, 0);
    }
    drain(pair);
}

void an_idle_ring_keeps_next_to_nothing(void **)
{
    Pair pair;
    constexpr std::size_t kFew = 3; // where the parts of sender and receiver meet
    for (int round = 0; round < 5; ++round) {
        assert_true(offload(pair));
        through(pair, pair.a, pair.b, 300000);
        through(pair, pair.b, pair.a, 300000);
        do
            look(pair); // which passes by what the library's own helper thread has locked
        while (resident_pages(pair.a) > kFew || resident_pages(pair.b) > kFew);
    }
}

void what_is_unread_stays(void **)
{
    Pair pair;
    assert_true(offload(pair));
    through(pair, pair.a, pair.b, 250001);
    send_some(pair.a, 30000);
    receive_some(pair.b, pair.a, 1234, 0);
    look(pair);
    look(pair);
    drain(pair);
}

// The peer gives it back unread: it is sent again from the ring.
void what_comes_back_stays(void **)
{
    Pair pair;
    assert_true(offload(pair));
    through(pair, pair.a, pair.b, 250001);
    send_some(pair.a, 30000);
    look(pair);
    sock::return_one(*pair.b.s, sock::Heir::kAnybody);
    drain(pair);
}

void looks_come_at_any_time(void **)
{
    std::mt19937_64 random(seed());
    Pair pair;
    assert_true(offload(pair));
    for (int step = 0; step < 20000; ++step) {
        End &x = random() % 2 == 0 ? pair.a : pair.b;
        End &y = &x == &pair.a ? pair.b : pair.a;
        const auto dice = random() % 8;
        if (dice < 3)
            send_some(x, random_length(random));
        else if (dice < 6)
            receive_some(x, y, random_length(random), dice == 3 ? MSG_PEEK : 0);
        else
            look(pair);
    }
    drain(pair);
}

// The streams of a socket seem to stand between any two looks now and then.
void looks_come_while_others_work(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    flow(pair, kMuch, [&pair] { look(pair); });
}

// What the helper thread does with one end in as many turns as it takes, and in more.
void rest(const End &end)
{
    sock::IdleStreams idle;
    for (int i = 0; i < 20; ++i) {
        {
            const sock::LockGuard guard(sock::g_offload.lock);
            if (sock::is_offloaded(*end.s))
                idle.look_at(*end.s);
        }
        idle.let_go();
    }
}

// Both ends are on the kernel then, and come back when they are used; one call is not enough for the end that was let
// go.
void who_rests_is_let_go(void **)
{
    Pair pair;
    for (int round = 0; round < 3; ++round) {
        assert_true(offload(pair));
        drain(pair);
        const End &end = round % 2 == 0 ? pair.a : pair.b;
        assert_int_equal(sock::calls_before_offload(*end.s), round < 2 ? 1 : 32);
        rest(end);
        wait_until_kernel_only(pair);
        assert_int_equal(sock::calls_before_offload(*end.s), 32);
        send_some(pair.a, 3000);
        send_some(pair.b, 100);
        drain(pair);
    }
}

void who_has_something_to_read_stays(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 30000);
    rest(pair.b);
    assert_true(sock::is_offloaded(*pair.b.s));
    drain(pair);
}

void let_go_while_others_work(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    flow(pair, kMuch, [&pair] {
        rest(pair.a);
        rest(pair.b);
    });
}

} // namespace

int main()
{
    ::setenv("VMA_IDLE_STREAMS", "0", 1);
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_ring_keeps_next_to_nothing),
        cmocka_unit_test(what_is_unread_stays),
        cmocka_unit_test(what_comes_back_stays),
        cmocka_unit_test(looks_come_at_any_time),
        cmocka_unit_test(looks_come_while_others_work),
        cmocka_unit_test(who_rests_is_let_go),
        cmocka_unit_test(who_has_something_to_read_stays),
        cmocka_unit_test(let_go_while_others_work),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
