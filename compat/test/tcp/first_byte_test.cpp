// SPDX-License-Identifier: BSD-2-Clause
// Before the first byte: who sends waits until the answer can come by the endpoint, too.
#include "fabtests/unit.hpp"

#include <sched.h>

#include <atomic>
#include <thread>

#include "compat/src/config/params.hpp"
#include "compat/src/offload/first_byte.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kTurns = 1000; // of whoever waits for nothing, one is enough

// As where the helper thread, which makes the connection's endpoint usable, has not come to our READY.
struct FirstSend {
    Pair pair;
    std::atomic<bool> sends{false};
    std::thread sender;

    FirstSend()
    {
        assert_true(offload(pair));
        drain(pair);
        Stream &s = *pair.a.s;
        s.rx.ready_sent.store(false);
        s.used.store(false);
        config::g_params.lift_at_connect = 60'000'000; // microseconds, longer than this takes
    }
    void begin()
    {
        sender = std::thread([this] {
            sock::await_offload(*pair.a.s, pair.a.fd, false);
            sends = true;
        });
        while (!pair.a.s->used.load())
            ::sched_yield();
    }
    void end()
    {
        sender.join();
        assert_true(sends);
        pair.a.s->rx.ready_sent.store(true);
        config::g_params.lift_at_connect = 0;
    }
};

void it_waits_for_our_own_ready(void **)
{
    FirstSend first;
    first.begin();
    for (int i = 0; i < kTurns; ++i)
        ::sched_yield();
    const bool early = first.sends;
    first.pair.a.s->rx.ready_sent.store(true);
    first.end();
    assert_false(early);
}

// READY is not sent before that thread has its bytes.
void it_does_not_wait_for_another_thread_that_receives(void **)
{
    FirstSend first;
    first.pair.a.s->blocked_receivers.fetch_add(1);
    first.begin();
    first.end();
    first.pair.a.s->blocked_receivers.fetch_sub(1);
}

// The helper thread has made the acceptor's endpoint usable before the program's first call, and the connector has not
// said READY.
struct SoonerThanTheCall {
    const bool wanted;
    Pair pair;
    std::atomic<bool> sent{false};
    std::thread sender;

    SoonerThanTheCall() : wanted(want())
    {
        Stream &s = *pair.b.s;
        pair.a.s->blocked_receivers = 1;                 // so that it does not say READY
        sock::await_offload(*pair.a.s, pair.a.fd, true); // attaches
        while (!sock::is_offloaded(*pair.a.s) || !sock::is_offloaded(s) || !s.rx.ready_sent)
            ::sched_yield();
        assert_false(s.used);
    }
    static bool want()
    {
        config::g_params.lift_at_connect = 60'000'000; // microseconds, longer than this takes
        sock::begin_connecting();
        return true;
    }
    void receive()
    {
        char byte = 0;
        assert_int_equal(sock::send(*pair.a.s, pair.a.fd, "x", 1, 0), 1);
        assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 1, 0), 1);
        pair.b.s->used = false;
    }
    void begin()
    {
        sender = std::thread([this] {
            assert_int_equal(sock::send(*pair.b.s, pair.b.fd, "x", 1, 0), 1);
            sent = true;
        });
        while (!pair.b.s->used)
            ::sched_yield();
    }
    void end()
    {
        sender.join();
        assert_true(sent);
        pair.a.s->blocked_receivers = 0;
        config::g_params.lift_at_connect = 0;
    }
};

void a_send_waits_for_the_peer_where_the_helper_was_sooner(void **)
{
    SoonerThanTheCall first;
    first.begin();
    for (int i = 0; i < kTurns; ++i)
        ::sched_yield();
    const bool early = first.sent;
    first.pair.a.s->blocked_receivers = 0;
    while (!first.sent)
        sock::tick(*first.pair.a.s);
    first.end();
    assert_false(early);
    assert_int_equal(first.pair.b.s->tx.position, 1);
}

void a_later_send_does_not_wait(void **)
{
    SoonerThanTheCall first;
    first.receive();
    first.begin();
    first.end();
    assert_int_equal(first.pair.b.s->tx.kernel_bytes.load(), 1);
}

// A connector that closes at once.
void a_send_does_not_wait_for_a_peer_that_is_gone(void **)
{
    SoonerThanTheCall first;
    first.pair.b.s->endpoint_down = true;
    first.begin();
    first.end();
    first.pair.b.s->endpoint_down = false;
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(it_waits_for_our_own_ready),
        cmocka_unit_test(it_does_not_wait_for_another_thread_that_receives),
        cmocka_unit_test(a_send_waits_for_the_peer_where_the_helper_was_sooner),
        cmocka_unit_test(a_later_send_does_not_wait),
        cmocka_unit_test(a_send_does_not_wait_for_a_peer_that_is_gone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
