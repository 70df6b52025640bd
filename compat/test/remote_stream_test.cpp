// SPDX-License-Identifier: BSD-2-Clause
// What a stream does besides between hosts (doc/stream-protocol.md), told to two sockets of this process that the local device
// joins: the words that order two networks, closing, and the reset when bytes may be lost.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compat/src/socket/engine.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/test/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void random_traffic_stays_whole(void **)
{
    Pair pair(true);
    random_traffic(pair);
}

void spills_and_returns_stay_whole(void **)
{
    Pair pair(true);
    spills_and_returns(pair);
}

// All that was sent before is read.
struct Lifted : Pair {
    Lifted() : Pair(true)
    {
        assert_true(lift(*this));
        drain(*this);
    }
};

void close_end(End &end)
{
    sock::forget(end.fd);
    ::close(end.fd);
    end.fd = -1;
}

void expect_receive(End &end, ssize_t result, int error)
{
    char byte;
    assert_int_equal(sock::receive(*end.s, end.fd, &byte, 1, 0), result);
    if (result < 0)
        assert_int_equal(errno, error);
}

// Of `from`, and it has arrived when this returns.
void send_and_arrive(End &from, const End &to, std::size_t len)
{
    const std::uint64_t before = to.s->rx.written.load();
    send_some(from, len);
    while (to.s->rx.written.load() < before + len)
        sock::engine_poll();
}

void receive_all(End &to, const End &from)
{
    while (to.received < from.sent)
        receive_some(to, from, 4096, 0);
}

void closed_peer_gives_all_bytes_then_eof(void **)
{
    Lifted pair;
    send_and_arrive(pair.a, pair.b, 5000);
    close_end(pair.a);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, 0, 0);
}

void half_close_lets_the_other_half_live(void **)
{
    Lifted pair;
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    expect_receive(pair.b, 0, 0);
    send_and_arrive(pair.b, pair.a, 3000);
    receive_all(pair.a, pair.b);
    close_end(pair.b);
    expect_receive(pair.a, 0, 0);
}

// As of a process that was killed: its last bytes may have been lost.
void end_without_a_word_is_a_reset(void **)
{
    Lifted pair;
    send_and_arrive(pair.a, pair.b, 2000);
    ::shutdown(pair.a.fd, SHUT_WR);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
}

void fail_endpoint(End &end)
{
    const sock::LockGuard guard(sock::g_lift_lock);
    sock::on_down(end.s->endpoint, "a test");
}

void failed_device_resets_both_after_what_arrived(void **)
{
    Lifted pair;
    send_and_arrive(pair.a, pair.b, 2000);
    fail_endpoint(pair.b);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.a, -1, ECONNRESET);
}

// All is said in both directions: nothing can be missing.
void failed_device_after_both_finals_does_no_harm(void **)
{
    Lifted pair;
    send_and_arrive(pair.a, pair.b, 2000);
    for (End *end : {&pair.a, &pair.b})
        assert_int_equal(sock::shut_down(*end->s, end->fd, SHUT_WR), 0);
    for (End *end : {&pair.a, &pair.b})
        while (!end->s->rx.final_seen.load())
            sock::engine_poll();
    fail_endpoint(pair.a);
    fail_endpoint(pair.b);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, 0, 0);
    expect_receive(pair.a, 0, 0);
}

// The kernel may be faster than the START that was sent before.
void kernel_waits_until_start_is_seen(void **)
{
    Lifted pair;
    sock::Sender &tx = pair.a.s->tx;
    pair.a.s->tx_lock.lock();
    tx.unseen.store(1); // as if the last START had no answer yet
    sock::end_transmit(*pair.a.s, false);
    pair.a.s->tx_lock.unlock();
    char byte = 0;
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    pair.b.s->rx_lock.lock();
    sock::answer_seen(*pair.b.s);
    pair.b.s->rx_lock.unlock();
    while (tx.unseen.load() != 0)
        sock::engine_poll();
    send_some(pair.a, 100);
    drain(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(random_traffic_stays_whole),
        cmocka_unit_test(spills_and_returns_stay_whole),
        cmocka_unit_test(closed_peer_gives_all_bytes_then_eof),
        cmocka_unit_test(half_close_lets_the_other_half_live),
        cmocka_unit_test(end_without_a_word_is_a_reset),
        cmocka_unit_test(failed_device_resets_both_after_what_arrived),
        cmocka_unit_test(failed_device_after_both_finals_does_no_harm),
        cmocka_unit_test(kernel_waits_until_start_is_seen),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
