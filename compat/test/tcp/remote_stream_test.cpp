// SPDX-License-Identifier: BSD-2-Clause
// What a stream does besides between hosts (doc/between-hosts.md), told to two sockets of this process that the local
// device joins: the words that order two networks, closing, and the reset when bytes may be lost.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

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

void closed_peer_gives_all_bytes_then_eof(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 5000);
    close_end(pair.a);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, 0, 0);
}

void half_close_lets_the_other_half_live(void **)
{
    Offloaded pair;
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
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    ::shutdown(pair.a.fd, SHUT_WR);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
}

void failed_device_resets_both_after_what_arrived(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    fail_endpoint(pair.b);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.a, -1, ECONNRESET);
}

// The kernel tells a reset once, and the sender may have heard it; the kernel has the stream for good by then.
void a_reset_that_the_sender_has_heard(void **)
{
    Offloaded pair;
    fail_endpoint(pair.b);
    const char byte = 0;
    assert_int_equal(sock::send(*pair.b.s, pair.b.fd, &byte, 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, ECONNRESET);
    sock::return_one(*pair.b.s, sock::Heir::kAnybody);
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::is_offloaded(*pair.b.s) && sock::now_ns() < until)
        sched_yield();
    assert_false(sock::is_offloaded(*pair.b.s));
    {
        const sock::LockGuard guard(sock::g_offload.lock);
        sock::stay_on_kernel(*pair.b.s, "a test");
    }
    expect_receive(pair.b, -1, ECONNRESET);
    iovec part = {};
    msghdr msg = {};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    assert_int_equal(sock::receive_msg(*pair.b.s, pair.b.fd, &msg, MSG_DONTWAIT), -1);
    assert_int_equal(errno, ECONNRESET);
}

// The kernel says so of a socket that is shut down, once the error is told; but bytes are missing.
void a_reset_is_never_an_end(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    fail_endpoint(pair.b);
    const char byte = 0;
    assert_int_equal(sock::send(*pair.b.s, pair.b.fd, &byte, 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, ECONNRESET);
    ::shutdown(pair.b.fd, SHUT_RDWR);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.b, -1, ECONNRESET);
}

// Who leaves has waited a second for the answer, and resets the connection; the other one has said all, and heard all.
// Its kernel tells that once, here to a send.
void a_reset_by_who_gives_up_is_no_end(void **)
{
    Offloaded pair;
    sock::start_leaving(*pair.a.s, sock::Heir::kLibrary);
    while (!pair.b.s->rx.final_seen || !pair.b.s->tx.final_sent)
        sock::engine_poll();
    sock::abort_stream(*pair.a.s, "a test");
    const char byte = 0;
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::send(*pair.b.s, pair.b.fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
        assert_true(sock::now_ns() < until);
    assert_int_equal(errno, ECONNRESET);
    assert_false(pair.b.s->aborted.load());
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.b, -1, ECONNRESET);
}

// A FIN behind which both have gone, so that the kernel knows the connection no more, is an end.
void an_end_of_both_is_an_end(void **)
{
    Offloaded pair;
    for (End *end : {&pair.a, &pair.b})
        assert_int_equal(sock::shut_down(*end->s, end->fd, SHUT_WR), 0);
    for (End *end : {&pair.a, &pair.b}) {
        const std::int64_t until = sock::now_ns() + patience::nanoseconds();
        while (sock::tcp_state(end->fd) != sock::kClose && sock::now_ns() < until)
            sched_yield(); // but who was first may have a time-wait for a while, of which a socket says the same
        expect_receive(*end, 0, 0);
        expect_receive(*end, 0, 0);
    }
}

// Some kernels refuse to reset a connection while a thread waits for its bytes. A FIN instead would be an end.
decltype(&::connect) g_kernels_connect;
int g_refusals;

int connect_while_others_wait(int fd, const sockaddr *address, socklen_t length)
{
    if (g_refusals == 0)
        return g_kernels_connect(fd, address, length);
    --g_refusals;
    errno = EBUSY;
    return -1;
}

void a_reset_that_the_kernel_puts_off(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    g_kernels_connect = libc::real.connect;
    g_refusals = 3;
    libc::real.connect = connect_while_others_wait;
    sock::abort_stream(*pair.b.s, "a test");
    libc::real.connect = g_kernels_connect;
    assert_int_equal(g_refusals, 0);
    pollfd p = {pair.a.fd, POLLRDHUP, 0};
    assert_int_equal(::poll(&p, 1, static_cast<int>(patience::seconds()) * 1000), 1);
    assert_int_equal(p.revents & POLLERR, POLLERR);
}

// All is said in both directions: nothing can be missing.
void failed_device_after_both_finals_does_no_harm(void **)
{
    Offloaded pair;
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

// It may have closed the endpoint before it knew that it is connected: it says nothing of it then, and nothing is lost.
void peer_that_never_came_does_no_harm(void **)
{
    Offloaded pair;
    sock::Receiver &rx = pair.b.s->rx;
    pair.b.s->rx_lock.lock();
    rx.peer_here.store(false);
    rx.ready_sent.store(false);
    pair.b.s->ready_due.store(true);
    sock::try_ready(*pair.b.s);
    pair.b.s->rx_lock.unlock();
    assert_false(rx.ready_sent.load());
    sock::kRemoteRing.offloaded(*pair.a.s);
    while (!rx.ready_sent.load())
        sock::engine_poll();
    rx.ready_sent.store(false); // as if that word had not come
    pair.b.s->tx.started.store(false);
    fail_endpoint(pair.b);
    assert_false(pair.b.s->aborted.load());
}

// Whoever polls hears that the peer is here, while another thread's receive has taken bytes that are not counted yet.
void a_receive_that_is_being_counted_misses_nothing(void **)
{
    Offloaded pair;
    sock::Receiver &rx = pair.b.s->rx;
    {
        const sock::LockGuard guard(pair.b.s->rx_lock);
        rx.peer_here.store(false);
        rx.ready_sent.store(false);
        pair.b.s->ready_due.store(true);
        rx.kernel_bytes.fetch_sub(1);
        sock::kRemoteRing.offloaded(*pair.a.s);
        while (!rx.peer_here.load())
            sock::engine_poll();
        rx.kernel_bytes.fetch_add(1);
    }
    while (!rx.ready_sent.load() && !pair.b.s->pinned.load())
        sched_yield(); // to the helper thread
    assert_false(pair.b.s->pinned.load());
}

// As at a fork: the program does not read while it waits, so the kernel may have no room for what the peer gives back.
void who_leaves_keeps_what_is_unread(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 30000);
    sock::return_one(*pair.b.s, sock::Heir::kLibrary);
    int in_kernel = -1;
    assert_int_equal(::ioctl(pair.b.fd, FIONREAD, &in_kernel), 0);
    assert_int_equal(in_kernel, 0);
    receive_all(pair.b, pair.a);
}

// The kernel may be faster than the START that was sent before.
void kernel_waits_until_start_is_seen(void **)
{
    Offloaded pair;
    sock::Sender &tx = pair.a.s->tx;
    pair.a.s->tx_lock.lock();
    tx.unseen.store(1); // as if the last START had no answer yet
    sock::end_transmit(*pair.a.s, false);
    pair.a.s->tx_lock.unlock();
    char byte = 0;
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    pair.b.s->rx_lock.lock();
    sock::kRemoteRing.start_came(*pair.b.s);
    pair.b.s->rx_lock.unlock();
    while (tx.unseen.load() != 0)
        sock::engine_poll();
    send_some(pair.a, 100);
    drain(pair);
}

// Two threads whose calls were counted at the same time come one after the other.
void a_connection_is_attempted_once_at_a_time(void **)
{
    Pair pair(true);
    sock::Stream &s = *pair.a.s;
    const sock::LockGuard guard(sock::g_offload.lock);
    sock::begin_attempt(s);
    assert_true(s.attempt.open);
    sock::begin_attempt(s);
    assert_ptr_not_equal(s.next_live, &s); // else the helper would walk it for ever
    sock::end_attempt(s);
    assert_false(sock::attempts_are_open());
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
        cmocka_unit_test(a_reset_that_the_sender_has_heard),
        cmocka_unit_test(a_reset_is_never_an_end),
        cmocka_unit_test(a_reset_by_who_gives_up_is_no_end),
        cmocka_unit_test(an_end_of_both_is_an_end),
        cmocka_unit_test(a_reset_that_the_kernel_puts_off),
        cmocka_unit_test(failed_device_after_both_finals_does_no_harm),
        cmocka_unit_test(peer_that_never_came_does_no_harm),
        cmocka_unit_test(a_receive_that_is_being_counted_misses_nothing),
        cmocka_unit_test(who_leaves_keeps_what_is_unread),
        cmocka_unit_test(kernel_waits_until_start_is_seen),
        cmocka_unit_test(a_connection_is_attempted_once_at_a_time),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
