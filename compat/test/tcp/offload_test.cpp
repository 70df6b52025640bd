// SPDX-License-Identifier: BSD-2-Clause
// How a connection comes to its endpoint where the first attempt fails.
#include "fabtests/unit.hpp"

#include <sched.h>

#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// The connector's offer is there, and the requests that it brings are none of its own.
struct Refused : Pair {
    Stream &connector = *a.s;
    Stream &acceptor = *b.s;

    Refused()
    {
        while (connector.cookie == 0)
            send_some(a, 1);
        turn_offer();
    }
    void turn_offer() { connector.cookie = connector.cookie ^ 1; } // to another one, and back
};

// False: that takes too long.
template <typename Done> bool use_until(Pair &pair, const Done &done)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!done() && sock::now_ns() < until) {
        for (End *end : {&pair.a, &pair.b})
            end->s->remote = false; // there is no RDMA device
        use(pair);
        sched_yield();
    }
    return done();
}

// The connector's offer stays as it is, so nothing tells the acceptor to look once more.
void who_was_refused_attaches_later(void **)
{
    Refused pair;
    assert_true(use_until(pair, [&] { return pair.acceptor.attempt.again_at != 0; }));
    assert_false(sock::is_offloaded(pair.acceptor));
    assert_true(pair.connector.cookie != 0);
    pair.turn_offer();
    assert_true(
        use_until(pair, [&] { return sock::is_offloaded(pair.acceptor) && sock::is_offloaded(pair.connector); }));
    drain(pair);
}

// Whoever is refused again and again costs less and less.
void it_asks_less_and_less(void **)
{
    Refused pair;
    std::uint32_t last = 0;
    for (std::uint32_t tries = 1; tries <= 5; ++tries) {
        assert_true(use_until(pair, [&] { return pair.acceptor.attempt.again_at > last; }));
        const std::uint32_t again_at = pair.acceptor.attempt.again_at;
        assert_true(again_at >= last + (4U << tries));
        last = again_at;
    }
    drain(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_was_refused_attaches_later),
        cmocka_unit_test(it_asks_less_and_less),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
