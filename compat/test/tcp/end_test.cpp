// SPDX-License-Identifier: BSD-2-Clause
// What is told of the end of the peer's bytes, to programs that take the next short receive for the last one.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

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

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(all_that_came_before_is_counted),
        cmocka_unit_test(between_hosts_there_is_none_before_all_is_here),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
