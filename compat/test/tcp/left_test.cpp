// SPDX-License-Identifier: BSD-2-Clause
// Calls that are left in their sleep without their destructors being run, by a jump out of a signal handler or as the
// thread is cancelled: nobody counts as asleep behind them, and nothing of the thread is as the sleep had it.
#include "fabtests/unit.hpp"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <atomic>

#include "compat/src/engine/engine_state.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/wait/thread_record.hpp"
#include "compat/test/libc/actions.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// What a thread waits with for input that does not come.
enum class How : std::uint8_t { kReceive, kSend, kPollOne, kPollBoth, kSelect, kEpoll, kPlace };
constexpr How kAll[] = {How::kReceive, How::kSend,  How::kPollOne, How::kPollBoth,
                        How::kSelect,  How::kEpoll, How::kPlace};

// What it finds of itself when it has left that.
struct Found {
    int wake_fd;
    int cancel_type;
    bool in_a_set;
    std::uint32_t depth;
};

struct Waiter {
    Pair &pair;
    const How how;
    const int epfd;
    std::atomic<bool> left{false};
    std::atomic<bool> may_end{false};
    Found found = {};
};

thread_local sigjmp_buf t_way_out;

void jump(int)
{
    siglongjmp(t_way_out, 1);
}

void sleep_at_a_place()
{
    mux::Frame &frame = *mux::acquire_frame();
    const libc::WhenLeft<mux::Frame, &mux::Frame::release> left(frame);
    frame.begin_sleep(0);
    frame.sleeper->sleep_at_place(sock::kForever);
}

void wait(const Waiter &waiter)
{
    End &end = waiter.pair.b;
    char byte = 0;
    pollfd fds[] = {{end.fd, POLLIN, 0}, {waiter.pair.a.fd, POLLIN, 0}};
    epoll_event event = {};
    fd_set in;
    switch (waiter.how) {
    case How::kReceive:
        sock::receive(*end.s, end.fd, &byte, 1, 0);
        break;
    case How::kSend:
        sock::send(*waiter.pair.a.s, waiter.pair.a.fd, &byte, 1, MSG_NOSIGNAL);
        break;
    case How::kPollOne:
    case How::kPollBoth:
        mux::poll(fds, waiter.how == How::kPollOne ? 1 : 2, nullptr, nullptr);
        break;
    case How::kSelect:
        FD_ZERO(&in);
        FD_SET(end.fd, &in);
        mux::select(end.fd + 1, &in, nullptr, nullptr, nullptr, nullptr, nullptr);
        break;
    case How::kEpoll:
        mux::epoll_wait(waiter.epfd, &event, 1, nullptr, nullptr);
        break;
    case How::kPlace:
        sleep_at_a_place();
        break;
    }
}

void wait_until_jump(const Waiter &waiter)
{
    if (sigsetjmp(t_way_out, 1) == 0)
        for (;;) // what sleeps may be woken for no reason
            wait(waiter);
}

void *wait_and_jump(void *argument)
{
    Waiter &waiter = *static_cast<Waiter *>(argument);
    wait_until_jump(waiter);
    Found &found = waiter.found;
    found.wake_fd = libc::signal_wake_fd();
    ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &found.cancel_type);
    found.in_a_set = mux::t_wait.record != nullptr && mux::t_wait.record->aware_wait.load() != nullptr;
    found.depth = libc::t_libc.critical.depth;
    waiter.left = true;
    while (!waiter.may_end)
        ::sched_yield();
    return nullptr;
}

void *wait_for_ever(void *argument)
{
    for (;;)
        wait(*static_cast<Waiter *>(argument));
}

bool anyone_asleep()
{
    return sock::g_engine.asleep.load() != 0 || sock::g_engine.places.sleepers.load() != 0;
}

void expect_nobody_asleep()
{
    assert_int_equal(sock::g_engine.asleep.load(), 0);
    assert_int_equal(sock::g_engine.places.sleepers.load(), 0);
    const sock::LockGuard guard(mux::g_waits.sleepers_lock);
    assert_null(mux::g_waits.sleepers);
}

// An accelerated connection on which nothing comes, and for How::kSend nothing goes, and an epoll set around an end.
struct Scene {
    Pair pair;
    const int epfd = mux::epoll_created(libc::real.epoll_create1(EPOLL_CLOEXEC));

    explicit Scene(How how)
    {
        epoll_event event = {EPOLLIN, {}};
        assert_true(offload(pair));
        test::drain(pair);
        if (how == How::kSend)
            send_until_full(pair.a);
        assert_int_equal(mux::epoll_control(epfd, EPOLL_CTL_ADD, pair.b.fd, &event), 0);
    }
    // Nobody is in it: its descriptors go at once.
    void expect_set_ends() const
    {
        const mux::Set *const set = mux::set_of(epfd);
        mux::epoll_closed(epfd);
        ::close(epfd);
        assert_true(set->pooled.load());
    }
};

void by_a_jump(How how)
{
    Scene scene(how);
    Waiter waiter = {scene.pair, how, scene.epfd};
    const struct sigaction action = action_of(jump, 0);
    pthread_t thread;
    assert_int_equal(libc::set_sigaction(SIGUSR2, &action, nullptr), 0);
    assert_int_equal(::pthread_create(&thread, nullptr, wait_and_jump, &waiter), 0);
    while (!anyone_asleep())
        ::sched_yield();
    ::pthread_kill(thread, SIGUSR2);
    while (!waiter.left)
        ::sched_yield();
    expect_nobody_asleep();
    scene.expect_set_ends();
    waiter.may_end = true;
    void *result = nullptr;
    ::pthread_join(thread, &result);
    assert_null(result);
    assert_int_equal(waiter.found.wake_fd, -1);
    if (how == How::kPlace) // poll(2) of libc's leaves it changed itself
        assert_int_equal(waiter.found.cancel_type, PTHREAD_CANCEL_DEFERRED);
    assert_false(waiter.found.in_a_set);
    assert_int_equal(waiter.found.depth, 0);
    libc::set_signal(SIGUSR2, SIG_DFL);
}

void by_cancellation(How how)
{
    Scene scene(how);
    Waiter waiter = {scene.pair, how, scene.epfd};
    pthread_t thread;
    assert_int_equal(::pthread_create(&thread, nullptr, wait_for_ever, &waiter), 0);
    while (!anyone_asleep())
        ::sched_yield();
    ::pthread_cancel(thread);
    void *result = nullptr;
    ::pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    expect_nobody_asleep();
    scene.expect_set_ends();
}

void calls_left_by_a_jump(void **)
{
    needs_the_kernels_signals();
    for (const How how : kAll)
        for (int i = 0; i < 20; ++i)
            by_a_jump(how);
}

void needs_cancelled_stacks()
{
#ifdef __SANITIZE_ADDRESS__
    UNIT_SKIP("AddressSanitizer knows neither a cancelled thread's stack as free nor a stack of the program's own");
#endif
}

void calls_left_by_cancellation(void **)
{
    needs_cancelled_stacks();
    for (const How how : kAll)
        for (int i = 0; i < 20; ++i)
            by_cancellation(how);
}

// recv() and send() are cancellation points, also where they say at once that there is nothing, or no room.
void calls_that_never_wait(void **)
{
    needs_cancelled_stacks();
    for (const How how : {How::kReceive, How::kSend}) {
        Scene scene(how);
        Waiter waiter = {scene.pair, how, scene.epfd};
        pthread_t thread;
        const auto look = [](void *argument) -> void * {
            const Waiter &looker = *static_cast<Waiter *>(argument);
            char byte = 0;
            for (const Pair &pair = looker.pair;;)
                if (looker.how == How::kSend)
                    sock::send(*pair.a.s, pair.a.fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
                else
                    sock::receive(*pair.b.s, pair.b.fd, &byte, 1, MSG_DONTWAIT);
        };
        assert_int_equal(::pthread_create(&thread, nullptr, look, &waiter), 0);
        ::pthread_cancel(thread);
        void *result = nullptr;
        ::pthread_join(thread, &result);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        scene.expect_set_ends();
    }
}

} // namespace

int main()
{
    const StreamLibrary library;
    config::g_params.rx_poll = 0; // they sleep at once
    config::g_params.select_poll = 0;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(calls_left_by_a_jump),
        cmocka_unit_test(calls_left_by_cancellation),
        cmocka_unit_test(calls_that_never_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
