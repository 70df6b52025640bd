// SPDX-License-Identifier: BSD-2-Clause
// What is told of the end of the peer's bytes, to programs that take the next short receive for the last one.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "compat/src/libc/real.hpp"
#include "compat/src/sharing/open_file.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint32_t kAsked = POLLIN | POLLRDHUP;
constexpr int kTurns = 1000;

std::uint32_t look(End &end)
{
    sock::note_kernel_events(*end.s, kAsked);
    return sock::ready_events(*end.s, end.fd, kAsked) & kAsked;
}

// What is published before the kernel's FIN may not be counted yet, as where another thread is about to.
void all_that_came_before_is_counted(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.a, pair.b, 1000);
    const sock::RingMask rings = ring_of(*pair.b.s);
    sock::engine_exclude_polling(true, rings);
    send_some(pair.a, 1000);
    ::shutdown(pair.a.fd, SHUT_WR);
    std::atomic<bool> looks{false};
    std::uint32_t events = 0;
    ssize_t received = 0;
    std::thread receiver([&] {
        std::uint8_t bytes[4096];
        looks = true;
        events = look(pair.b);
        received = sock::receive(*pair.b.s, pair.b.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    });
    while (!looks)
        ::sched_yield();
    for (int i = 0; i < kTurns; ++i)
        ::sched_yield();
    sock::engine_exclude_polling(false, rings);
    receiver.join();
    assert_int_equal(events, kAsked);
    assert_int_equal(received, 2000);
}

// `a` has sent 100 bytes by the kernel, and then a span without a byte.
void send_empty_span(Pair &pair)
{
    send_some(pair.a, 100);
    offload_over_unread(pair);
    end_span(pair.a);
}

// The kernel's delivery is another processor's, maybe.
void wait_for_kernel(const End &end, int bytes, short events)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    pollfd p = {end.fd, events, 0};
    int queued = 0;
    while (::ioctl(end.fd, FIONREAD, &queued) != 0 || queued != bytes || ::poll(&p, 1, 0) != 1) {
        assert_true(sock::now_ns() < until);
        ::sched_yield();
    }
}

// Nobody but who reads its last byte before an empty span knows that this is over: what the kernel has behind it, which
// has told of itself before, is not to wait for the helper thread.
void an_empty_span_hides_no_end(void **)
{
    Pair pair;
    send_empty_span(pair);
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    wait_for_kernel(pair.b, 100, POLLRDHUP);
    sock::note_kernel_events(*pair.b.s, kAsked);
    receive_some(pair.b, pair.a, 4096, 0);
    assert_int_equal(pair.b.received, 100);
    assert_int_equal(sock::ready_events(*pair.b.s, pair.b.fd, POLLIN) & POLLIN, POLLIN);
}

// Nor does a span whose end has come while another thread was reading its last byte, and had the lock.
void a_span_that_nobody_settles_hides_no_end(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.a, pair.b, 100);
    receive_some(pair.b, pair.a, 100, 0);
    pair.b.s->rx_lock.lock();
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    sock::engine_drain(ring_of(*pair.b.s));
    const bool unsettled = pair.b.s->rx.path.load() == sock::Path::kEndpoint;
    wait_for_kernel(pair.b, 0, POLLRDHUP);
    const std::uint32_t events = sock::ready_events(*pair.b.s, pair.b.fd, POLLIN) & POLLIN;
    pair.b.s->rx_lock.unlock();
    assert_true(unsettled);
    assert_int_equal(events, POLLIN);
}

Pair *g_beside;

// The kernel has told of its bytes before, and does so once.
void a_span_that_another_thread_reads_meanwhile_hides_nothing(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.a, pair.b, 100);
    end_span(pair.a);
    sock::engine_drain(ring_of(*pair.b.s));
    send_some(pair.a, 50);
    wait_for_kernel(pair.b, 50, POLLIN);
    g_beside = &pair;
    const sock::Transport *const transport = pair.b.s->transport;
    sock::Transport looks_late = *transport;
    looks_late.confirm_input = [](sock::Stream &) {
        receive_some(g_beside->b, g_beside->a, 100, 0);
        return sock::has_input(*g_beside->b.s);
    };
    pair.b.s->transport = &looks_late;
    const std::uint32_t events = sock::ready_events(*pair.b.s, pair.b.fd, POLLIN) & POLLIN;
    pair.b.s->transport = transport;
    assert_int_equal(pair.b.received, pair.a.sent - 50);
    assert_int_equal(events, POLLIN);
}

// As of an edge-triggered program that takes a short read for the last one.
void a_read_goes_on_behind_an_empty_span(void **)
{
    Pair pair;
    send_empty_span(pair);
    send_some(pair.a, 200);
    wait_for_kernel(pair.b, 300, POLLIN);
    receive_some(pair.b, pair.a, 4096, 0);
    assert_int_equal(pair.b.received, 300);
}

// Its FIN may overtake what goes by the device.
void between_hosts_there_is_none_before_all_is_here(void **)
{
    Offloaded pair;
    sock::Receiver &rx = pair.b.s->rx;
    rx.ended_at_ns.store(INT64_MAX); // it is waited for without end
    ::shutdown(pair.a.fd, SHUT_WR);
    assert_int_equal(look(pair.b), 0);
    rx.final_seen.store(true);
    assert_int_equal(look(pair.b), kAsked);
}

// The end by the endpoint is no event before the kernel's is known; else who waits for an edge hears of it alone.
struct Heard {
    sock::Watcher watcher; // first
    std::uint32_t events = 0;
};

std::uint32_t heard_with_end(bool fin_is_known)
{
    Pair pair;
    Heard heard;
    heard.watcher.notify = [](sock::Watcher *w, std::uint32_t events) {
        reinterpret_cast<Heard *>(w)->events |= events;
    };
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.a, pair.b, 1000);
    const sock::RingMask rings = ring_of(*pair.b.s);
    sock::engine_exclude_polling(true, rings);
    sock::watch(*pair.b.s, heard.watcher);
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    if (fin_is_known)
        sock::note_kernel_events(*pair.b.s, kAsked);
    sock::engine_exclude_polling(false, rings);
    sock::engine_drain(rings);
    sock::unwatch(heard.watcher);
    return heard.events;
}

void the_end_is_the_kernels_to_tell(void **)
{
    assert_int_equal(heard_with_end(false) & (POLLIN | sock::kBeforeEnd), POLLIN | sock::kBeforeEnd);
    assert_int_equal(heard_with_end(true) & (POLLIN | sock::kBeforeEnd), POLLIN);
}

// Until somebody takes it, and then not again.
void an_error_is_told_until_it_is_taken(void **)
{
    constexpr std::uint32_t kFailed = kAsked | POLLOUT | POLLHUP | POLLERR;
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    sockaddr unspecified = {};
    unspecified.sa_family = AF_UNSPEC;
    assert_int_equal(::connect(pair.a.fd, &unspecified, sizeof unspecified), 0); // sends RST
    sock::note_kernel_events(*pair.b.s, kFailed);
    for (int i = 0; i < 2; ++i)
        assert_int_equal(sock::ready_events(*pair.b.s, pair.b.fd, kAsked) & kFailed, kAsked | POLLHUP | POLLERR);
    int error = 0;
    socklen_t size = sizeof error;
    assert_int_equal(sock::get_option(*pair.b.s, pair.b.fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    assert_int_equal(error, ECONNRESET);
    assert_int_equal(sock::ready_events(*pair.b.s, pair.b.fd, kAsked) & kFailed, kAsked | POLLHUP);
    assert_int_equal(sock::ready_events_fast(*pair.b.s, kAsked) & POLLERR, 0);
}

// Where another thread looks what other processes have changed, between the kernel's call and what follows it.
struct Shutdown {
    decltype(&::shutdown) kernels = nullptr;
    sock::Socket *looked_at = nullptr; // nullptr: the call fails
    bool is_ours = false;
};
constinit Shutdown g_shutdown;

int shut_and_look(int fd, int how) noexcept
{
    errno = ENOTCONN;
    const int result = g_shutdown.looked_at != nullptr ? g_shutdown.kernels(fd, how) : -1;
    if (result == 0)
        g_shutdown.is_ours = sock::follow_open_file(*g_shutdown.looked_at);
    return result;
}

void an_end_of_our_own_is_no_other_processs(void **)
{
    for (const int how : {SHUT_RD, SHUT_RDWR}) {
        Pair pair;
        g_shutdown = {libc::real.shutdown, nullptr, false};
        libc::real.shutdown = shut_and_look;
        const int refused = sock::shut_down(*pair.a.s, pair.a.fd, how);
        const bool taken_back = !pair.a.s->receive_shut;
        g_shutdown.looked_at = pair.a.s;
        const int done = sock::shut_down(*pair.a.s, pair.a.fd, how);
        libc::real.shutdown = g_shutdown.kernels;
        assert_int_equal(refused, -1);
        assert_true(taken_back);
        assert_int_equal(done, 0);
        assert_true(g_shutdown.is_ours);
        assert_null(pair.a.s->kernel_reason.load());
    }
}

// shutdown() itself frees nothing, as a handler may call it within malloc().
void who_shuts_both_directions_leaves_the_ring(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.b, pair.a, 100);
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_RD), 0);
    assert_false(pair.a.s->rx.cut);
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::has_endpoint(*pair.a.s)) {
        assert_true(sock::now_ns() < until);
        ::sched_yield();
    }
    receive_some(pair.a, pair.b, 4096, 0);
    assert_int_equal(pair.a.received, pair.b.sent);
    expect_receive(pair.a, 0, 0);
    send_some(pair.b, 1); // by the kernel, which refuses it
    pollfd p = {pair.a.fd, 0, 0};
    while (::poll(&p, 1, 0) != 1 || (p.revents & POLLERR) == 0) {
        assert_true(sock::now_ns() < until);
        ::sched_yield();
    }
    expect_receive(pair.a, -1, ECONNRESET);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(all_that_came_before_is_counted),
        cmocka_unit_test(an_empty_span_hides_no_end),
        cmocka_unit_test(a_span_that_nobody_settles_hides_no_end),
        cmocka_unit_test(a_span_that_another_thread_reads_meanwhile_hides_nothing),
        cmocka_unit_test(a_read_goes_on_behind_an_empty_span),
        cmocka_unit_test(between_hosts_there_is_none_before_all_is_here),
        cmocka_unit_test(the_end_is_the_kernels_to_tell),
        cmocka_unit_test(an_error_is_told_until_it_is_taken),
        cmocka_unit_test(an_end_of_our_own_is_no_other_processs),
        cmocka_unit_test(who_shuts_both_directions_leaves_the_ring),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
