// SPDX-License-Identifier: BSD-2-Clause
// Epoll sets that other processes have too: what these find in the kernel's set, and when.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <thread>

#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/epoll_look.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace epoll_look;

bool kernel_has(int epfd, int fd)
{
    epoll_event event = {};
    return libc::real.epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &event) == 0;
}

bool is_offloaded(int fd)
{
    return sock::is_offloaded(*sock::lookup(fd));
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

// Its first accelerated socket is on its way out of the kernel's set when that is put into one that others have.
int g_inner = -1;
int g_outer = -1;
decltype(libc::real.epoll_ctl) g_real = nullptr;

void set_becomes_shared_while_it_gets_a_socket(void **)
{
    g_inner = fake::open_set();
    g_outer = fake::open_set();
    mux::set_passed(g_outer);
    const int fd = fake::open_socket();
    assert_true(fake::offload(fd));
    g_real = libc::real.epoll_ctl;
    libc::real.epoll_ctl = [](int epfd, int op, int member, epoll_event *event) noexcept {
        if (op == EPOLL_CTL_DEL) {
            libc::real.epoll_ctl = g_real; // once
            assert_int_equal(add(g_outer, g_inner, EPOLLIN), 0);
        }
        return g_real(epfd, op, member, event);
    };
    assert_int_equal(add(g_inner, fd, EPOLLIN), 0);
    libc::real.epoll_ctl = g_real;
    assert_false(is_offloaded(fd));
    assert_true(kernel_has(g_inner, fd));
    fake::close_socket(fd);
    fake::close_set(g_inner);
    fake::close_set(g_outer);
}

// ---- what is not in it ----------------------------------------------------------------------------------------------

bool is_quiet(int epfd) // to who polls it in another process
{
    pollfd kernel = {epfd, POLLIN, 0};
    return ::poll(&kernel, 1, 0) == 0;
}

void pass_on(int epfd)
{
    mux::set_passed(epfd);
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

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(is_back_before_a_shared_set_has_it),
        cmocka_unit_test(is_accelerated_while_a_shared_set_gets_it),
        cmocka_unit_test(set_becomes_shared_while_it_gets_a_socket),
        cmocka_unit_test(what_was_deleted),
        cmocka_unit_test(what_was_unread_and_is_deleted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
