// SPDX-License-Identifier: BSD-2-Clause
// Rules of epoll for a set that has the kernel's events and ours: merging, fairness, sets inside of sets, timeouts. The
// rules for one entry are in epoll_test.cpp, those of order in order_test.cpp.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/at_the_kernel.hpp"
#include "compat/test/mux/epoll_look.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;
using namespace epoll_look;

// ---- merging and fairness -------------------------------------------------------------------------------------------

// wrk takes a report with nothing to read behind it for an error of the connection.
void offloaded_while_the_kernel_reports_it(void **)
{
    One one(kIn); // so that the set is looked at from both sides
    const int late = fake::open_socket();
    const int next = fake::open_socket();
    assert_int_equal(add(one.epfd, late, kIn), 0);
    assert_int_equal(add(one.epfd, next, kIn), 0);
    fake::deliver(one.fd);
    fake::deliver(late);
    const config::Params before = config::g_params;
    config::g_params.select_skip_os = 1; // each wait asks the kernel first
    Events seen;
    {
        const fake::AfterTheKernel offload([late, next] {
            assert_true(fake::offload(late));
            assert_true(fake::offload(next));
        });
        seen = look(one.epfd); // fails if anybody is there twice
    }
    assert_int_equal(seen.count(static_cast<std::uint64_t>(late)), 1);
    assert_int_equal(seen.count(static_cast<std::uint64_t>(one.fd)), 1); // who was there before still comes along
    drain(one.fd);
    drain(late);
    fake::deliver(next);
    ASSERT_EVENTS(one.epfd, just(next, kIn));
    drain(next);
    ASSERT_NOTHING(one.epfd);
    config::g_params = before;
    fake::close_socket(next);
    fake::close_socket(late);
}

void kernel_events_come_along(void **)
{
    One one(kIn);
    int pipe_fds[2];
    assert_int_equal(::pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(add(one.epfd, pipe_fds[0], kIn), 0);
    assert_int_equal(::write(pipe_fds[1], "x", 1), 1);
    ASSERT_EVENTS(one.epfd, just(pipe_fds[0], kIn)); // at once, when there is nothing else
    fake::deliver(one.fd);
    bool both = false;
    bool kernel = false;
    for (unsigned i = 0; i < config::g_params.select_poll_os_ratio; ++i) {
        const Events events = look(one.epfd);
        assert_int_equal(events.count(static_cast<std::uint64_t>(one.fd)), 1);
        both = both || events.size() == 2;
    }
    assert_true(both);
    for (unsigned i = 0; i < config::g_params.select_poll_os_ratio; ++i) // nor are they oversubscribed out
        kernel = look(one.epfd, 1).count(static_cast<std::uint64_t>(pipe_fds[0])) == 1 || kernel;
    assert_true(kernel);
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
}

void ready_entries_take_turns(void **)
{
    const int epfd = fake::open_set();
    std::vector<int> fds;
    for (int i = 0; i < 50; ++i) {
        fds.push_back(fake::open_socket());
        assert_int_equal(add(epfd, fds.back(), kIn), 0);
        assert_true(fake::offload(fds.back()));
        fake::deliver(fds.back());
    }
    Events seen;
    const std::size_t calls = fds.size() / 5 * 10 / 9 + 2; // the kernel has a share of the calls
    for (std::size_t i = 0; i < calls; ++i)
        seen.merge(look(epfd, 5));
    assert_int_equal(seen.size(), fds.size());
    std::for_each(fds.begin(), fds.end(), fake::close_socket);
    ASSERT_NOTHING(epfd);
    fake::close_set(epfd);
}

// ---- nesting --------------------------------------------------------------------------------------------------------

void set_inside_of_a_set(void **)
{
    One one(kIn);
    const int outer = fake::open_set();
    assert_int_equal(add(outer, one.epfd, kIn), 0);
    ASSERT_NOTHING(outer);
    fake::deliver(one.fd);
    ASSERT_EVENTS(outer, just(one.epfd, kIn));
    ASSERT_EVENTS(outer, just(one.epfd, kIn));
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    drain(one.fd);
    ASSERT_NOTHING(outer);
    fake::deliver(one.fd);
    ASSERT_EVENTS(outer, just(one.epfd, kIn));
    fake::close_set(outer);
}

void nested_before_the_socket_is_offloaded(void **)
{
    const int inner = fake::open_set();
    const int middle = fake::open_set();
    const int outer = fake::open_set();
    const int fd = fake::open_socket();
    assert_int_equal(add(middle, inner, kIn), 0);
    assert_int_equal(add(outer, middle, kIn | EPOLLET), 0);
    assert_int_equal(add(inner, fd, kIn), 0);
    assert_int_equal(add(inner, outer, kIn), -ELOOP);
    assert_true(fake::offload(fd));
    ASSERT_NOTHING(outer); // our own wake-ups are not events
    fake::deliver(fd);
    ASSERT_EVENTS(outer, just(middle, kIn));
    ASSERT_NOTHING(outer);
    ASSERT_EVENTS(middle, just(inner, kIn));
    fake::give_up(fd);
    ASSERT_EVENTS(middle, just(inner, kIn));
    drain(fd);
    ASSERT_NOTHING(middle);
    fake::close_set(inner);
    ASSERT_NOTHING(middle);
    ASSERT_NOTHING(outer);
    fake::close_set(middle);
    fake::close_set(outer);
    fake::close_socket(fd);
}

void nested_with_kernel_events(void **)
{
    One one(kIn);
    const int outer = fake::open_set();
    int pipe_fds[2];
    assert_int_equal(::pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(add(outer, one.epfd, kIn), 0);
    assert_int_equal(add(one.epfd, pipe_fds[0], kIn), 0);
    ASSERT_NOTHING(outer);
    assert_int_equal(::write(pipe_fds[1], "x", 1), 1);
    ASSERT_EVENTS(outer, just(one.epfd, kIn));
    assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, pipe_fds[0], 0, 0), 0);
    ASSERT_NOTHING(outer);
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
    fake::close_set(outer);
}

void edge_triggered_entry_of_a_nested_set(void **)
{
    One one(kIn | EPOLLET);
    const int outer = fake::open_set();
    assert_int_equal(add(outer, one.epfd, kIn), 0);
    fake::deliver(one.fd);
    ASSERT_EVENTS(outer, just(one.epfd, kIn)); // looking from outside doesn't use the edge up
    ASSERT_EVENTS(outer, just(one.epfd, kIn));
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
    ASSERT_NOTHING(outer);
    fake::close_set(outer);
}

// Another thread looks within the kernel's call, whether the socket may be accelerated.
struct SelfAdd {
    decltype(&::epoll_ctl) kernels = nullptr;
    int member = -1; // a socket in the set
    bool looked = false;
};
constinit SelfAdd g_self_add;

int look_and_refuse(int epfd, int op, int fd, epoll_event *event) noexcept
{
    (void)mux::stays_in_kernel(sock::mux_hook(*sock::lookup(g_self_add.member)));
    g_self_add.looked = true;
    return g_self_add.kernels(epfd, op, fd, event);
}

void a_set_that_is_refused_into_itself_is_no_loop(void **)
{
    One one(kIn);
    g_self_add = {libc::real.epoll_ctl, one.fd, false};
    libc::real.epoll_ctl = look_and_refuse;
    const int result = add(one.epfd, one.epfd, kIn);
    libc::real.epoll_ctl = g_self_add.kernels;
    assert_int_equal(result, -EINVAL);
    assert_true(g_self_add.looked);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, kIn));
}

// ---- time -----------------------------------------------------------------------------------------------------------

void timeout_ends_spin_and_sleep(void **)
{
    One one(kIn);
    epoll_event event;
    const timespec brief = {0, 300001};
    for (const std::int64_t spin : {std::int64_t{0}, std::int64_t{100}, std::int64_t{1000000}, std::int64_t{-1}}) {
        config::g_params.select_poll = spin;
        for (const std::uint32_t ratio : {0U, 1U, 10U}) {
            config::g_params.select_poll_os_ratio = ratio;
            assert_int_equal(mux::epoll_wait(one.epfd, &event, 1, &brief, nullptr), 0);
        }
    }
    config::g_params = config::Params{};
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(offloaded_while_the_kernel_reports_it),
        cmocka_unit_test(kernel_events_come_along),
        cmocka_unit_test(ready_entries_take_turns),
        cmocka_unit_test(set_inside_of_a_set),
        cmocka_unit_test(nested_before_the_socket_is_offloaded),
        cmocka_unit_test(nested_with_kernel_events),
        cmocka_unit_test(edge_triggered_entry_of_a_nested_set),
        cmocka_unit_test(a_set_that_is_refused_into_itself_is_no_loop),
        cmocka_unit_test(timeout_ends_spin_and_sleep),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
