// SPDX-License-Identifier: BSD-2-Clause
// Streams over the real provider, both ends in this process: bytes stay whole and in order while the stream is
// offloaded, spilled, returned and offloaded again at random moments. Seeds are printed; VMA_TEST_SEED repeats one.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void offloads_at_all(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
}

void random_traffic_stays_whole(void **)
{
    Pair pair;
    random_traffic(pair);
}

void spills_and_returns_stay_whole(void **)
{
    Pair pair;
    spills_and_returns(pair);
}

void closed_peer_gives_all_bytes_then_eof(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 5000);
    sock::forget(pair.a.fd);
    ::close(pair.a.fd);
    pair.a.fd = -1;
    std::vector<std::uint8_t> bytes(10000);
    const ssize_t n = sock::receive(*pair.b.s, pair.b.fd, bytes.data(), bytes.size(), MSG_WAITALL);
    assert_int_equal(n, 5000);
    check_bytes(pair.b, pair.a.key, bytes.data(), 5000);
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, bytes.data(), 1, 0), 0);
}

// A thread waits in the kernel's poll() for bytes: the peer sends none by the endpoint before it is out.
void a_poll_in_the_kernel_holds_the_peer_back(void **)
{
    Pair pair;
    std::atomic<bool> waits{false};
    struct Wait {
        pollfd entry;
        std::atomic<bool> *waits;
    } wait = {{pair.a.fd, POLLIN, 0}, &waits};
    int found = -1;
    std::thread poller([&] {
        const auto in_kernel = [](const void *call) {
            auto *const w = static_cast<Wait *>(const_cast<void *>(call));
            *w->waits = true;
            return libc::real.poll(&w->entry, 1, patience::milliseconds());
        };
        sock::wait_in_kernel(*pair.a.s, in_kernel, &wait, found);
    });
    while (!waits)
        sched_yield();
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!sock::is_offloaded(*pair.a.s) || pair.a.s->tx.path.load() != sock::Path::kEndpoint) {
        assert_true(sock::now_ns() < until);
        send_some(pair.a, 10);
        receive_some(pair.b, pair.a, 100, 0);
    }
    assert_false(pair.a.s->rx.ready_sent.load());
    send_some(pair.b, 10);
    assert_true(pair.b.s->tx.path.load() == sock::Path::kKernel);
    poller.join();
    assert_int_equal(found, 1);
    assert_int_equal(wait.entry.revents, POLLIN);
    assert_true(offload(pair));
    drain(pair);
    assert_false(sock::wait_in_kernel(*pair.a.s, nullptr, nullptr, found));
}

// Whoever gives a socket away says RETURN, however long the peer has not looked at what it was told.
void turns_always_find_a_slot(void **)
{
    constexpr int kMore = 200; // than there are slots
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    int sent = 0;
    sock::engine_exclude_polling(true);
    while (sent < kMore && sock::send_tag(*pair.b.s, sock::Tag::kCredit, 0))
        ++sent;
    const ssize_t left = pair.b.s->endpoint->ops->tx_size_left(pair.b.s->endpoint);
    sock::engine_exclude_polling(false);
    assert_true(sent < kMore);
    assert_true(left >= 3);
    drain(pair);
}

// The peer has given bytes back and closed its endpoint, and a send finds that before it has found the RETURN.
void a_return_is_heeded_when_the_endpoint_is_down(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 5000);
    while (!sock::has_input(*pair.b.s))
        sched_yield();
    pair.a.s->tx_lock.lock();
    sock::start_leaving(*pair.b.s, sock::Heir::kAnybody);
    while (pair.a.s->tx.return_at.load() == sock::kNone)
        sock::engine_poll();
    sock::fall_back(*pair.b.s, true);
    while (!pair.a.s->endpoint_down)
        sched_yield();
    sock::g_offload.lock.lock(); // who told it has let it go; the helper, which would find the RETURN too, waits
    pair.a.s->tx_work = false;
    pair.a.s->tx_lock.unlock();
    for (const std::uint64_t before = pair.a.sent; pair.a.sent == before;)
        send_some(pair.a, 100);
    sock::g_offload.lock.unlock();
    drain(pair);
}

void half_close_lets_the_other_half_live(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    char byte;
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 1, 0), 0);
    send_some(pair.b, 3000);
    while (pair.a.received < pair.b.sent)
        receive_some(pair.a, pair.b, 4096, 0);
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
}

void what_was_shut_before_the_offload_stays_so(void **)
{
    Pair pair;
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (!sock::is_offloaded(*pair.a.s) || pair.b.s->tx.path.load() != sock::Path::kEndpoint) {
        assert_true(sock::now_ns() < until);
        send_some(pair.b, 10);
        receive_some(pair.a, pair.b, 100, 0);
        char byte;
        assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 1, MSG_DONTWAIT), 0);
    }
    drain(pair);
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
}

void unread_bytes_reset_the_peer(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 10);
    while (!sock::has_input(*pair.b.s))
        sock::engine_poll();
    sock::forget(pair.b.fd);
    ::close(pair.b.fd);
    pair.b.fd = -1;
    char byte;
    assert_int_equal(sock::receive(*pair.a.s, pair.a.fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
}

void nothing_to_move_returns_at_once(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    char byte;
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, &byte, 0, 0), 0);
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 0, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    send_some(pair.a, 1);
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, &byte, 0, 0), 0);
    drain(pair);
}

// An error, not an end: bytes may be missing.
void is_reset(End &end)
{
    char byte;
    assert_int_equal(sock::receive(*end.s, end.fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
}

void a_lying_peer_ends_the_connection(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    pair.a.s->tx_lock.lock();
    assert_true(sock::send_tag(*pair.a.s, sock::Tag::kData, 1 << 30));
    sock::unlock_tx(*pair.a.s);
    is_reset(pair.b);
    is_reset(pair.a); // its last bytes may be unread
}

void a_offloaded_socket_is_not_torn_down_by_who_stops_offloading(void **)
{
    Pair pair;
    assert_true(offload(pair));
    send_some(pair.a, 5000);
    sock::stop_offloading(*pair.b.s);
    assert_true(sock::has_endpoint(*pair.b.s));
    drain(pair);
}

// The peer writes on while the socket goes to the kernel just when it becomes offloaded.
void pinned_at_the_moment_of_the_offload(void **)
{
    std::mt19937_64 random(seed());
    for (int round = 0; round < 300; ++round) {
        constexpr std::uint64_t kBytes = 20000;
        constexpr std::uint64_t kFewToOffload = 2000;
        Pair pair;
        std::thread writer([&pair] {
            while (pair.a.sent < kBytes)
                send_some(pair.a, 10);
        });
        const std::uint64_t until = random() % kFewToOffload;
        while (pair.b.received < until ||
               (until % 2 == 0 && !sock::is_offloaded(*pair.b.s) && pair.b.received < kBytes / 2))
            receive_some(pair.b, pair.a, 100, 0);
        sock::pin_to_kernel(*pair.b.s, "the test wants it");
        writer.join();
        drain(pair);
    }
}

// The endpoint is asked for when the socket is named for a child, and is there when the child writes.
void given_to_a_child_while_an_endpoint_comes(void **)
{
    {
        Pair first; // the helper thread runs
        assert_true(offload(first));
        drain(first);
    }
    Pair pair;
    {
        const sock::LockGuard helper_rests(sock::g_helper.turn);
        for (unsigned i = 0; !sock::has_endpoint(*pair.b.s); ++i) {
            assert_true(i < 10'000);
            send_some(pair.a, 10);
            receive_some(pair.b, pair.a, 100, 0);
            send_some(pair.b, 10);
            receive_some(pair.a, pair.b, 100, 0);
        }
        assert_false(sock::is_offloaded(*pair.b.s));
        sock::given_to_child(*pair.b.s);
    }
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::has_endpoint(*pair.b.s)) { // until the helper thread has seen to it
        assert_true(sock::now_ns() < until);
        sched_yield();
    }
    assert_false(sock::is_offloaded(*pair.b.s));
    for (int i = 0; i < 100; ++i) {
        send_some(pair.b, 10);
        receive_some(pair.a, pair.b, 100, 0);
    }
    assert_true(pair.b.s->tx.path.load() == sock::Path::kKernel);
    drain(pair);
}

// What lies in the kernel's queue is more than the program says now that may lie there.
void given_back_over_a_full_kernel(void **)
{
    const auto set_buffer = [](int fd, int name, int bytes) {
        assert_int_equal(::setsockopt(fd, SOL_SOCKET, name, &bytes, sizeof bytes), 0);
    };
    Pair pair;
    set_buffer(pair.b.fd, SO_RCVBUF, 16384);
    set_buffer(pair.a.fd, SO_SNDBUF, 212992);
    send_until_full(pair.a);
    assert_true(offload(pair));
    for (const std::uint64_t end = pair.a.sent + pair.a.s->tx.ring / 2; pair.a.sent < end;)
        send_some(pair.a, 4000);
    set_buffer(pair.a.fd, SO_SNDBUF, 4096);
    sock::return_one(*pair.b.s, sock::Heir::kAnybody);
    sock::return_one(*pair.a.s, sock::Heir::kAnybody);
    drain(pair);
}

// FINAL, SEEN, LEAVE and HERE, from a process of this one.
void words_of_another_host_end_the_connection(void **)
{
    for (const sock::Tag tag : {sock::Tag::kFinal, sock::Tag::kSeen, sock::Tag::kLeave, sock::Tag::kHere}) {
        Pair pair;
        assert_true(offload(pair));
        drain(pair);
        pair.a.s->tx_lock.lock();
        assert_true(sock::send_tag(*pair.a.s, tag, 0));
        sock::unlock_tx(*pair.a.s);
        is_reset(pair.b);
    }
}

int readable(const End &end)
{
    int count = 0;
    assert_int_equal(sock::bytes_readable(*end.s, end.fd, &count), 0);
    return count;
}

void await_kernel_bytes(const End &end)
{
    pollfd p = {end.fd, POLLIN, 0};
    assert_int_equal(::poll(&p, 1, -1), 1); // the kernel's own
}

// A read that gets less than it asked for tells edge-triggered programs that no more was there, as does FIONREAD
// (nginx): neither ends where the stream changes its path.
void reads_go_on_where_the_path_changes(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 100); // in the ring
    end_span(pair.a);
    send_some(pair.a, 200); // in the kernel
    await_kernel_bytes(pair.b);
    sock::engine_drain();
    assert_int_equal(readable(pair.b), 300);
    const std::uint64_t before = pair.b.received;
    receive_some(pair.b, pair.a, 1000, 0);
    assert_int_equal(pair.b.received - before, 300);

    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 100);
    end_span(pair.a);
    send_some(pair.a, 200);
    await_kernel_bytes(pair.b);
    receive_some(pair.b, pair.a, 100, 0); // the span is used up: another may start behind the 200
    while (pair.a.s->tx.path.load() != sock::Path::kEndpoint)
        sock::engine_drain();
    send_some(pair.a, 300);
    sock::engine_drain();
    assert_int_equal(readable(pair.b), 500);
    const std::uint64_t again = pair.b.received;
    receive_some(pair.b, pair.a, 1000, 0);
    assert_int_equal(pair.b.received - again, 500);
}

struct Counted {
    sock::Watcher watcher = {};
    std::uint32_t events = 0;
};

// An END that found no slot goes out with a tick of the helper thread: who waits for room to send hears of it.
void a_late_end_is_news_for_the_sender(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    Counted counted;
    counted.watcher.notify = [](sock::Watcher *watcher, std::uint32_t events) {
        reinterpret_cast<Counted *>(watcher)->events |= events;
    };
    sock::Stream &s = *pair.a.s;
    s.tx_lock.lock();
    s.tx.path = sock::Path::kKernel; // as end_transmit() leaves it when there is no slot
    s.tx.end_pending = s.tx.position;
    sock::watch(s, counted.watcher);
    s.tx_lock.unlock();
    sock::try_tx_work(s);
    sock::unwatch(counted.watcher);
    assert_true((counted.events & POLLOUT) != 0);
    drain(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(offloads_at_all),
        cmocka_unit_test(random_traffic_stays_whole),
        cmocka_unit_test(spills_and_returns_stay_whole),
        cmocka_unit_test(closed_peer_gives_all_bytes_then_eof),
        cmocka_unit_test(a_poll_in_the_kernel_holds_the_peer_back),
        cmocka_unit_test(turns_always_find_a_slot),
        cmocka_unit_test(a_return_is_heeded_when_the_endpoint_is_down),
        cmocka_unit_test(half_close_lets_the_other_half_live),
        cmocka_unit_test(what_was_shut_before_the_offload_stays_so),
        cmocka_unit_test(unread_bytes_reset_the_peer),
        cmocka_unit_test(nothing_to_move_returns_at_once),
        cmocka_unit_test(a_lying_peer_ends_the_connection),
        cmocka_unit_test(a_offloaded_socket_is_not_torn_down_by_who_stops_offloading),
        cmocka_unit_test(pinned_at_the_moment_of_the_offload),
        cmocka_unit_test(given_to_a_child_while_an_endpoint_comes),
        cmocka_unit_test(given_back_over_a_full_kernel),
        cmocka_unit_test(words_of_another_host_end_the_connection),
        cmocka_unit_test(reads_go_on_where_the_path_changes),
        cmocka_unit_test(a_late_end_is_news_for_the_sender),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
