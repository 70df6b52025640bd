// SPDX-License-Identifier: BSD-2-Clause
// Several threads on the same epoll sets: who sleeps is woken, no event is lost or told to two threads of a one-shot
// entry, and sockets are added, removed, closed, offloaded and returned while others wait. Meant to run under
// ThreadSanitizer too.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;

constexpr timespec kSlice = {0, 2000000};

int control(int epfd, int op, int fd, std::uint32_t events)
{
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    return mux::epoll_control(epfd, op, fd, &event);
}

int wait_one(int epfd, const timespec *timeout) // the descriptor, or -1
{
    epoll_event event = {};
    const int n = mux::epoll_wait(epfd, &event, 1, timeout, nullptr);
    return n == 1 ? event.data.fd : -1;
}

template <typename Test> void in_every_mode(Test test)
{
    for (const std::int64_t spin : {std::int64_t{0}, std::int64_t{5}, std::int64_t{-1}}) {
        config::g_params.select_poll = spin;
        test();
    }
    config::g_params = config::Params{};
}

// ---- waking ---------------------------------------------------------------------------------------------------------

void sleeper_is_woken(void **)
{
    in_every_mode([] {
        const int epfd = fake::open_set();
        const int fd = fake::open_socket();
        assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
        assert_true(fake::offload(fd));
        for (int i = 0; i < 200; ++i) {
            std::thread sender([fd] { fake::deliver(fd); });
            assert_int_equal(wait_one(epfd, nullptr), fd);
            assert_true(fake::consume(fd));
            sender.join();
        }
        fake::close_socket(fd);
        fake::close_set(epfd);
    });
}

// All of them went to sleep in the kernel before there was anything to look at in user space.
void kernel_only_sleepers_learn_of_the_change(void **)
{
    in_every_mode([] {
        for (int round = 0; round < 20; ++round) {
            constexpr int kWaiters = 4;
            const int epfd = fake::open_set();
            const int fd = fake::open_socket();
            assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET), 0);
            std::atomic<int> served{0};
            std::vector<std::thread> waiters;
            for (int i = 0; i < kWaiters; ++i)
                waiters.emplace_back([epfd, fd, &served] {
                    if (wait_one(epfd, nullptr) == fd)
                        served.fetch_add(1);
                });
            assert_true(fake::offload(fd));
            for (int told = 0; told < kWaiters;) { // each event is for one of them
                fake::deliver(fd);
                const int before = told;
                while (told == before)
                    told = served.load();
            }
            for (std::thread &waiter : waiters)
                waiter.join();
            fake::close_socket(fd);
            fake::close_set(epfd);
        }
    });
}

void level_triggered_wakes_one_after_the_other(void **)
{
    in_every_mode([] {
        constexpr int kWaiters = 3;
        const int epfd = fake::open_set();
        const int fd = fake::open_socket();
        assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
        assert_true(fake::offload(fd));
        std::vector<std::thread> waiters;
        for (int i = 0; i < kWaiters; ++i)
            waiters.emplace_back([epfd, fd] { assert_int_equal(wait_one(epfd, nullptr), fd); });
        fake::deliver(fd); // one event, never read: all must hear of it
        for (std::thread &waiter : waiters)
            waiter.join();
        fake::close_socket(fd);
        fake::close_set(epfd);
    });
}

void kernel_event_wakes_a_taken_set(void **)
{
    in_every_mode([] {
        const int epfd = fake::open_set();
        const int fd = fake::open_socket();
        const int event_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
        assert_int_equal(control(epfd, EPOLL_CTL_ADD, event_fd, EPOLLIN), 0);
        assert_true(fake::offload(fd));
        for (int i = 0; i < 100; ++i) {
            std::uint64_t count = 1;
            std::thread writer([event_fd] { assert_int_equal(eventfd_write(event_fd, 1), 0); });
            assert_int_equal(wait_one(epfd, nullptr), event_fd);
            assert_int_equal(::read(event_fd, &count, sizeof count), sizeof count);
            writer.join();
        }
        ::close(event_fd);
        fake::close_socket(fd);
        fake::close_set(epfd);
    });
}

void outer_sleeper_hears_of_inner_event(void **)
{
    in_every_mode([] {
        const int inner = fake::open_set();
        const int outer = fake::open_set();
        const int fd = fake::open_socket();
        assert_int_equal(control(inner, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
        assert_int_equal(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN), 0);
        for (int i = 0; i < 50; ++i) {
            std::thread sender([fd] {
                fake::offload(fd);
                fake::deliver(fd);
            });
            assert_int_equal(wait_one(outer, nullptr), inner);
            assert_int_equal(wait_one(inner, nullptr), fd);
            assert_true(fake::consume(fd));
            sender.join();
            if (i % 2 != 0)
                fake::give_up(fd);
        }
        fake::close_socket(fd);
        fake::close_set(outer);
        fake::close_set(inner);
    });
}

// The inner entry is on its list, from the last time; the thread that takes the next byte in tells nobody of an entry
// that is.
void event_comes_while_the_inner_entry_is_looked_at(void **)
{
    static int s_fd;
    const int inner = fake::open_set();
    const int outer = fake::open_set();
    s_fd = fake::open_socket();
    assert_int_equal(control(inner, EPOLL_CTL_ADD, s_fd, EPOLLIN), 0);
    assert_int_equal(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN), 0);
    assert_true(fake::offload(s_fd));
    fake::deliver(s_fd);
    assert_int_equal(wait_one(outer, nullptr), inner);
    assert_int_equal(wait_one(inner, nullptr), s_fd);
    assert_true(fake::consume(s_fd));
    fake::g_after_look = [] {
        std::thread([] {
            fake::deliver(s_fd);
            sock::engine_drain(sock::kAllRings);
        }).join();
    };
    assert_int_equal(wait_one(outer, nullptr), inner);
    assert_int_equal(wait_one(inner, nullptr), s_fd);
    fake::close_set(outer);
    fake::close_set(inner);
    fake::close_socket(s_fd);
}

void set_closed_under_a_waiter(void **)
{
#ifdef __SANITIZE_THREAD__
    UNIT_SKIP("ThreadSanitizer takes the close, which is the point here, for a race");
#endif
    in_every_mode([] {
        for (int i = 0; i < 50; ++i) {
            const int epfd = fake::open_set();
            const int fd = fake::open_socket();
            assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
            assert_true(fake::offload(fd));
            std::thread waiter([epfd] {
                const int result = wait_one(epfd, &kSlice);
                assert_true(result == -1);
            });
            fake::close_set(epfd);
            waiter.join();
            fake::close_socket(fd);
        }
    });
}

// ---- everything at once ---------------------------------------------------------------------------------------------

constexpr int kSets = 3;
constexpr int kStressSockets = 12;
constexpr int kStressSteps = 4000;

struct Stress {
    std::array<int, kSets> sets;
    std::array<int, kStressSockets> sockets;
    std::array<std::atomic<int>, kStressSockets> busy{}; // threads that serve it: one-shot allows one
    std::array<std::atomic<int>, kStressSockets> delivered{};
    std::array<std::atomic<int>, kStressSockets> consumed{};
    std::atomic<bool> stop{false};
    std::atomic<int> errors{0};

    std::size_t index_of(int fd) const
    {
        for (std::size_t i = 0; i < sockets.size(); ++i)
            if (sockets[i] == fd)
                return i;
        return sockets.size();
    }
};

// Each socket is one-shot in one set, so that whoever is told of it has it for himself until he re-arms it.
void serve(Stress &stress, int epfd)
{
    while (!stress.stop.load()) {
        epoll_event events[4];
        const int n = mux::epoll_wait(epfd, events, 4, &kSlice, nullptr);
        if (n < 0)
            stress.errors.fetch_add(1);
        for (int i = 0; i < n; ++i) {
            const int fd = events[i].data.fd;
            const std::size_t index = stress.index_of(fd);
            if (index == stress.sockets.size())
                continue;
            if (stress.busy[index].fetch_add(1) != 0)
                stress.errors.fetch_add(1);
            while (fake::consume(fd))
                stress.consumed[index].fetch_add(1);
            stress.busy[index].fetch_sub(1);
            if (control(epfd, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT) != 0)
                stress.errors.fetch_add(1);
        }
    }
}

void send_bytes(Stress &stress, unsigned seed)
{
    std::mt19937 random(seed);
    for (int i = 0; i < kStressSteps; ++i) {
        const std::size_t index = random() % kStressSockets;
        fake::deliver(stress.sockets[index]);
        stress.delivered[index].fetch_add(1);
    }
}

void change_paths(Stress &stress)
{
    std::array<bool, kStressSockets> offloaded = {};
    std::mt19937 random(3);
    while (!stress.stop.load()) {
        const std::size_t index = random() % (kStressSockets / 2); // the others stay as they are
        if (offloaded[index])
            fake::give_up(stress.sockets[index]);
        else
            fake::offload(stress.sockets[index]);
        offloaded[index] = !offloaded[index];
    }
}

// Sockets and sets that come and go beside them.
void come_and_go(Stress &stress)
{
    while (!stress.stop.load()) {
        const int fd = fake::open_socket();
        const int epfd = fake::open_set();
        fake::offload(fd);
        for (const int set : stress.sets)
            if (control(set, EPOLL_CTL_ADD, fd, EPOLLPRI | EPOLLET) != 0)
                stress.errors.fetch_add(1);
        control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT);
        if (wait_one(epfd, &kSlice) != fd)
            stress.errors.fetch_add(1);
        control(stress.sets[0], EPOLL_CTL_DEL, fd, 0);
        fake::close_socket(fd);
        fake::close_set(epfd);
    }
}

void nothing_is_lost(void **)
{
    in_every_mode([] {
        Stress stress;
        for (int &set : stress.sets)
            set = fake::open_set();
        for (std::size_t i = 0; i < kStressSockets; ++i) {
            stress.sockets[i] = fake::open_socket();
            assert_int_equal(control(stress.sets[i % kSets], EPOLL_CTL_ADD, stress.sockets[i], EPOLLIN | EPOLLONESHOT),
                             0);
            if (i >= kStressSockets / 2)
                assert_true(fake::offload(stress.sockets[i]));
        }
        std::vector<std::thread> threads;
        for (const int set : stress.sets)
            for (int i = 0; i < 2; ++i)
                threads.emplace_back(serve, std::ref(stress), set);
        threads.emplace_back(change_paths, std::ref(stress));
        threads.emplace_back(come_and_go, std::ref(stress));
        std::thread senders[] = {std::thread(send_bytes, std::ref(stress), 1U),
                                 std::thread(send_bytes, std::ref(stress), 2U)};
        for (std::thread &sender : senders)
            sender.join();
        for (std::size_t i = 0; i < kStressSockets; ++i)
            while (stress.consumed[i].load() != stress.delivered[i].load() && stress.errors.load() == 0)
                std::this_thread::yield(); // hangs if a wake-up was lost
        stress.stop = true;
        for (std::thread &thread : threads)
            thread.join();
        assert_int_equal(stress.errors.load(), 0);
        for (const int fd : stress.sockets)
            fake::close_socket(fd);
        for (const int set : stress.sets)
            fake::close_set(set);
    });
}

// ---- fork -----------------------------------------------------------------------------------------------------------

void child_begins_with_the_kernels_sets(void **)
{
    const int epfd = fake::open_set();
    const int fd = fake::open_socket();
    assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
    assert_true(fake::offload(fd));
    fake::deliver(fd);
    assert_int_equal(wait_one(epfd, nullptr), fd);
    fake::give_up(fd); // as the socket layer does before a fork
    mux::fork_prepare();
    const pid_t child = ::fork();
    if (child == 0) {
        mux::fork_child();
        bool good = wait_one(epfd, nullptr) == fd && fake::consume(fd) && wait_one(epfd, &kSlice) == -1;
        const int other = fake::open_socket();
        good =
            good && control(epfd, EPOLL_CTL_ADD, other, EPOLLIN) == 0 && !fake::offload(other); // its parent has it too
        fake::deliver(other);
        good = good && wait_one(epfd, nullptr) == other;
        ::_exit(good ? 0 : 1);
    }
    mux::fork_parent();
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(wait_one(epfd, &kSlice), -1);
    assert_false(fake::offload(fd));
    mux::leave_shared(*mux::set_of(epfd)); // as where it is found to be alone
    const int next = fake::open_socket();
    assert_int_equal(control(epfd, EPOLL_CTL_ADD, next, EPOLLIN), 0);
    assert_true(fake::offload(next));
    fake::deliver(next);
    assert_int_equal(wait_one(epfd, nullptr), next);
    fake::close_socket(next);
    fake::close_socket(fd);
    fake::close_set(epfd);
}

int g_given_up = -1;
decltype(libc::real.epoll_ctl) g_epoll_ctl;

// The socket goes back to the kernel, as by another thread, while its registration is on its way to the side set.
int give_up_on_the_way(int epfd, int op, int fd, epoll_event *event) noexcept
{
    const int result = g_epoll_ctl(epfd, op, fd, event);
    if (op == EPOLL_CTL_DEL && fd == g_given_up)
        fake::give_up(std::exchange(g_given_up, -1));
    return result;
}

void given_up_while_it_is_added(void **)
{
    const int epfd = fake::open_set();
    const int fd = fake::open_socket();
    assert_true(fake::offload(fd));
    g_given_up = fd;
    g_epoll_ctl = std::exchange(libc::real.epoll_ctl, give_up_on_the_way);
    assert_int_equal(control(epfd, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
    libc::real.epoll_ctl = g_epoll_ctl;
    assert_int_equal(g_given_up, -1);
    assert_false(mux::is_taken(*mux::set_of(epfd)));
    fake::deliver(fd);
    assert_int_equal(wait_one(epfd, nullptr), fd);
    fake::close_socket(fd);
    fake::close_set(epfd);
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(sleeper_is_woken),
        cmocka_unit_test(kernel_only_sleepers_learn_of_the_change),
        cmocka_unit_test(level_triggered_wakes_one_after_the_other),
        cmocka_unit_test(kernel_event_wakes_a_taken_set),
        cmocka_unit_test(outer_sleeper_hears_of_inner_event),
        cmocka_unit_test(event_comes_while_the_inner_entry_is_looked_at),
        cmocka_unit_test(set_closed_under_a_waiter),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(child_begins_with_the_kernels_sets),
        cmocka_unit_test(given_up_while_it_is_added),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
