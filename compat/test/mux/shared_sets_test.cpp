// SPDX-License-Identifier: BSD-2-Clause
// Epoll sets that other processes have too: what these find in the kernel's set, and when.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/at_the_kernel.hpp"
#include "compat/test/mux/epoll_look.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace epoll_look;

bool kernel_has(int epfd, int fd)
{
    epoll_event event = {};
    if (libc::real.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) != 0)
        return errno == EEXIST;
    libc::real.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, nullptr);
    return false;
}

bool is_offloaded(int fd)
{
    return sock::is_offloaded(*sock::lookup(fd));
}

void pass_on(int epfd)
{
    mux::set_passed(epfd);
}

// ---- registering ----------------------------------------------------------------------------------------------------

// An EPOLL_CTL_ADD, and what others do meanwhile.
struct {
    int epfd = -1;
    int fd = -1;
    bool was_given_back = false;
    bool was_seen = false; // by who waits for the set in another process, before
} g_add;

void look_when_given_back()
{
    g_add.was_given_back = true;
    g_add.was_seen = kernel_has(g_add.epfd, g_add.fd);
}

void begin_adding(int epfd, int fd)
{
    g_add = {.epfd = epfd, .fd = fd};
    fake::g_before_return = look_when_given_back;
}

void add_offloaded(int epfd, int fd)
{
    begin_adding(epfd, fd);
    assert_int_equal(add(epfd, fd, EPOLLIN), 0);
    fake::g_before_return = nullptr;
    assert_true(g_add.was_given_back);
    assert_false(g_add.was_seen);
}

// Who waits in another process must not hear of a connection before it is the kernel's again.
void is_back_before_a_shared_set_has_it(void **)
{
    const int outer = fake::open_set(), inside = fake::open_set(), joins = fake::open_set();
    const int fds[] = {fake::open_socket(), fake::open_socket(), fake::open_socket()};
    assert_int_equal(add(outer, inside, EPOLLIN), 0);
    assert_int_equal(add(joins, fds[2], EPOLLIN), 0);
    mux::set_passed(outer);
    for (const int fd : fds)
        assert_true(fake::offload(fd));
    add_offloaded(outer, fds[0]);
    add_offloaded(inside, fds[1]); // which is private, and in a shared one
    add_offloaded(outer, joins);   // with one that is offloaded
    for (const int fd : fds)
        fake::close_socket(fd);
    for (const int set : {outer, inside, joins})
        fake::close_set(set);
}

struct {
    std::thread thread;
    bool accelerated = false;
} g_other;

// Another thread accelerates the socket: to the end, or until it waits for who holds the set's lock.
void accelerate_meanwhile()
{
    g_other.thread = std::thread([] { g_other.accelerated = fake::offload(g_add.fd); });
    mux::Set &set = *mux::set_of(g_add.epfd);
    if (set.lock.try_lock()) {
        set.lock.unlock();
        g_other.thread.join();
    }
    while (g_other.thread.joinable() && !is_offloaded(g_add.fd))
        std::this_thread::yield();
}

void is_accelerated_while_a_shared_set_gets_it(void **)
{
    const int epfd = fake::open_set();
    mux::set_passed(epfd);
    begin_adding(epfd, fake::open_socket());
    fake::g_after_asking = accelerate_meanwhile;
    assert_int_equal(add(epfd, g_add.fd, EPOLLIN), 0);
    if (g_other.thread.joinable())
        g_other.thread.join();
    assert_false(is_offloaded(g_add.fd));
    assert_false(g_other.accelerated && g_add.was_seen);
    assert_true(kernel_has(epfd, g_add.fd));
    fake::g_before_return = nullptr;
    fake::close_socket(g_add.fd);
    fake::close_set(epfd);
}

// Its first accelerated socket is about to be taken over when it is put into one that others have.
int g_inner = -1;
int g_outer = -1;
decltype(libc::real.epoll_create1) g_real = nullptr;

void set_becomes_shared_while_it_gets_a_socket(void **)
{
    g_inner = fake::open_set();
    g_outer = fake::open_set();
    mux::set_passed(g_outer);
    const int fd = fake::open_socket();
    assert_true(fake::offload(fd));
    g_real = libc::real.epoll_create1;
    libc::real.epoll_create1 = [](int flags) noexcept { // of the side set
        libc::real.epoll_create1 = g_real;              // once
        assert_int_equal(add(g_outer, g_inner, EPOLLIN), 0);
        return g_real(flags);
    };
    assert_int_equal(add(g_inner, fd, EPOLLIN), 0);
    libc::real.epoll_create1 = g_real;
    assert_false(is_offloaded(fd));
    assert_true(kernel_has(g_inner, fd));
    fake::close_socket(fd);
    fake::close_set(g_inner);
    fake::close_set(g_outer);
}

// Also where the socket has to go back before the kernel is asked.
void verdicts_are_the_kernels(void **)
{
    const int epfd = fake::open_set(), fd = fake::open_socket();
    pass_on(epfd);
    assert_true(fake::offload(fd));
    assert_int_equal(modify(epfd, fd, EPOLLIN), -ENOENT);
    assert_int_equal(control(epfd, EPOLL_CTL_DEL, fd, 0, 0), -ENOENT);
    assert_true(fake::offload(fd)); // no entry is left
    assert_int_equal(add(epfd, fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE | EPOLLPRI), -EINVAL);
    assert_true(fake::offload(fd));
    assert_int_equal(add(epfd, fd, EPOLLIN), 0);
    assert_int_equal(add(epfd, fd, EPOLLOUT), -EEXIST);
    fake::deliver(fd);
    ASSERT_EVENTS(epfd, just(fd, EPOLLIN));
    fake::close_socket(fd);
    fake::close_set(epfd);
}

void set_that_is_refused_into_itself(void **)
{
    const One one(EPOLLIN), other(EPOLLIN);
    pass_on(other.epfd);
    assert_int_equal(add(one.epfd, one.epfd, EPOLLIN), -EINVAL);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
}

// ---- what is not in it ----------------------------------------------------------------------------------------------

bool is_quiet(int epfd) // to who polls it in another process
{
    pollfd kernel = {epfd, POLLIN, 0};
    return ::poll(&kernel, 1, 0) == 0;
}

void fork_without_a_child(int)
{
    mux::fork_prepare();
    mux::fork_parent();
}

// It mostly comes back at once, so that we keep it.
void what_was_deleted(void **)
{
    for (void (*const share)(int) : {pass_on, fork_without_a_child}) {
        const One one(EPOLLIN);
        const int outer = fake::open_set();
        assert_int_equal(add(outer, one.epfd, EPOLLIN), 0);
        assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, one.fd, 0, 0), 0);
        share(one.epfd);
        fake::close_peer(one.fd);
        assert_true(is_quiet(one.epfd));
        assert_true(is_quiet(outer));
        assert_true(is_offloaded(one.fd));
        fake::close_set(outer);
    }
}

void what_was_unread_and_is_deleted(void **)
{
    const One one(EPOLLIN);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    fake::g_keeps_unread = true;
    pass_on(one.epfd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN)); // it is ours to tell
    assert_int_equal(control(one.epfd, EPOLL_CTL_DEL, one.fd, 0, 0), 0);
    fake::close_peer(one.fd);
    assert_true(is_quiet(one.epfd));
    assert_int_equal(add(one.epfd, one.fd, EPOLLIN), 0);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN | EPOLLHUP));
    fake::g_keeps_unread = false;
}

// What this process sleeps for is the engine's news of all its sockets, and none of them is in the set.
void tell_of_another()
{
    const int other = fake::open_socket();
    assert_true(fake::offload(other));
    sock::engine_arm(sock::kMainRing);
    fake::post(other, EPOLLOUT);
    sock::engine_woken(sock::kMainRing);
}

void assert_quiet_at_news(int epfd)
{
    tell_of_another();
    assert_true(is_quiet(epfd));
}

// Takes in what the engine has, and hears of it from then on.
void sleep_in(int epfd, std::function<void()> meanwhile)
{
    const int bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(add(epfd, bell, EPOLLIN), 0);
    const fake::BeforeTheSleep act([bell, &meanwhile] {
        meanwhile();
        ::eventfd_write(bell, 1);
    });
    epoll_event event = {};
    assert_int_equal(mux::epoll_wait(epfd, &event, 1, nullptr, nullptr), 1);
    assert_int_equal(event.data.fd, bell);
    ::close(bell);
}

void side_set_in_which_a_thread_sleeps(void **)
{
    for (void (*const share)(int) : {pass_on, fork_without_a_child}) {
        const One one(EPOLLIN);
        sleep_in(one.epfd, [share, &one] {
            fake::give_up(one.fd); // as the socket layer does before a fork
            share(one.epfd);
        });
        assert_quiet_at_news(one.epfd);
    }
}

void side_set_of_one_inside(void **)
{
    const One one(EPOLLIN), other(EPOLLIN);
    const int outer = fake::open_set();
    assert_int_equal(add(outer, one.epfd, EPOLLIN), 0);
    for (const One *const inner : {&one, &other}) {
        sleep_in(inner->epfd, [] {});
        fake::give_up(inner->fd); // nothing in it is ours any more
    }
    pass_on(outer);
    assert_quiet_at_news(outer);
    assert_int_equal(add(outer, other.epfd, EPOLLIN), 0);
    assert_quiet_at_news(outer);
    fake::close_set(outer);
}

void side_set_whose_last_bytes_are_read(void **)
{
    const One one(EPOLLIN);
    sleep_in(one.epfd, [] {});
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    fake::g_keeps_unread = true;
    pass_on(one.epfd);
    fake::g_keeps_unread = false;
    assert_true(is_offloaded(one.fd));
    assert_true(fake::consume(one.fd));
    fake::give_up(one.fd);
    assert_quiet_at_news(one.epfd);
}

// It hangs there again for who sleeps since it was taken out.
void sleeper_hears_of_what_is_ours_again(void **)
{
    const One one(EPOLLIN);
    const fake::BeforeTheSleep act([&one] {
        pass_on(one.epfd);
        mux::leave_shared(*mux::set_of(one.epfd)); // as where it is found to be alone
        assert_true(fake::offload(one.fd));
        fake::deliver(one.fd);
    });
    epoll_event event = {};
    assert_int_equal(mux::epoll_wait(one.epfd, &event, 1, nullptr, nullptr), 1);
    assert_int_equal(event.data.fd, one.fd);
}

// ---- how long -------------------------------------------------------------------------------------------------------

// The next program would have the set.
bool is_accelerated_after_a_failed_exec(void (*meanwhile)(int))
{
    const One one(EPOLLIN);
    ::fcntl(one.epfd, F_SETFD, 0);
    mux::before_exec();
    assert_false(is_offloaded(one.fd));
    assert_true(kernel_has(one.epfd, one.fd));
    if (meanwhile != nullptr)
        meanwhile(one.epfd);
    mux::exec_failed();
    const bool accelerated = fake::offload(one.fd);
    fake::deliver(one.fd);
    ASSERT_EVENTS(one.epfd, just(one.fd, EPOLLIN));
    return accelerated;
}

void exec_that_fails(void **)
{
    assert_true(is_accelerated_after_a_failed_exec(nullptr));
    assert_false(is_accelerated_after_a_failed_exec(pass_on));
    assert_false(is_accelerated_after_a_failed_exec(fork_without_a_child));
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    vma::config::g_params.select_poll = 0; // waits go to sleep at once
    const CMUnitTest tests[] = {
        cmocka_unit_test(is_back_before_a_shared_set_has_it),
        cmocka_unit_test(is_accelerated_while_a_shared_set_gets_it),
        cmocka_unit_test(set_becomes_shared_while_it_gets_a_socket),
        cmocka_unit_test(verdicts_are_the_kernels),
        cmocka_unit_test(set_that_is_refused_into_itself),
        cmocka_unit_test(what_was_deleted),
        cmocka_unit_test(what_was_unread_and_is_deleted),
        cmocka_unit_test(side_set_in_which_a_thread_sleeps),
        cmocka_unit_test(side_set_of_one_inside),
        cmocka_unit_test(side_set_whose_last_bytes_are_read),
        cmocka_unit_test(sleeper_hears_of_what_is_ours_again),
        cmocka_unit_test(exec_that_fails),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
