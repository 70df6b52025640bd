// SPDX-License-Identifier: BSD-2-Clause
// Descriptors whose last close could wait for as long as their sender likes: in whatever way another user's process
// sends one over a link, we never let go of it.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <sys/resource.h>

#include "local/msg/endpoint.hpp"
#include "local/strangers.hpp"
#include "prov/vma/test/local/guest_meeting.hpp"
#include "prov/vma/test/local/trap.hpp"

namespace {

using namespace vma::test;
using namespace vma;
using vma::core::UniqueFd;

// What a stranger sends into his end of a link.
using Trick = std::function<void(int link, Trap &trap)>;

void more_than_there_is_room_for(int link, Trap &trap)
{
    for (const std::size_t pads : {6UL, 20UL}) {
        std::vector<Ends> ends;
        std::vector<int> fds;
        for (std::size_t i = 0; i < pads; ++i)
            fds.push_back(ends.emplace_back(SOCK_STREAM).a.get());
        fds.push_back(trap.fd());
        static_cast<void>(send_fds(link, 7, fds));
    }
}

void behind_others(int link, Trap &trap)
{
    static_cast<void>(send(link, "garbage", 7, MSG_NOSIGNAL));
    assert_true(send_fds(link, 7, {trap.fd()}));
}

void behind_one_without_bytes(int link, Trap &trap)
{
    static_cast<void>(send(link, "", 0, MSG_NOSIGNAL));
    assert_true(send_fds(link, 0, {trap.fd()}));
}

void in_a_socket(int link, Trap &trap, int type, int flags, bool take)
{
    const Ends ends(type);
    assert_true(send_fds(ends.b.get(), 1, {trap.fd()}, flags));
    char byte = 0;
    if (take)
        assert_int_equal(recv(ends.a.get(), &byte, 1, flags), 1);
    assert_true(send_fds(link, 7, {ends.a.get()}));
}

void in_a_bell(int link, Trap &trap)
{
    in_a_socket(link, trap, SOCK_STREAM, 0, false);
}

void in_a_socket_for_datagrams(int link, Trap &trap)
{
    in_a_socket(link, trap, SOCK_DGRAM, 0, false);
}

void with_an_urgent_byte(int link, Trap &trap)
{
    in_a_socket(link, trap, SOCK_STREAM, MSG_OOB, false);
}

// The kernel keeps the descriptors where the byte was.
void with_an_urgent_byte_that_was_read(int link, Trap &trap)
{
    in_a_socket(link, trap, SOCK_STREAM, MSG_OOB, true);
}

void in_a_listener(int link, Trap &trap)
{
    const UniqueFd door(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t); // the kernel chooses
    assert_int_equal(bind(door.get(), reinterpret_cast<const sockaddr *>(&name), length), 0);
    assert_int_equal(listen(door.get(), 1), 0);
    length = sizeof name;
    assert_int_equal(getsockname(door.get(), reinterpret_cast<sockaddr *>(&name), &length), 0);
    const UniqueFd guest(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    assert_int_equal(connect(guest.get(), reinterpret_cast<const sockaddr *>(&name), length), 0);
    assert_true(send_fds(guest.get(), 1, {trap.fd()}));
    assert_true(send_fds(link, 7, {door.get()}));
}

const Trick kTricks[] = {
    more_than_there_is_room_for, behind_others,       behind_one_without_bytes,          in_a_bell,
    in_a_socket_for_datagrams,   with_an_urgent_byte, with_an_urgent_byte_that_was_read, in_a_listener};

void no_link_lets_it_go(void **)
{
    for (const Trick &trick : kTricks) {
        Trap trap;
        {
            Meeting m;
            UniqueFd listener = listening();
            hand_over(&m.pep->fid, listener, 1);
            const UniqueFd link = reached();
            trick(link.get(), trap);
            trap.is_sent();
            for (int i = 0; i < 20; ++i)
                static_cast<void>(m.server.poll());
            assert_true(trap.is_held());
        }
        assert_true(trap.is_held());
        forget_what_was_left_open();
    }
}

// Those who wait in the listener are met by nobody.
void no_listener_lets_it_go(void **)
{
    for (const Trick &trick : kTricks) {
        Trap trap;
        Meeting m;
        UniqueFd listener = listening();
        hand_over(&m.pep->fid, listener, 1);
        const UniqueFd first = reached();
        const UniqueFd link = reached();
        trick(link.get(), trap);
        trap.is_sent();
        assert_int_equal(give(&m.pep->fid, FI_OPT_VMA_UNLINK, -1, 1), 0);
        assert_true(trap.is_held());
        assert_false(static_cast<bool>(reached()));
        forget_what_was_left_open();
    }
}

// An endpoint is closed that has a link and asked nobody, or that waits for an answer.
void no_endpoint_lets_it_go(void **)
{
    for (const bool asks : {false, true}) {
        for (const Trick &trick : kTricks) {
            Trap trap;
            {
                Meeting m;
                Ends ends;
                fid_ep *const ep = m.client.endpoint();
                assert_int_equal(stand_beside(ep, m.tcp.client), 0);
                hand_over(&ep->fid, ends.a);
                if (asks)
                    assert_int_equal(fi_connect(ep, nullptr, "hello", 5), 0);
                trick(ends.b.get(), trap);
                trap.is_sent();
                close_all({&ep->fid});
            }
            assert_true(trap.is_held());
            forget_what_was_left_open();
        }
    }
}

// An honest guest who comes too late costs us nothing.
void what_is_harmless_is_closed(void **)
{
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    fid_ep *const ep = m.client.endpoint();
    assert_int_equal(fi_enable(ep), 0);
    local::EndpointOffer offer;
    int fds[local::kOfferFdCount];
    assert_int_equal(local::Endpoint::from(ep).make_offer(offer, fds, 77), 0);
    const int before = open_descriptors();
    {
        const UniqueFd link = reached();
        assert_true(send_fds(link.get(), 0, {}));
        assert_true(send_fds(link.get(), 64, {fds[local::kFdSegment], fds[local::kFdDoorbell], fds[local::kFdWake]}));
    }
    assert_int_equal(give(&m.pep->fid, FI_OPT_VMA_UNLINK, -1, 1), 0);
    assert_int_equal(open_descriptors(), before - 1);
    assert_int_equal(g_sockets_left_open, 0);
    close_all({&ep->fid});
}

// `socket` is closed once the other end sees its end.
bool is_over(const UniqueFd &other)
{
    pollfd wait{other.get(), POLLIN, 0};
    return poll(&wait, 1, 0) == 1 && (wait.revents & POLLHUP) != 0;
}

void only_what_brings_a_trap_stays_open(void **)
{
    for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
        Ends ends(type);
        const Ends bell(SOCK_STREAM);
        for (std::size_t i = 0; i < 100; ++i)
            assert_true(send_fds(ends.b.get(), type == SOCK_STREAM ? 5 : i % 3, {}));
        const int number = ends.a.get();
        if (type == SOCK_SEQPACKET)
            assert_true(send_fds(ends.b.get(), 5, {bell.a.get(), bell.a.get()}));
        local::let_go(std::move(ends.a));
        assert_int_equal(fcntl(number, F_GETFD), -1);
        assert_true(is_over(ends.b));
        assert_true(send(bell.a.get(), "x", 1, MSG_NOSIGNAL) == 1); // it rings as before
        assert_int_equal(g_sockets_left_open, 0);
    }
    Ends ends;
    Trap trap;
    behind_one_without_bytes(ends.b.get(), trap);
    trap.is_sent();
    const int number = ends.a.get();
    local::let_go(std::move(ends.a));
    assert_true(fcntl(number, F_GETFD) != -1);
    assert_true(trap.is_held());
    assert_int_equal(g_sockets_left_open, 1);
    assert_false(send(ends.b.get(), "x", 1, MSG_NOSIGNAL) == 1);
    forget_what_was_left_open();
}

// A bell that is let go of with descriptors in it makes none of ours.
void no_look_at_a_stream_takes_descriptors(void **)
{
    for (std::size_t count = 1; count < 8; ++count) {
        Ends ends(SOCK_STREAM);
        Trap trap;
        assert_true(send_fds(ends.b.get(), 5, {}));
        for (int i = 0; i < 3; ++i)
            assert_true(send_fds(ends.b.get(), 5, std::vector<int>(count, trap.fd())));
        trap.is_sent();
        const int before = open_descriptors();
        local::let_go(std::move(ends.a));
        assert_int_equal(open_descriptors(), before);
        assert_true(trap.is_held());
    }
    assert_int_equal(g_sockets_left_open, 7);
    forget_what_was_left_open();
}

void a_listener_is_closed_where_there_is_no_descriptor_left(void **)
{
    UniqueFd listener = listening();
    const int number = listener.get();
    rlimit limit{};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{1, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    local::let_go_of_listener(std::move(listener));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(fcntl(number, F_GETFD), -1);
    assert_int_equal(g_sockets_left_open, 0);
}

void who_leaves_too_many_ends_it_for_all(void **)
{
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    g_sockets_left_open = kMostLeftOpen;
    Ends ends;
    fid_ep *const active = m.client.endpoint();
    assert_int_equal(stand_beside(active, m.tcp.client), 0);
    hand_over(&active->fid, ends.a);
    assert_int_equal(fi_connect(active, nullptr, "hello", 5), 0);
    expect_refused(m.client.wait(), &active->fid);
    const UniqueFd link = reached();
    const int before = open_descriptors();
    for (int i = 0; i < 20; ++i)
        static_cast<void>(m.server.poll());
    assert_int_equal(open_descriptors(), before); // nobody takes it
    close_all({&active->fid});
    forget_what_was_left_open();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_link_lets_it_go),
        cmocka_unit_test(no_listener_lets_it_go),
        cmocka_unit_test(no_endpoint_lets_it_go),
        cmocka_unit_test(what_is_harmless_is_closed),
        cmocka_unit_test(only_what_brings_a_trap_stays_open),
        cmocka_unit_test(no_look_at_a_stream_takes_descriptors),
        cmocka_unit_test(a_listener_is_closed_where_there_is_no_descriptor_left),
        cmocka_unit_test(who_leaves_too_many_ends_it_for_all),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
