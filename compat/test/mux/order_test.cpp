// SPDX-License-Identifier: BSD-2-Clause
// The order of events where one side of a wait has something earlier than the other, and another thread is in between:
// doc/multiplexing.md. Each schedule is made by hooks.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/at_the_kernel.hpp"
#include "compat/test/mux/epoll_look.hpp"
#include "compat/test/mux/fake_engine.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace {

using namespace vma;
using namespace epoll_look;

// ---- first by the kernel --------------------------------------------------------------------------------------------

// A set with a pipe, which only the kernel knows of, and two taken sockets. A peer writes to the pipe, then to the
// first socket, and another thread polls the engine.
struct InTurn {
    InTurn()
    {
        assert_int_equal(::pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
        assert_int_equal(add(one.epfd, pipe_fds[0], kIn), 0);
        assert_int_equal(add(one.epfd, other, kIn), 0);
        assert_true(fake::offload(other));
        ASSERT_NOTHING(one.epfd);
        config::g_params.select_skip_os = 1000; // the kernel is not asked first
        config::g_params.select_poll_os_ratio = 0;
        g_now = this;
    }
    ~InTurn()
    {
        config::g_params = before;
        fake::close_socket(other);
        ::close(pipe_fds[0]);
        ::close(pipe_fds[1]);
    }
    InTurn(const InTurn &) = delete;
    InTurn &operator=(const InTurn &) = delete;

    static void happens()
    {
        assert_int_equal(::write(g_now->pipe_fds[1], "x", 1), 1);
        fake::deliver_at_take(g_now->one.fd);
        sock::engine_poll(sock::kMainRing);
    }
    // It happens when the look has heard from the kernel.
    Events look_while_it_happens() const
    {
        const fake::AfterTheKernel act(happens);
        return look(one.epfd);
    }
    // In no result is the socket without the pipe, and both are told of.
    void check(const Events &first) const
    {
        const auto has_pipe = [this](const Events &seen) {
            return seen.count(static_cast<std::uint64_t>(pipe_fds[0])) == 1;
        };
        assert_true(has_pipe(first) || first.count(static_cast<std::uint64_t>(one.fd)) == 0);
        const Events second = look(one.epfd);
        assert_true(has_pipe(first) || has_pipe(second));
        assert_int_equal(second.count(static_cast<std::uint64_t>(one.fd)), 1);
    }

    const config::Params before = config::g_params;
    One one{kIn};
    const int other = fake::open_socket();
    int pipe_fds[2] = {-1, -1};

    static inline const InTurn *g_now = nullptr;
};

void first_by_the_kernel_which_was_asked_before(void **)
{
    const InTurn both;
    const Events seen = both.look_while_it_happens();
    both.check(seen);
}

void first_by_the_kernel_while_the_list_is_looked_at(void **)
{
    const InTurn both;
    fake::deliver(both.other);
    ASSERT_EVENTS(both.one.epfd, just(both.other, kIn));
    drain(both.other); // it is on the list, and not ready
    fake::g_after_look = InTurn::happens;
    const Events seen = look(both.one.epfd);
    assert_null(fake::g_after_look);
    both.check(seen);
}

// The pipe has something all the time.
void only_what_may_be_later_asks_the_kernel(void **)
{
    const InTurn both;
    const auto has_pipe = [&both](const Events &seen) {
        return seen.count(static_cast<std::uint64_t>(both.pipe_fds[0])) == 1;
    };
    fake::deliver(both.one.fd);
    ASSERT_EVENTS(both.one.epfd, just(both.one.fd, kIn));
    assert_int_equal(::write(both.pipe_fds[1], "x", 1), 1);
    fake::deliver_behind_nothing(both.other);
    const Events first = look(both.one.epfd);
    assert_int_equal(first.count(static_cast<std::uint64_t>(both.other)), 1);
    assert_false(has_pipe(first));
    fake::deliver(both.other);
    assert_true(has_pipe(look(both.one.epfd)));
    drain(both.one.fd);
    drain(both.other);
}

// As a level-triggered socket is once its bytes are read, or a one-shot one that was enabled again.
void first_by_the_kernel_of_a_socket_that_is_listed(void **)
{
    const InTurn both;
    config::g_params.select_skip_os = 1; // each wait asks the kernel first
    fake::deliver(both.one.fd);
    ASSERT_EVENTS(both.one.epfd, just(both.one.fd, kIn));
    drain(both.one.fd);
    const Events seen = both.look_while_it_happens();
    both.check(seen);
}

void first_by_the_kernel_whose_news_were_of_a_taken_socket(void **)
{
    const InTurn both;
    config::g_params.select_skip_os = 1;
    fake::finish_peer(both.other);
    const Events seen = both.look_while_it_happens();
    assert_int_equal(seen.count(static_cast<std::uint64_t>(both.other)), 1);
    both.check(seen);
}

// A set with a taken socket, and one whose byte the kernel has when it becomes offloaded. While that moves from the
// kernel's set to ours, and is on neither, its peer sends to the first, and another thread looks.
void first_by_the_kernel_of_a_socket_that_moves(void **)
{
    struct {
        One one{kIn};
        const int other = fake::open_socket();
        std::binary_semaphore has_asked{0};
        std::thread looker;
        Events seen;
        decltype(libc::real.epoll_ctl) control = libc::real.epoll_ctl;
    } static now;
    assert_int_equal(add(now.one.epfd, now.other, kIn), 0);
    ASSERT_NOTHING(now.one.epfd);
    fake::deliver(now.other);
    libc::real.epoll_ctl = [](int set, int operation, int fd, epoll_event *event) noexcept {
        const int result = now.control(set, operation, fd, event);
        if (operation == EPOLL_CTL_DEL && fd == now.other) {
            fake::deliver(now.one.fd);
            now.looker = std::thread([] {
                const fake::AfterTheKernel act([] { now.has_asked.release(); });
                now.seen = look(now.one.epfd);
            });
            now.has_asked.acquire();
        }
        return result;
    };
    assert_true(fake::offload(now.other));
    libc::real.epoll_ctl = now.control;
    now.looker.join();
    assert_int_equal(now.seen.count(static_cast<std::uint64_t>(now.one.fd)), 1);
    assert_int_equal(now.seen.count(static_cast<std::uint64_t>(now.other)), 1);
    fake::close_socket(now.other);
}

// ---- first by the engine --------------------------------------------------------------------------------------------

// A peer sends to the first socket, and another thread takes that off the engine's queue, but has told nobody yet when
// the peer writes to the pipe. It goes on where it is waited for, or at the end.
class Taken
{
public:
    explicit Taken(const InTurn &both) : both_(both)
    {
        g_now = this;
        config::g_params.select_skip_os = 1;
    }
    ~Taken()
    {
        if (std::exchange(fake::g_before_drain, nullptr) != nullptr)
            g_now->goes_on_.release();
        thread_.join();
    }
    Taken(const Taken &) = delete;
    Taken &operator=(const Taken &) = delete;

    void happens()
    {
        fake::deliver_at_take(both_.one.fd);
        fake::g_after_take = [] {
            g_now->is_taken_.release();
            g_now->goes_on_.acquire();
        };
        fake::g_before_drain = [] { g_now->goes_on_.release(); };
        thread_ = std::thread([] { sock::engine_poll(sock::kMainRing); });
        is_taken_.acquire();
        assert_int_equal(::write(both_.pipe_fds[1], "x", 1), 1);
    }

private:
    const InTurn &both_;
    std::binary_semaphore is_taken_{0};
    std::binary_semaphore goes_on_{0};
    std::thread thread_;

    static inline Taken *g_now = nullptr;
};

void assert_both(const InTurn &both, const Events &seen)
{
    assert_int_equal(seen.size(), 2);
    assert_int_equal(seen.count(static_cast<std::uint64_t>(both.pipe_fds[0])), 1);
    assert_int_equal(seen.count(static_cast<std::uint64_t>(both.one.fd)), 1);
}

void first_by_the_engine_and_taken_by_another_thread(void **)
{
    const InTurn both;
    Events seen;
    {
        Taken taken(both);
        taken.happens();
        seen = look(both.one.epfd);
    }
    assert_both(both, seen);
}

void sleep_ends(bool with_mark)
{
    const InTurn both;
    epoll_event events[8];
    int n = 0;
    {
        Taken taken(both);
        config::g_params.select_poll = 0; // no spin
        const fake::BeforeTheSleep act([&taken, with_mark] {
            taken.happens();
            std::uint64_t count = 0;
            if (!with_mark) // the thread has emptied it before it took the event
                assert_int_equal(::read(fake::engine().wait_fd, &count, sizeof count), sizeof count);
        });
        n = mux::epoll_wait(both.one.epfd, events, 8, nullptr, nullptr);
    }
    Events seen;
    for (int i = 0; i < n; ++i)
        seen[std::uint64_t{events[i].data.u64}] = events[i].events;
    assert_both(both, seen);
}

void first_by_the_engine_while_it_sleeps(void **)
{
    sleep_ends(true);
    sleep_ends(false);
}

void first_by_the_engine_for_poll(void **)
{
    const InTurn both;
    pollfd fds[] = {{both.one.fd, POLLIN, 0}, {both.pipe_fds[0], POLLIN, 0}};
    int n = 0;
    {
        Taken taken(both);
        taken.happens();
        n = mux::poll(fds, 2, &kNow, nullptr);
    }
    assert_int_equal(n, 2);
}

} // namespace

int main()
{
    vma::libc::resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(first_by_the_kernel_which_was_asked_before),
        cmocka_unit_test(first_by_the_kernel_while_the_list_is_looked_at),
        cmocka_unit_test(only_what_may_be_later_asks_the_kernel),
        cmocka_unit_test(first_by_the_kernel_of_a_socket_that_is_listed),
        cmocka_unit_test(first_by_the_kernel_whose_news_were_of_a_taken_socket),
        cmocka_unit_test(first_by_the_kernel_of_a_socket_that_moves),
        cmocka_unit_test(first_by_the_engine_and_taken_by_another_thread),
        cmocka_unit_test(first_by_the_engine_while_it_sleeps),
        cmocka_unit_test(first_by_the_engine_for_poll),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
