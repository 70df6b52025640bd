// SPDX-License-Identifier: BSD-2-Clause
// A thread that gives a stream back to the kernel is late: the endpoint that it means has ended meanwhile, and there may be another one. Or it
// is in the middle of what other threads send and receive.
#include "fabtests/unit.hpp"

#include <sched.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/test/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void wait_until_plain(const Pair &pair)
{
    while (sock::is_dual(*pair.a.s) || sock::is_dual(*pair.b.s))
        sched_yield(); // to the helper thread
}

void traffic(Pair &pair)
{
    std::mt19937_64 random(seed());
    for (int step = 0; step < 2000; ++step) {
        End &x = random() % 2 == 0 ? pair.a : pair.b;
        End &y = &x == &pair.a ? pair.b : pair.a;
        if (random() % 2 == 0)
            send_some(x, random_length(random));
        else
            receive_some(y, x, random_length(random), 0);
    }
    drain(pair);
}

// What it would have set for the endpoint is not for the one that comes.
void one_that_has_ended(void **)
{
    Pair pair;
    for (End *const end : {&pair.a, &pair.b}) {
        assert_false(sock::is_dual(*end->s));
        sock::start_leaving(*end->s, sock::Heir::kLibrary);
        sock::give_up_waiting(*end->s);
        assert_true(lift(pair));
        traffic(pair);
        sock::return_one(*end->s, sock::Heir::kLibrary);
        wait_until_plain(pair);
    }
}

void another_one_is_there(void **)
{
    Pair pair;
    for (End *const end : {&pair.a, &pair.b}) {
        assert_true(lift(pair));
        drain(pair);
        sock::start_leaving(*end->s, sock::Heir::kLibrary);
        sock::return_one(end == &pair.a ? *pair.b.s : *pair.a.s, sock::Heir::kLibrary);
        wait_until_plain(pair);
        assert_true(lift(pair));
        send_some(pair.a, 5000);
        send_some(pair.b, 5000);
        assert_false(sock::close_left(*end->s));
        assert_true(sock::has_endpoint(*end->s));
        traffic(pair);
        sock::return_one(*end->s, sock::Heir::kLibrary);
        wait_until_plain(pair);
        assert_true(sock::close_left(*end->s)); // there is none
    }
}

// A reader that has read the rest of one endpoint takes the next one for it.
void the_rest_is_another_one(void **)
{
    Pair pair;
    assert_true(lift(pair));
    drain(pair);
    send_some(pair.a, 5000);
    sock::drop_rest(*pair.b.s);
    assert_true(sock::has_endpoint(*pair.b.s));
    drain(pair);
}

void in_the_middle(std::array<bool, 2> leaves)
{
    constexpr std::uint64_t kBytes = 10'000'000;
    Pair pair;
    assert_true(lift(pair));
    drain(pair);
    std::atomic<bool> over{false};
    std::thread sender([&pair] {
        std::mt19937_64 random(seed());
        for (const std::uint64_t end = pair.a.sent + kBytes; pair.a.sent < end;)
            send_some(pair.a, random_length(random));
    });
    std::thread leaver([&] {
        while (!over.load())
            for (End *const end : {&pair.a, &pair.b})
                if (leaves[end == &pair.a ? 0 : 1] && sock::is_dual(*end->s))
                    sock::return_one(*end->s, sock::Heir::kLibrary);
                else
                    sched_yield();
    });
    std::mt19937_64 random(seed());
    const std::uint64_t end = pair.b.received + kBytes;
    while (pair.b.received < end)
        receive_some(pair.b, pair.a, random_length(random), 0);
    sender.join();
    over = true;
    leaver.join();
    drain(pair);
}

void the_sender_in_the_middle(void **)
{
    in_the_middle({true, false});
}

void the_receiver_in_the_middle(void **)
{
    in_the_middle({false, true});
}

void both_in_the_middle(void **)
{
    in_the_middle({true, true});
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(one_that_has_ended),         cmocka_unit_test(another_one_is_there),
        cmocka_unit_test(the_rest_is_another_one),    cmocka_unit_test(the_sender_in_the_middle),
        cmocka_unit_test(the_receiver_in_the_middle), cmocka_unit_test(both_in_the_middle),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
