// SPDX-License-Identifier: BSD-2-Clause
// The trampoline in front of signal handlers: the program sees its own handlers and the kernel's behaviour, and every
// one that runs is counted.
#include "fabtests/unit.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/test/libc/actions.hpp"

using namespace vma::libc;
using namespace vma::test;

namespace {

std::atomic<int> g_runs;
std::atomic<int> g_last_signal;
std::atomic<pid_t> g_last_sender;
std::atomic<int> g_depth;
std::atomic<int> g_deepest;

void plain(int signal)
{
    ++g_runs;
    g_last_signal = signal;
}

void other(int)
{
    g_runs += 100;
}

void with_info(int signal, siginfo_t *info, void *context)
{
    ++g_runs;
    g_last_signal = signal;
    g_last_sender = info->si_pid;
    if (context == nullptr)
        ::abort();
}

void nesting(int signal)
{
    ++g_depth;
    if (g_depth > g_deepest)
        g_deepest = g_depth.load();
    if (g_runs++ == 0)
        ::raise(signal);
    --g_depth;
}

struct sigaction current(int signal)
{
    struct sigaction now = {};
    assert_int_equal(set_sigaction(signal, nullptr, &now), 0);
    return now;
}

int reset(void **)
{
    g_runs = 0;
    g_depth = 0;
    g_deepest = 0;
    for (const int signal : {SIGUSR1, SIGUSR2, SIGRTMIN})
        set_signal(signal, SIG_DFL);
    return 0;
}

// Which counters one signal moves.
struct Moved {
    std::uint32_t all;
    std::uint32_t interrupting;
};

Moved raise_counted(int signal)
{
    const SignalCounts before = signal_counts();
    ::raise(signal);
    const SignalCounts after = signal_counts();
    return {after.all - before.all, after.interrupting - before.interrupting};
}

void every_combination_of_flags(void **)
{
    const int flags[] = {SA_RESTART, SA_NODEFER, static_cast<int>(SA_RESETHAND), SA_ONSTACK, SA_NOCLDSTOP};
    static char stack[65536];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    ::sigaltstack(&alternative, nullptr);
    for (int siginfo = 0; siginfo < 2; ++siginfo) {
        for (unsigned choice = 0; choice < 1U << std::size(flags); ++choice) {
            int chosen = 0;
            for (std::size_t i = 0; i < std::size(flags); ++i)
                chosen |= (choice >> i & 1) != 0 ? flags[i] : 0;
            reset(nullptr);
            const struct sigaction action = siginfo != 0 ? action_of(with_info, chosen) : action_of(plain, chosen);
            assert_int_equal(set_sigaction(SIGUSR1, &action, nullptr), 0);
            const struct sigaction seen = current(SIGUSR1);
            assert_ptr_equal(seen.sa_handler, action.sa_handler);
            assert_int_equal(seen.sa_flags & ~0x04000000, action.sa_flags); // SA_RESTORER is libc's
            const Moved moved = raise_counted(SIGUSR1);
            assert_int_equal(moved.all, 1);
            assert_int_equal(moved.interrupting, (chosen & SA_RESTART) != 0 ? 0 : 1);
            assert_int_equal(g_runs, 1);
            assert_int_equal(g_last_signal, SIGUSR1);
            if (siginfo != 0)
                assert_int_equal(g_last_sender, ::getpid());
            assert_ptr_equal(current(SIGUSR1).sa_handler,
                             (chosen & static_cast<int>(SA_RESETHAND)) != 0 ? SIG_DFL : action.sa_handler);
        }
    }
    alternative.ss_flags = SS_DISABLE;
    ::sigaltstack(&alternative, nullptr);
}

void mask_is_kept(void **)
{
    struct sigaction action = action_of(plain, 0);
    ::sigaddset(&action.sa_mask, SIGUSR2);
    ::sigaddset(&action.sa_mask, SIGTERM);
    set_sigaction(SIGUSR1, &action, nullptr);
    const struct sigaction seen = current(SIGUSR1);
    assert_memory_equal(&seen.sa_mask, &action.sa_mask, 8);
}

void nodefer_nests(void **)
{
    needs_the_kernels_signals();
    struct sigaction action = action_of(nesting, SA_NODEFER);
    set_sigaction(SIGUSR1, &action, nullptr);
    assert_int_equal(raise_counted(SIGUSR1).all, 2);
    assert_int_equal(g_deepest, 2);
    reset(nullptr);
    action = action_of(nesting, 0);
    set_sigaction(SIGUSR1, &action, nullptr);
    assert_int_equal(raise_counted(SIGUSR1).all, 2);
    assert_int_equal(g_deepest, 1);
}

void old_actions_are_the_programs(void **)
{
    struct sigaction old;
    struct sigaction action = action_of(plain, SA_RESTART);
    assert_int_equal(set_sigaction(SIGUSR1, &action, &old), 0);
    assert_ptr_equal(old.sa_handler, SIG_DFL);
    action = action_of(with_info, 0);
    assert_int_equal(set_sigaction(SIGUSR1, &action, &old), 0);
    assert_ptr_equal(old.sa_handler, plain);
    assert_int_equal(old.sa_flags & SA_SIGINFO, 0);
    assert_int_equal(set_sigaction(SIGUSR1, &old, &old), 0); // the same object, as programs swap
    assert_ptr_equal(old.sa_sigaction, with_info);
    assert_true((old.sa_flags & SA_SIGINFO) != 0);
    action = action_of(SIG_IGN, 0);
    assert_int_equal(set_sigaction(SIGUSR1, &action, &old), 0);
    assert_ptr_equal(old.sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR1).all, 0);
    assert_ptr_equal(current(SIGUSR1).sa_handler, SIG_IGN);
}

void signal_and_its_like(void **)
{
    needs_the_kernels_signals();
    assert_ptr_equal(set_signal(SIGUSR1, plain), SIG_DFL);
    assert_ptr_equal(set_signal(SIGUSR1, other), plain);
    const Moved restarting = raise_counted(SIGUSR1);
    assert_int_equal(g_runs, 100);
    assert_int_equal(restarting.all, 1);
    assert_int_equal(restarting.interrupting, 0);
    assert_true((current(SIGUSR1).sa_flags & SA_RESTART) != 0);
    assert_ptr_equal(set_signal(SIGUSR1, SIG_IGN), other);
    assert_ptr_equal(set_signal(SIGUSR1, SIG_DFL), SIG_IGN);

    assert_ptr_equal(set_sysv_signal(SIGUSR1, plain), SIG_DFL);
    const Moved once = raise_counted(SIGUSR1);
    assert_int_equal(once.all, 1);
    assert_int_equal(once.interrupting, 1);
    assert_ptr_equal(set_sysv_signal(SIGUSR1, plain), SIG_DFL); // it was reset
    assert_ptr_equal(set_signal(SIGUSR1, SIG_DFL), plain);
}

void sigset_holds(void **)
{
    assert_ptr_equal(set_sigset(SIGUSR1, plain), SIG_DFL);
    assert_int_equal(raise_counted(SIGUSR1).interrupting, 1);
    assert_ptr_equal(set_sigset(SIGUSR1, SIG_HOLD), plain);
    assert_int_equal(raise_counted(SIGUSR1).all, 0);
    assert_ptr_equal(set_sigset(SIGUSR1, other), SIG_HOLD); // delivered now, to the new one
    assert_int_equal(g_runs, 101);
    assert_ptr_equal(set_sigset(SIGUSR1, SIG_DFL), other);
}

void siginterrupt_changes_both(void **)
{
    set_signal(SIGUSR1, plain);
    assert_int_equal(set_siginterrupt(SIGUSR1, 1), 0);
    assert_int_equal(current(SIGUSR1).sa_flags & SA_RESTART, 0);
    assert_ptr_equal(current(SIGUSR1).sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR1).interrupting, 1);
    set_signal(SIGUSR1, other); // libc remembers
    assert_int_equal(current(SIGUSR1).sa_flags & SA_RESTART, 0);
    assert_int_equal(raise_counted(SIGUSR1).interrupting, 1);
    assert_int_equal(set_siginterrupt(SIGUSR1, 0), 0);
    assert_int_equal(raise_counted(SIGUSR1).interrupting, 0);
    set_signal(SIGUSR1, plain);
    assert_int_equal(raise_counted(SIGUSR1).interrupting, 0);
    assert_int_equal(set_siginterrupt(0, 1), -1);
    assert_int_equal(errno, EINVAL);
}

void refused_installation_changes_nothing(void **)
{
    needs_the_kernels_signals();
    const struct sigaction action = action_of(plain, 0);
    for (const int wrong : {0, -1, NSIG, NSIG + 5, SIGKILL, SIGSTOP, 32, 33}) {
        errno = 0;
        assert_int_equal(set_sigaction(wrong, &action, nullptr), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_ptr_equal(set_signal(SIGKILL, plain), SIG_ERR);
    assert_ptr_equal(set_signal(-3, plain), SIG_ERR);
    assert_ptr_equal(set_signal(SIGUSR1, SIG_ERR), SIG_ERR);
    assert_ptr_equal(set_sigset(SIGSTOP, plain), SIG_ERR);
}

void handlers_past_us_are_left_alone(void **)
{
    struct sigaction action = action_of(plain, 0);
    real.sigaction(SIGUSR2, &action, nullptr);
    assert_ptr_equal(current(SIGUSR2).sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR2).all, 0);
    assert_int_equal(g_runs, 1);
    struct sigaction old;
    set_sigaction(SIGUSR2, &action, &old);
    assert_ptr_equal(old.sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR2).all, 1);
    // What the kernel knows, read past us and put back through us, must not make the trampoline call itself.
    struct sigaction kernels;
    real.sigaction(SIGUSR2, nullptr, &kernels);
    set_sigaction(SIGUSR2, &kernels, &old);
    assert_ptr_equal(old.sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR2).all, 1);
    assert_int_equal(g_runs, 3);
}

sigjmp_buf g_jump;

void jumping(int)
{
    siglongjmp(g_jump, 1);
}

void handlers_may_jump(void **)
{
    set_signal(SIGUSR1, jumping);
    const volatile std::uint32_t before = signal_counts().all; // a register may not survive the jump
    if (sigsetjmp(g_jump, 1) == 0)
        ::raise(SIGUSR1);
    assert_int_equal(signal_counts().all - before, 1);
}

char *g_page;

void mend(int, siginfo_t *info, void *context)
{
    ++g_runs;
    if (info->si_addr != g_page || static_cast<ucontext_t *>(context)->uc_flags == ~0UL)
        ::_exit(9);
    ::mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
}

void fault_handlers_see_the_fault(void **)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    UNIT_SKIP("the sanitizer has its own handler of SIGSEGV");
#endif
    g_page = static_cast<char *>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction old;
    const struct sigaction action = action_of(mend, 0);
    set_sigaction(SIGSEGV, &action, &old);
    *const_cast<volatile char *>(g_page) = 1;
    set_sigaction(SIGSEGV, &old, nullptr);
    assert_int_equal(g_runs, 1);
    ::munmap(g_page, 4096);
}

void counts_are_of_the_thread(void **)
{
    needs_the_kernels_signals(); // one that comes to a thread as it begins, ThreadSanitizer keeps
    set_signal(SIGUSR1, plain);
    static sem_t started, done;
    ::sem_init(&started, 0, 0);
    ::sem_init(&done, 0, 0);
    std::uint32_t moved = 0;
    std::thread thread([&moved] {
        const SignalCounts before = signal_counts();
        ::sem_post(&started);
        while (::sem_wait(&done) != 0) {
        }
        moved = signal_counts().all - before.all;
    });
    ::sem_wait(&started);
    const SignalCounts before = signal_counts();
    ::pthread_kill(thread.native_handle(), SIGUSR1);
    while (g_runs == 0)
        ::usleep(100);
    ::sem_post(&done);
    thread.join();
    assert_int_equal(moved, 1);
    assert_int_equal(signal_counts().all, before.all);
}

void sleeping_thread_is_woken(void **)
{
    const int fd = ::eventfd(0, EFD_NONBLOCK);
    set_signal(SIGUSR1, plain);
    set_signal_wake_fd(fd);
    errno = EXDEV;
    ::raise(SIGUSR1);
    assert_int_equal(errno, EXDEV);
    set_signal_wake_fd(-1);
    ::raise(SIGUSR1);
    eventfd_t value = 0;
    assert_int_equal(::eventfd_read(fd, &value), 0);
    assert_int_equal(value, 1);
    ::close(fd);
}

void child_of_vfork_leaves_the_parents(void **)
{
    set_signal(SIGUSR1, plain);
    entering_vfork();
    const pid_t child = ::vfork();
    if (child == 0) {
        set_signal(SIGUSR1, other);
        set_signal(SIGUSR2, SIG_IGN);
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    assert_ptr_equal(current(SIGUSR1).sa_handler, plain);
    assert_int_equal(raise_counted(SIGUSR1).all, 1);
    assert_int_equal(g_runs, 1);
}

// Two threads install at once while a third sends: whatever runs is one of the two.
void installing_at_once(void **)
{
    std::atomic<bool> stop{false};
    set_signal(SIGUSR1, plain);
    auto install = [&stop](sighandler_t handler) {
        while (!stop)
            set_signal(SIGUSR1, handler);
    };
    std::thread one(install, plain);
    std::thread two(install, other);
    for (int i = 0; i < 20000; ++i)
        ::raise(SIGUSR1);
    stop = true;
    one.join();
    two.join();
    const sighandler_t last = current(SIGUSR1).sa_handler;
    assert_true(last == plain || last == other);
    assert_true(g_runs >= 20000);
}

} // namespace

int main()
{
    resolve_real();
#define CASE(name) cmocka_unit_test_setup_teardown(name, reset, reset)
    const CMUnitTest tests[] = {
        CASE(every_combination_of_flags),
        CASE(mask_is_kept),
        CASE(nodefer_nests),
        CASE(old_actions_are_the_programs),
        CASE(signal_and_its_like),
        CASE(sigset_holds),
        CASE(siginterrupt_changes_both),
        CASE(refused_installation_changes_nothing),
        CASE(handlers_past_us_are_left_alone),
        CASE(handlers_may_jump),
        CASE(fault_handlers_see_the_fault),
        CASE(counts_are_of_the_thread),
        CASE(sleeping_thread_is_woken),
        CASE(child_of_vfork_leaves_the_parents),
        CASE(installing_at_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
