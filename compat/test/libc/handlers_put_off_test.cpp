// SPDX-License-Identifier: BSD-2-Clause
// Handlers that come in a stretch that holds a lock wait for its end, however they were installed.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/test/libc/actions.hpp"

using namespace vma::libc;
using namespace vma::test;

namespace {

std::atomic<int> g_runs;
std::atomic<pid_t> g_last_sender;

void plain(int)
{
    ++g_runs;
}

void with_info(int, siginfo_t *info, void *)
{
    ++g_runs;
    g_last_sender = info->si_pid;
}

sighandler_t current(int signal)
{
    struct sigaction now = {};
    assert_int_equal(set_sigaction(signal, nullptr, &now), 0);
    return now.sa_handler;
}

int reset(void **)
{
    g_runs = 0;
    for (const int signal : {SIGUSR1, SIGUSR2})
        set_signal(signal, SIG_DFL);
    return 0;
}

// In a stretch that holds a lock no handler runs; each runs once at its end, with what came with its signal.
void handlers_wait_for_critical_stretches(void **)
{
    needs_the_kernels_signals();
    const struct sigaction informed = action_of(with_info, 0);
    set_sigaction(SIGUSR1, &informed, nullptr);
    set_signal(SIGUSR2, plain);
    enter_critical();
    enter_critical();
    ::raise(SIGUSR1);
    ::raise(SIGUSR2);
    ::raise(SIGUSR2);
    leave_critical();
    assert_int_equal(g_runs, 0);
    leave_critical();
    assert_int_equal(g_runs, 3 - 1); // a signal that is pending doesn't become pending twice
    assert_int_equal(g_last_sender, ::getpid());
    sigset_t mask;
    ::sigprocmask(SIG_SETMASK, nullptr, &mask);
    assert_false(::sigismember(&mask, SIGUSR1) == 1 || ::sigismember(&mask, SIGUSR2) == 1);
    ::raise(SIGUSR2);
    assert_int_equal(g_runs, 3);
}

// So do those that would nest, and those that stand no more when they begin.
void whatever_their_flags(void **)
{
    needs_the_kernels_signals();
    const int once = static_cast<int>(SA_RESETHAND);
    for (const int flags : {SA_NODEFER, once, once | SA_NODEFER, SA_RESTART}) {
        g_runs = 0;
        const struct sigaction action = action_of(plain, flags);
        set_sigaction(SIGUSR1, &action, nullptr);
        enter_critical();
        ::raise(SIGUSR1);
        assert_int_equal(g_runs, 0);
        leave_critical();
        assert_int_equal(g_runs, 1);
        assert_ptr_equal(current(SIGUSR1), (flags & once) != 0 ? SIG_DFL : plain);
        sigset_t mask;
        ::sigprocmask(SIG_BLOCK, nullptr, &mask);
        assert_int_equal(::sigismember(&mask, SIGUSR1), 0);
    }
}

void again_and_again(int signal)
{
    ++g_runs;
    set_sysv_signal(signal, again_and_again);
}

// Of two that wait, one for the thread and one for the process, the second does not come before the first has installed
// its handler anew.
void two_that_are_for_one_signal_each(void **)
{
    needs_the_kernels_signals();
    set_sysv_signal(SIGUSR1, again_and_again);
    enter_critical();
    ::raise(SIGUSR1);
    ::kill(::getpid(), SIGUSR1);
    assert_int_equal(g_runs, 0);
    leave_critical();
    assert_int_equal(g_runs, 2);
}

void a_fault_cannot_wait(void **)
{
    needs_the_kernels_signals();
    const struct sigaction fault = action_of(plain, 0);
    struct sigaction before = {};
    set_sigaction(SIGBUS, &fault, &before);
    enter_critical();
    ::raise(SIGBUS);
    assert_int_equal(g_runs, 1);
    leave_critical();
    assert_int_equal(g_runs, 1);
    set_sigaction(SIGBUS, &before, nullptr);
}

} // namespace

int main()
{
    resolve_real();
#define CASE(name) cmocka_unit_test_setup_teardown(name, reset, reset)
    const CMUnitTest tests[] = {
        CASE(handlers_wait_for_critical_stretches),
        CASE(whatever_their_flags),
        CASE(two_that_are_for_one_signal_each),
        CASE(a_fault_cannot_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
