// SPDX-License-Identifier: BSD-2-Clause
// Rings that are idle give their pages back, and carry on: what is unread, and what is sent meanwhile, is there.
#include "fabtests/unit.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/idle.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/test/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

std::size_t resident_pages(const End &end)
{
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
            const sock::LockGuard guard(sock::g_lift_lock);
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
    assert_true(lift(pair));
    for (int round = 0; round < 5; ++round) {
        through(pair, pair.a, pair.b, 300000);
        through(pair, pair.b, pair.a, 300000);
        look(pair);
        assert_true(resident_pages(pair.a) <= 3); // where the parts of sender and receiver meet
        assert_true(resident_pages(pair.b) <= 3);
    }
}

void what_is_unread_stays(void **)
{
    Pair pair;
    assert_true(lift(pair));
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
    assert_true(lift(pair));
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
    assert_true(lift(pair));
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

// Sender, reader and helper each in a thread of its own; the streams of a socket seem to stand between any two looks now and then.
void looks_come_while_others_work(void **)
{
    constexpr std::uint64_t kBytes = 20'000'000;
    Pair pair;
    assert_true(lift(pair));
    drain(pair);
    std::atomic<bool> over{false};
    std::thread sender([&pair] {
        std::mt19937_64 random(seed());
        for (const std::uint64_t end = pair.a.sent + kBytes; pair.a.sent < end;)
            send_some(pair.a, random_length(random));
    });
    std::thread helper([&pair, &over] {
        while (!over.load())
            look(pair);
    });
    std::mt19937_64 random(seed());
    const std::uint64_t end = pair.b.received + kBytes;
    while (pair.b.received < end)
        receive_some(pair.b, pair.a, random_length(random), 0);
    sender.join();
    over = true;
    helper.join();
    drain(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_ring_keeps_next_to_nothing),
        cmocka_unit_test(what_is_unread_stays),
        cmocka_unit_test(what_comes_back_stays),
        cmocka_unit_test(looks_come_at_any_time),
        cmocka_unit_test(looks_come_while_others_work),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
