// SPDX-License-Identifier: BSD-2-Clause
// Endpoints that are left in front of a fork(): closed behind it, all of them, and once each.
#include "fabtests/unit.hpp"

#include <sched.h>

#include <array>

#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

std::uint32_t open_endpoints()
{
    const sock::LockGuard guard(sock::g_offload.lock);
    return sock::engine_device().users;
}

// As when the fork is over.
void let_them_go()
{
    {
        const sock::LockGuard guard(sock::g_offload.lock);
        sock::retired_may_go();
        sock::wake_for_retired();
    }
    while (open_endpoints() != 0)
        sched_yield(); // to the helper thread
}

template <std::size_t kCount> void offload_all(std::array<Pair, kCount> &pairs)
{
    for (Pair &pair : pairs) {
        assert_true(offload(pair));
        drain(pair);
    }
}

template <std::size_t kCount> void exchange(std::array<Pair, kCount> &pairs)
{
    for (Pair &pair : pairs) {
        send_some(pair.a, 20);
        send_some(pair.b, 30);
        drain(pair);
    }
}

void idle_ones_are_closed_behind_it(void **)
{
    std::array<Pair, 3> pairs;
    offload_all(pairs);
    assert_int_equal(open_endpoints(), 6);
    sock::return_before_fork();
    assert_int_equal(open_endpoints(), 6);
    for (const Pair &pair : pairs)
        assert_false(sock::has_endpoint(*pair.a.s) || sock::has_endpoint(*pair.b.s));
    let_them_go();
    exchange(pairs);
}

void one_of_a_socket_waits(void **)
{
    std::array<Pair, 2> pairs;
    for (int fork = 0; fork < 3; ++fork) {
        offload_all(pairs);
        sock::return_before_fork();
        assert_int_equal(open_endpoints(), 4);
    }
    let_them_go();
    offload_all(pairs);
    sock::return_before_fork();
    assert_int_equal(open_endpoints(), 4);
    let_them_go();
}

void unread_bytes_close_it_at_once(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_some(pair.a, 1000);
    sock::return_before_fork();
    assert_int_equal(open_endpoints(), 1); // the sender's
    let_them_go();
    drain(pair);
}

void a_socket_may_be_closed_before(void **)
{
    {
        std::array<Pair, 2> pairs;
        offload_all(pairs);
        sock::return_before_fork();
    }
    assert_int_equal(open_endpoints(), 4);
    std::array<Pair, 2> others; // in the same places
    offload_all(others);
    sock::return_before_fork();
    let_them_go();
    exchange(others);
}

thread_local int t_asked = 0;

int count_getsockopt(int fd, int level, int name, void *value, socklen_t *size) noexcept
{
    ++t_asked;
    return ::getsockopt(fd, level, name, value, size);
}

// The helper thread goes by it as well.
void ask_by(decltype(&::getsockopt) function)
{
    const sock::LockGuard at_rest(sock::g_helper.turn);
    libc::real.getsockopt = function;
}

// Each of them hears the END of its peer, which is in this process too, before it leaves itself.
void the_kernel_is_not_asked(void **)
{
    std::array<Pair, 8> pairs;
    offload_all(pairs);
    ask_by(count_getsockopt);
    sock::return_before_fork();
    ask_by(::getsockopt);
    assert_int_equal(t_asked, 0);
    let_them_go();
    exchange(pairs);
}

// A copy of which the provider does not hear would take what is left open for its own.
void none_is_left_in_a_clone(void **)
{
    std::array<Pair, 2> pairs;
    offload_all(pairs);
    sock::return_before_fork();
    assert_int_equal(open_endpoints(), 4);
    offload_all(pairs);
    sock::clone_begins();
    const std::uint32_t left = sock::engine_device().users; // the offload lock is held
    sock::fork_ends_in_parent();
    assert_int_equal(left, 0);
    exchange(pairs);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(idle_ones_are_closed_behind_it), cmocka_unit_test(one_of_a_socket_waits),
        cmocka_unit_test(unread_bytes_close_it_at_once),  cmocka_unit_test(a_socket_may_be_closed_before),
        cmocka_unit_test(the_kernel_is_not_asked),        cmocka_unit_test(none_is_left_in_a_clone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
