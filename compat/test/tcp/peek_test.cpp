// SPDX-License-Identifier: BSD-2-Clause
// MSG_PEEK over the real provider, both ends in this process: it tells what a read would get, wherever that lies, and
// leaves it there.
#include "fabtests/unit.hpp"

#include <sched.h>
#include <sys/socket.h>

#include <thread>

#include "compat/src/engine/engine.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void peek(Pair &pair, std::size_t room, int flags, std::size_t expected)
{
    std::uint8_t bytes[1000] = {};
    assert_int_equal(sock::receive(*pair.b.s, pair.b.fd, bytes, room, MSG_PEEK | flags), expected);
    if ((flags & MSG_TRUNC) == 0)
        check_bytes(pair.b, pair.a.key, bytes, expected);
}

// As a read does: before, in and behind a span.
void peeks_go_on_where_the_path_changes(void **)
{
    Pair pair;
    send_some(pair.a, 100);
    offload_over_unread(pair);
    send_some(pair.a, 200);
    peek(pair, 1000, MSG_DONTWAIT, 300);
    peek(pair, 300, MSG_WAITALL, 300);
    end_span(pair.a);
    send_some(pair.a, 300);
    for (const int flags : {0, int{MSG_DONTWAIT}, int{MSG_TRUNC}, MSG_DONTWAIT | MSG_WAITALL, int{MSG_DONTWAIT}}) {
        peek(pair, 1000, flags, 600);
        peek(pair, 350, flags, 350);
        peek(pair, 250, flags, 250);
        peek(pair, 50, flags, 50);
    }
    peek(pair, 600, MSG_WAITALL, 600);
    drain(pair);
}

// The last byte is in the queue, and nobody has looked there.
void a_peek_looks_into_the_queue(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 7);
    peek(pair, 8, MSG_DONTWAIT, 7);
    send_some(pair.a, 1);
    peek(pair, 8, MSG_DONTWAIT, 8);
    drain(pair);
}

// What is missing comes by the kernel while the call waits, behind what stays.
void a_peek_for_all_waits_behind_a_span(bool at_start)
{
    Pair pair;
    const std::size_t there = at_start ? 100 : 0;
    if (at_start)
        send_some(pair.a, there);
    offload_over_unread(pair);
    send_some(pair.a, 200);
    end_span(pair.a);
    sock::pin_to_kernel(*pair.b.s, "it leaves what it has");
    const std::uint64_t all = pair.a.sent + 300;
    std::thread sender([&] {
        while (pair.a.sent != all)
            send_some(pair.a, all - pair.a.sent);
    });
    peek(pair, there + 500, MSG_WAITALL, there + 500);
    sender.join();
    drain(pair);
}

void peeks_for_all_wait_behind_a_span(void **)
{
    a_peek_for_all_waits_behind_a_span(false);
    a_peek_for_all_waits_behind_a_span(true);
}

// What another user has sent is looked at by the kernel, where bytes lie before a span of the ring and behind it: a
// look does not go across.
void a_look_at_a_guests_does_not_skip_a_span(void **)
{
    Pair pair;
    send_some(pair.a, 100);
    assert_true(offload(pair));
    send_some(pair.a, 200);
    sock::pin_to_kernel(*pair.a.s, "its other end looks");
    send_some(pair.a, 300);
    pair.b.s->guest = true;
    std::uint8_t bytes[1000];
    iovec part = {bytes, sizeof bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t n = sock::receive_msg(*pair.b.s, pair.b.fd, &message, MSG_PEEK | MSG_DONTWAIT);
    assert_true(n > 0);
    check_bytes(pair.b, pair.a.key, bytes, static_cast<std::size_t>(n));
    pair.b.s->guest = false;
    drain(pair);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(peeks_go_on_where_the_path_changes),
        cmocka_unit_test(a_peek_looks_into_the_queue),
        cmocka_unit_test(peeks_for_all_wait_behind_a_span),
        cmocka_unit_test(a_look_at_a_guests_does_not_skip_a_span),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
