// SPDX-License-Identifier: BSD-2-Clause
// What runs in front of a program's handler uses nothing of the stack that it runs on: below the kernel's frame no byte
// changes, and on any stack, however small, the handler fares as it would without us. A sanitizer's functions do use
// the stack.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"

using namespace vma::libc;

// A handler that writes nothing on its stack: it tells where that was when it began, and where the kernel's frame
// stands.
extern "C" {
[[gnu::visibility("hidden")]] std::uintptr_t g_begun_at = 0;
[[gnu::visibility("hidden")]] std::uintptr_t g_frame = 0;
[[gnu::visibility("hidden")]] void frugal(int, siginfo_t *, void *);
}

#if defined(__x86_64__)
asm(R"(
    .pushsection .text
    .hidden frugal
    .globl frugal
    .type frugal, @function
frugal:
    endbr64
    movq %rsp, g_begun_at(%rip)
    movq %rdx, g_frame(%rip)
    ret
    .size frugal, . - frugal
    .popsection
)");
#else
void frugal(int, siginfo_t *, void *context)
{
    g_frame = reinterpret_cast<std::uintptr_t>(context);
}
#endif

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStack = 16 * kPage;
constexpr unsigned char kUntouched = 0xa5;

alignas(64) unsigned char g_stack[kStack];

void needs_plain_code()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    UNIT_SKIP("a sanitizer's instrumentation uses the stack");
#endif
#if !defined(__x86_64__) || !defined(__OPTIMIZE__)
    UNIT_SKIP("only where it is compiled with optimization for x86-64");
#endif
}

void use_stack(void *memory, std::size_t size)
{
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = size;
    stack.ss_flags = size == 0 ? SS_DISABLE : 0;
    assert_int_equal(::sigaltstack(&stack, nullptr), 0);
}

int setup(void **)
{
    std::memset(g_stack, kUntouched, sizeof g_stack);
    use_stack(g_stack, sizeof g_stack);
    g_begun_at = g_frame = 0;
    return 0;
}

int teardown(void **)
{
    for (const int signal : {SIGUSR1, SIGSEGV})
        set_signal(signal, SIG_DFL);
    use_stack(nullptr, 0);
    return 0;
}

struct sigaction frugal_action(unsigned flags)
{
    struct sigaction action = {};
    action.sa_sigaction = frugal;
    action.sa_flags = static_cast<int>(SA_ONSTACK | flags);
    return action;
}

void install(int signal, unsigned flags)
{
    const struct sigaction action = frugal_action(flags);
    assert_int_equal(set_sigaction(signal, &action, nullptr), 0);
}

std::uintptr_t lowest_touched()
{
    const unsigned char *at = g_stack;
    while (at < g_stack + kStack && *at == kUntouched)
        ++at;
    return reinterpret_cast<std::uintptr_t>(at);
}

// It began where the kernel put it, under the return address; and all below is as it was.
void expect_nothing_used()
{
    assert_true(g_frame > reinterpret_cast<std::uintptr_t>(g_stack));
    assert_int_equal(g_begun_at, g_frame - sizeof(void *));
    assert_int_equal(lowest_touched(), g_begun_at);
}

void a_plain_handler(void **)
{
    needs_plain_code();
    for (const unsigned flags : {0U, unsigned{SA_SIGINFO}, static_cast<unsigned>(SA_RESETHAND), unsigned{SA_RESTART}}) {
        setup(nullptr);
        install(SIGUSR1, flags);
        ::raise(SIGUSR1);
        expect_nothing_used();
    }
}

void one_that_wakes_its_thread(void **)
{
    needs_plain_code();
    const int fd = ::eventfd(0, EFD_NONBLOCK);
    install(SIGUSR1, SA_SIGINFO);
    set_signal_wake_fd(fd);
    ::raise(SIGUSR1);
    set_signal_wake_fd(-1);
    expect_nothing_used();
    eventfd_t value = 0;
    assert_int_equal(::eventfd_read(fd, &value), 0);
    ::close(fd);
}

// One that sleeps without a descriptor.
void one_that_turns_a_place(void **)
{
    needs_plain_code();
    install(SIGUSR1, SA_SIGINFO);
    std::uint32_t turns[8] = {};
    set_signal_turns(turns, 2);
    set_signal_wake_fd(kTurnAtPlace - 3);
    ::raise(SIGUSR1);
    set_signal_wake_fd(-1);
    expect_nothing_used();
    set_signal_turns(nullptr, 0);
    assert_int_equal(turns[6], 1);
}

void one_that_is_put_off(void **)
{
    needs_plain_code();
    const unsigned once = static_cast<unsigned>(SA_RESETHAND);
    for (const unsigned flags : {0U, unsigned{SA_SIGINFO}, unsigned{SA_NODEFER}, once, once | SA_SIGINFO}) {
        setup(nullptr);
        install(SIGUSR1, flags);
        enter_critical();
        ::raise(SIGUSR1);
        assert_int_equal(g_begun_at, 0);
        const std::uintptr_t touched = lowest_touched();
        leave_critical();
        expect_nothing_used();
        assert_int_equal(touched, g_begun_at);
    }
}

void one_for_faults(void **)
{
    needs_plain_code();
    install(SIGSEGV, SA_SIGINFO);
    ::raise(SIGSEGV);
    expect_nothing_used();
    // One of ours is not the program's to hear of, nor its handler's end.
    catch_faults();
    for (const unsigned flags : {unsigned{SA_SIGINFO}, static_cast<unsigned>(SA_RESETHAND)}) {
        const std::uintptr_t frame = g_begun_at != 0 ? g_begun_at : lowest_touched();
        setup(nullptr);
        install(SIGSEGV, flags);
        assert_false(can_read(nullptr, 1));
        assert_int_equal(g_begun_at, 0);
        assert_int_equal(lowest_touched(), frame);
        struct sigaction now = {};
        set_sigaction(SIGSEGV, nullptr, &now);
        assert_true(now.sa_sigaction == frugal);
    }
}

// ---- stacks that are amiss: the end of a child with our trampoline and without

struct Stack {
    const char *name;
    std::size_t size;      // of which the upper part is used
    std::size_t read_only; // the lowest bytes
    std::size_t unmapped;
};

int end_on(const Stack &wanted, bool ours)
{
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none = {};
        ::setrlimit(RLIMIT_CORE, &none);
        real.signal(SIGSEGV, SIG_DFL); // cmocka has one
        const std::size_t room = (wanted.size + kPage - 1) / kPage * kPage;
        auto *const memory = static_cast<char *>(
            ::mmap(nullptr, room + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ::mprotect(memory, kPage, PROT_NONE); // a guard
        stack_t stack = {};
        stack.ss_sp = memory + kPage;
        stack.ss_size = wanted.size;
        if (::sigaltstack(&stack, nullptr) != 0)
            ::_exit(7);
        const struct sigaction action = frugal_action(SA_SIGINFO);
        set_signal_wake_fd(::eventfd(0, 0)); // the longest way to the handler
        if (ours)
            set_sigaction(SIGUSR1, &action, nullptr);
        else
            real.sigaction(SIGUSR1, &action, nullptr);
        ::mprotect(memory + kPage, wanted.read_only, PROT_READ);
        ::munmap(memory + kPage, wanted.unmapped);
        ::raise(SIGUSR1);
        ::_exit(g_begun_at != 0 ? 1 : 2);
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    return status;
}

void expect_the_same_end(const Stack &stack)
{
    const int without = end_on(stack, false);
    const int with = end_on(stack, true);
    if (with != without)
        print_error("a stack %s, %zu bytes: status %d, without us %d\n", stack.name, stack.size, with, without);
    assert_int_equal(with, without);
}

// How much of a stack the kernel's frame takes.
std::size_t frame_bytes()
{
    const struct sigaction action = frugal_action(0);
    assert_int_equal(real.sigaction(SIGUSR1, &action, nullptr), 0);
    ::raise(SIGUSR1);
    return reinterpret_cast<std::uintptr_t>(g_stack + kStack) - g_begun_at;
}

void stacks_that_are_amiss(void **)
{
    needs_plain_code();
    const std::size_t frame = frame_bytes();
    const std::size_t pages = (frame / kPage + 3) * kPage;
    const Stack stacks[] = {
        {"large", kStack, 0, 0},
        {"of MINSIGSTKSZ", 2048, 0, 0},
        {"as small as the kernel's frame", ::getauxval(AT_MINSIGSTKSZ), 0, 0},
        {"with little more than the frame", frame + 64, 0, 0},
        {"read-only", pages, pages, 0},
        {"unmapped", pages, 0, pages},
    };
    for (const Stack &stack : stacks)
        expect_the_same_end(stack);
    // The frame ends some bytes above the page that can't be written, or in it.
    for (std::size_t more = 0; more < 128; more += 8)
        expect_the_same_end({"read-only below the frame", 2 * kPage + frame + more, 2 * kPage, 0});
}

} // namespace

int main()
{
    resolve_real();
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const CMUnitTest tests[] = {
        CASE(a_plain_handler), CASE(one_that_wakes_its_thread), CASE(one_that_turns_a_place), CASE(one_that_is_put_off),
        CASE(one_for_faults),  CASE(stacks_that_are_amiss),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
