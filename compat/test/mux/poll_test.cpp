// SPDX-License-Identifier: BSD-2-Clause
// poll() over offloaded, kernel-only and untracked descriptors and nested epoll sets: results bit for bit the kernel's,
// on the first look, after a spin, after a sleep.
#include "fabtests/seed.hpp"
#include "fabtests/unit.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "compat/src/base/lock.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/wait_cases.hpp"

namespace {

using namespace vma;
using namespace vma::test;

int poll_now(std::vector<pollfd> &fds)
{
    return mux::poll(fds.data(), fds.size(), &kNow, nullptr);
}

// ---- poll -----------------------------------------------------------------------------------------------------------

void poll_tells_what_is_asked(void **)
{
    const Socket s;
    std::vector<pollfd> fds = {{s.fd, POLLIN, 0}, {s.fd, POLLOUT, 0}, {s.fd, POLLIN | POLLOUT | POLLRDNORM, 0}};
    assert_int_equal(poll_now(fds), 2);
    assert_int_equal(fds[0].revents, 0);
    assert_int_equal(fds[1].revents, POLLOUT);
    assert_int_equal(fds[2].revents, POLLOUT);
    fake::deliver(s.fd);
    fake::set_full(s.fd, true);
    assert_int_equal(poll_now(fds), 2);
    assert_int_equal(fds[0].revents, POLLIN);
    assert_int_equal(fds[1].revents, 0);
    assert_int_equal(fds[2].revents, POLLIN | POLLRDNORM);
}

void poll_mixes_with_the_kernel(void **)
{
    const Socket s;
    const Pipe pipe;
    const int plain = fake::open_socket();
    constexpr int kClosed = 1000000;
    std::vector<pollfd> fds = {
        {-1, POLLIN, 7}, {s.fd, POLLIN, 7}, {pipe.fds[0], POLLIN, 7}, {plain, POLLIN, 7}, {kClosed, POLLIN, 7}};
    assert_int_equal(poll_now(fds), 1);
    assert_int_equal(fds[0].revents, 0);
    assert_int_equal(fds[1].revents, 0);
    assert_int_equal(fds[4].revents, POLLNVAL);
    fds.pop_back();
    assert_int_equal(poll_now(fds), 0);
    assert_int_equal(::write(pipe.fds[1], "x", 1), 1);
    assert_int_equal(poll_now(fds), 1);
    assert_int_equal(fds[2].revents, POLLIN);
    fake::deliver(plain);
    assert_int_equal(poll_now(fds), 2);
    assert_int_equal(fds[3].revents, POLLIN);
    fake::deliver(s.fd);
    config::g_params.select_poll_os_ratio = 1;
    config::g_params.select_skip_os = 1;
    assert_int_equal(poll_now(fds), 3);
    config::g_params = config::Params{};
    fake::close_socket(plain);
}

void poll_without_offloaded_sockets(void **)
{
    const int fd = fake::open_socket();
    std::vector<pollfd> fds = {{fd, POLLIN, 0}, {-7, POLLIN, 0}};
    assert_int_equal(poll_now(fds), 0);
    assert_int_equal(mux::poll(fds.data(), fds.size(), &kBrief, nullptr), 0);
    fake::deliver(fd);
    assert_int_equal(mux::poll(fds.data(), fds.size(), nullptr, nullptr), 1);
    assert_int_equal(fds[0].revents, POLLIN);
    fake::close_socket(fd);
}

void poll_hears_of_a_kernel_hang_up(void **)
{
    in_every_mode([] {
        const Socket s;
        fake::set_full(s.fd, true);
        std::vector<pollfd> fds = {{s.fd, POLLPRI, 0}};
        std::thread other([&s] { fake::close_peer(s.fd); });
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        assert_int_equal(fds[0].revents, POLLHUP);
        other.join();
    });
}

void poll_waits_for_an_event(void **)
{
    in_every_mode([] {
        const Socket a;
        const Socket b;
        const Pipe pipe;
        std::vector<pollfd> fds = {{a.fd, POLLIN, 0}, {b.fd, POLLIN, 0}, {pipe.fds[0], POLLIN, 0}};
        assert_int_equal(mux::poll(fds.data(), fds.size(), &kBrief, nullptr), 0);
        std::thread sender([&b] { fake::deliver(b.fd); });
        assert_int_equal(mux::poll(fds.data(), fds.size(), nullptr, nullptr), 1);
        assert_int_equal(fds[1].revents, POLLIN);
        sender.join();
        fake::consume(b.fd);
        std::thread writer([&pipe] { assert_int_equal(::write(pipe.fds[1], "x", 1), 1); });
        assert_int_equal(mux::poll(fds.data(), fds.size(), &kLong, nullptr), 1);
        assert_int_equal(fds[2].revents, POLLIN);
        writer.join();
    });
}

void poll_waits_for_room(void **)
{
    in_every_mode([] {
        const Socket s;
        fake::set_full(s.fd, true);
        std::vector<pollfd> fds = {{s.fd, POLLOUT, 0}};
        assert_int_equal(mux::poll(fds.data(), 1, &kBrief, nullptr), 0);
        std::thread other([&s] { fake::set_full(s.fd, false); });
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        assert_int_equal(fds[0].revents, POLLOUT);
        other.join();
    });
}

void poll_notices_sockets_that_change_sides(void **)
{
    in_every_mode([] {
        const int fd = fake::open_socket();
        std::vector<pollfd> fds = {{fd, POLLIN, 0}};
        std::thread other([fd] {
            assert_true(fake::offload(fd));
            fake::deliver(fd);
        });
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        other.join();
        assert_true(fake::consume(fd));
        std::thread third([fd] {
            fake::give_up(fd);
            fake::deliver(fd);
        });
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        third.join();
        fake::close_socket(fd);
    });
}

void poll_of_an_epoll_set(void **)
{
    in_every_mode([] {
        const Socket s;
        const int epfd = fake::open_set();
        epoll_event event = {EPOLLIN, {}};
        assert_int_equal(mux::epoll_control(epfd, EPOLL_CTL_ADD, s.fd, &event), 0);
        std::vector<pollfd> fds = {{epfd, POLLIN, 0}};
        assert_int_equal(poll_now(fds), 0);
        assert_int_equal(mux::poll(fds.data(), 1, &kBrief, nullptr), 0);
        std::thread other([&s] { fake::deliver(s.fd); });
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        assert_int_equal(fds[0].revents, POLLIN);
        other.join();
        fake::consume(s.fd);
        assert_int_equal(poll_now(fds), 0);
        fake::close_set(epfd);
    });
}

void large_arrays(void **)
{
    const Socket s;
    const Pipe pipe;
    std::vector<pollfd> fds(900, pollfd{pipe.fds[0], POLLIN, 0});
    fds.push_back({s.fd, POLLIN, 0});
    assert_int_equal(poll_now(fds), 0);
    fake::deliver(s.fd);
    assert_int_equal(mux::poll(fds.data(), fds.size(), nullptr, nullptr), 1);
    assert_int_equal(fds.back().revents, POLLIN);
}

// ---- signals --------------------------------------------------------------------------------------------------------

// A handler that runs just before the sleep ends it, too, and what is cleared up then leaves errno as it is.
void handlers_all_the_time(void **)
{
    constexpr int kPolls = 1000;
    constexpr unsigned kMostSpins = 100;
    fake::count_signals(SIGUSR1);
    const pthread_t poller = ::pthread_self();
    const unsigned start = vma::test::seed();
    std::atomic<bool> done{false};
    std::atomic<int> polls{0};
    std::thread sender([&] { // one for each poll, at any moment of it: more would leave the poller no time
        std::minstd_rand random(start);
        for (int seen = 0; !done.load(std::memory_order_relaxed);) {
            const int now = polls.load(std::memory_order_relaxed);
            if (now == seen)
                continue;
            seen = now;
            for (auto spins = random() % kMostSpins; spins > 0; --spins)
                sock::cpu_relax();
            ::pthread_kill(poller, SIGUSR1);
        }
    });
    int wrong = 0;
    in_every_mode([&wrong, &polls] {
        const Socket s;
        const Pipe quiet;
        std::vector<pollfd> fds = {{s.fd, POLLIN, 0}, {quiet.fds[0], POLLIN, 0}};
        for (int i = 0; i < kPolls; ++i) {
            errno = 0;
            ++polls;
            const int n = mux::poll(fds.data(), fds.size(), &kBrief, nullptr);
            wrong += n == 0 || (n == -1 && errno == EINTR) ? 0 : 1;
        }
    });
    done = true;
    sender.join();
    assert_int_equal(wrong, 0);
}

void handler_ends_the_wait(void **)
{
    fake::count_signals(SIGUSR1);
    in_every_mode([] {
        const Socket s;
        const int epfd = fake::open_set();
        epoll_event event = {EPOLLIN, {}};
        assert_int_equal(mux::epoll_control(epfd, EPOLL_CTL_ADD, s.fd, &event), 0);
        std::vector<pollfd> fds = {{s.fd, POLLIN, 0}};
        sigset_t blocked;
        sigset_t old;
        ::sigemptyset(&blocked);
        ::sigaddset(&blocked, SIGUSR1);
        ::pthread_sigmask(SIG_BLOCK, &blocked, &old);
        ::raise(SIGUSR1); // pending: only the wait's own mask lets it in
        assert_int_equal(mux::poll(fds.data(), 1, &kBrief, nullptr), 0);
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, &old), -1);
        assert_int_equal(errno, EINTR);
        ::raise(SIGUSR1);
        assert_int_equal(mux::epoll_wait(epfd, &event, 1, &kBrief, nullptr), 0);
        assert_int_equal(mux::epoll_wait(epfd, &event, 1, nullptr, &old), -1);
        assert_int_equal(errno, EINTR);
        ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        assert_true(::sigismember(&blocked, SIGUSR1)); // as it was
        ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
        fake::close_set(epfd);
    });
}

sigjmp_buf g_way_out;

void jump(int)
{
    siglongjmp(g_way_out, 1);
}

// A handler that never returns leaves the wait in the middle, with its watchers attached.
void handler_jumps_out_of_the_wait(void **)
{
    struct sigaction action = {};
    action.sa_handler = jump;
    ::sigaction(SIGUSR2, &action, nullptr);
    config::g_params.select_poll = 0;
    const Socket s;
    for (int i = 0; i < 100; ++i) {
        std::vector<pollfd> fds = {{s.fd, POLLIN, 0}};
        sigset_t all;
        ::sigemptyset(&all);
        if (sigsetjmp(g_way_out, 1) == 0) {
            sigset_t blocked;
            ::sigemptyset(&blocked);
            ::sigaddset(&blocked, SIGUSR2);
            ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
            ::raise(SIGUSR2);
            mux::poll(fds.data(), 1, nullptr, &all);
            UNIT_FAIL("the handler has not run");
        }
        fake::deliver(s.fd);
        assert_int_equal(mux::poll(fds.data(), 1, nullptr, nullptr), 1);
        fake::consume(s.fd);
    }
    config::g_params = config::Params{};
}

void thread_cancelled_in_the_wait(void **)
{
    config::g_params.select_poll = 0;
    const Socket s;
    for (int i = 0; i < 20; ++i) {
        pthread_t thread;
        assert_int_equal(::pthread_create(
                             &thread, nullptr,
                             [](void *socket) -> void * {
                                 pollfd entry = {*static_cast<const int *>(socket), POLLIN, 0};
                                 mux::poll(&entry, 1, nullptr, nullptr);
                                 return nullptr;
                             },
                             const_cast<int *>(&s.fd)),
                         0);
        ::pthread_cancel(thread);
        void *result = nullptr;
        ::pthread_join(thread, &result);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        fake::deliver(s.fd); // tells watchers: none may be left in the stack that is gone
        std::vector<pollfd> fds = {{s.fd, POLLIN, 0}};
        assert_int_equal(poll_now(fds), 1);
        fake::consume(s.fd);
    }
    config::g_params = config::Params{};
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(poll_tells_what_is_asked),
        cmocka_unit_test(poll_mixes_with_the_kernel),
        cmocka_unit_test(poll_without_offloaded_sockets),
        cmocka_unit_test(poll_hears_of_a_kernel_hang_up),
        cmocka_unit_test(poll_waits_for_an_event),
        cmocka_unit_test(poll_waits_for_room),
        cmocka_unit_test(poll_notices_sockets_that_change_sides),
        cmocka_unit_test(poll_of_an_epoll_set),
        cmocka_unit_test(large_arrays),
        cmocka_unit_test(handlers_all_the_time),
        cmocka_unit_test(handler_ends_the_wait),
        cmocka_unit_test(handler_jumps_out_of_the_wait),
        cmocka_unit_test(thread_cancelled_in_the_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
