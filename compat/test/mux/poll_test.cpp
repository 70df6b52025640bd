// SPDX-License-Identifier: BSD-2-Clause
// poll() and select() over dual, plain and untracked descriptors and nested epoll sets: results bit for bit the kernel's, on
// the first look, after a spin, after a sleep.
#include "fabtests/seed.hpp"
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "compat/src/base/lock.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;

constexpr timespec kNow = {0, 0};
constexpr timespec kBrief = {0, 200001};
constexpr timespec kLong = {100, 0};

int poll_now(std::vector<pollfd> &fds)
{
    return mux::poll(fds.data(), fds.size(), &kNow, nullptr);
}

struct Socket {
    Socket() : fd(fake::open_socket()) { assert_true(fake::lift(fd)); }
    ~Socket() { fake::close_socket(fd); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    const int fd;
};

struct Pipe {
    Pipe() { assert_int_equal(::pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0); }
    ~Pipe()
    {
        ::close(fds[0]);
        ::close(fds[1]);
    }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    int fds[2];
};

// Every way to wait: spin for ever, for a moment, not at all; with all shares of the kernel.
template <typename Test> void in_every_mode(Test test)
{
    for (const std::int64_t spin : {std::int64_t{-1}, std::int64_t{20}, std::int64_t{0}})
        for (const std::uint32_t ratio : {1U, 10U, 0U}) {
            config::g_params.select_poll = spin;
            config::g_params.select_poll_os_ratio = ratio;
            test();
        }
    config::g_params = config::Params{};
}

// ---- poll --------------------------------------------------------------------------------------------------------------------

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

void poll_without_dual_sockets(void **)
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
            assert_true(fake::lift(fd));
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

// ---- signals -----------------------------------------------------------------------------------------------------------------

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

// ---- select ------------------------------------------------------------------------------------------------------------------

struct Sets {
    fd_set in = {};
    fd_set out = {};
    fd_set err = {};
};

int select_now(int nfds, Sets &sets)
{
    return mux::select(nfds, &sets.in, &sets.out, &sets.err, &kNow, nullptr, nullptr);
}

void select_over_both_kinds(void **)
{
    const Socket s;
    const Pipe pipe;
    Sets sets;
    const int nfds = std::max(s.fd, pipe.fds[0]) + 1;
    const auto fill = [&sets, &s, &pipe] {
        sets = {};
        FD_SET(s.fd, &sets.in);
        FD_SET(pipe.fds[0], &sets.in);
        FD_SET(s.fd, &sets.out);
        FD_SET(s.fd, &sets.err);
    };
    fill();
    assert_int_equal(select_now(nfds, sets), 1);
    assert_true(FD_ISSET(s.fd, &sets.out) && !FD_ISSET(s.fd, &sets.in) && !FD_ISSET(s.fd, &sets.err));
    fake::deliver(s.fd);
    fill();
    assert_int_equal(select_now(nfds, sets), 2);
    assert_true(FD_ISSET(s.fd, &sets.out) && FD_ISSET(s.fd, &sets.in));
    fake::consume(s.fd);
    fake::set_full(s.fd, true);
    assert_int_equal(::write(pipe.fds[1], "x", 1), 1);
    fill();
    assert_int_equal(select_now(nfds, sets), 1);
    assert_true(FD_ISSET(pipe.fds[0], &sets.in) && !FD_ISSET(s.fd, &sets.in));
}

void select_refuses_what_the_kernel_refuses(void **)
{
    const Socket s;
    fake::set_full(s.fd, true);
    Sets sets;
    FD_SET(s.fd, &sets.in);
    FD_SET(900, &sets.in);
    assert_int_equal(select_now(901, sets), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(select_now(-1, sets), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mux::select(0, nullptr, nullptr, nullptr, &kNow, nullptr, nullptr), 0);
    FD_CLR(900, &sets.in);
    assert_int_equal(select_now(s.fd + 1, sets), 0);
    assert_false(FD_ISSET(s.fd, &sets.in));
}

// Descriptors from FD_SETSIZE on are the kernel's business, and ours: who calls select() with them has made room.
void select_beyond_its_size(void **)
{
    constexpr int kHigh = 3000;
    const Socket s;
    if (::dup2(s.fd, kHigh) != kHigh)
        UNIT_SKIP("no descriptor 3000 allowed here");
    std::vector<unsigned long> words(kHigh / 64 + 1);
    words[kHigh / 64] = 1UL << (kHigh % 64);
    words[static_cast<std::size_t>(s.fd) / 64] |= 1UL << (s.fd % 64);
    auto *const set = reinterpret_cast<fd_set *>(words.data());
    config::g_params.select_poll_os_ratio = 1;
    config::g_params.select_skip_os = 1;
    assert_int_equal(mux::select(kHigh + 1, nullptr, set, nullptr, &kNow, nullptr, nullptr), 2);
    config::g_params = config::Params{};
    ::close(kHigh);
}

void select_tells_the_time_left(void **)
{
    in_every_mode([] {
        const Socket s;
        fd_set in = {};
        timespec left = {7, 7};
        FD_SET(s.fd, &in);
        assert_int_equal(mux::select(s.fd + 1, &in, nullptr, nullptr, &kBrief, nullptr, &left), 0);
        assert_true(left.tv_sec == 0 && left.tv_nsec == 0);
        FD_SET(s.fd, &in);
        fake::deliver(s.fd);
        assert_int_equal(mux::select(s.fd + 1, &in, nullptr, nullptr, &kLong, nullptr, &left), 1);
        assert_true(left.tv_sec > 0 && left.tv_sec <= kLong.tv_sec);
    });
}

void select_is_not_ended_by_an_unasked_hang_up(void **)
{
    in_every_mode([] {
        const Socket dual;
        const int plain = fake::open_socket();
        fake::close_peer(dual.fd);
        fake::close_peer(plain);
        fd_set err = {};
        FD_SET(dual.fd, &err);
        FD_SET(plain, &err);
        const int nfds = std::max(plain, dual.fd) + 1;
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kBrief, nullptr, nullptr), 0);
        err = {};
        FD_SET(plain, &err);
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kBrief, nullptr, nullptr), 0);
        assert_int_equal(mux::select(nfds, nullptr, nullptr, &err, &kNow, nullptr, nullptr), 0);
        fd_set in = {};
        FD_SET(dual.fd, &in);
        FD_SET(plain, &in);
        assert_true(mux::select(nfds, &in, nullptr, nullptr, nullptr, nullptr, nullptr) >= 1);
        fake::close_socket(plain);
    });
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(poll_tells_what_is_asked),
        cmocka_unit_test(poll_mixes_with_the_kernel),
        cmocka_unit_test(poll_without_dual_sockets),
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
        cmocka_unit_test(select_over_both_kinds),
        cmocka_unit_test(select_refuses_what_the_kernel_refuses),
        cmocka_unit_test(select_beyond_its_size),
        cmocka_unit_test(select_tells_the_time_left),
        cmocka_unit_test(select_is_not_ended_by_an_unasked_hang_up),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
