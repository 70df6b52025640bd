// SPDX-License-Identifier: BSD-2-Clause
// Is memory there? Before there is a handler the kernel is asked, then an instruction finds out; both leave the memory
// as it is. And the alternate stack, which is the program's, has no part in it.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/real.hpp"

using namespace vma::libc;

namespace {

constexpr std::size_t kPage = 4096;

char *map(int rights)
{
    void *const pages = ::mmap(nullptr, 3 * kPage, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    return static_cast<char *>(pages);
}

char *pages_before_nothing()
{
    char *const pages = map(PROT_READ | PROT_WRITE);
    assert_int_equal(::mprotect(pages + 2 * kPage, kPage, PROT_NONE), 0);
    return pages;
}

void expect_reads(const char *at, std::size_t length, bool wanted)
{
    errno = EXDEV;
    assert_true(can_read(at, length) == wanted);
    assert_int_equal(errno, EXDEV);
}

void expect_writes(const char *at, std::size_t length, bool wanted)
{
    errno = EXDEV;
    assert_true(can_update(at, length) == wanted);
    assert_int_equal(errno, EXDEV);
}

void look_at_everything()
{
    char *const pages = pages_before_nothing();
    std::memset(pages, 0x80, 2 * kPage); // negative words too
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{9}, kPage, 2 * kPage}) {
        expect_reads(pages + 2 * kPage - length, length, true);
        expect_writes(pages + 2 * kPage - length, length, true);
        expect_reads(pages + 2 * kPage - length, length + 1, false);
        expect_writes(pages + 2 * kPage - length, length + 1, false);
    }
    for (std::size_t i = 0; i < 2 * kPage; ++i)
        assert_int_equal(pages[i], static_cast<char>(0x80));
    const char *const constant = map(PROT_READ);
    expect_reads(constant, kPage, true);
    expect_writes(constant, 1, false);
    for (const std::uintptr_t nowhere : {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{0x20000},
                                         std::uintptr_t{0xffff888000000000}, ~std::uintptr_t{0}}) {
        const char *const at = reinterpret_cast<const char *>(nowhere); // NOLINT(performance-no-int-to-ptr)
        expect_reads(at, 1, false);
        expect_writes(at, 1, false);
        expect_reads(at, 0, true);
    }
    expect_reads(pages, ~std::size_t{0}, false);
    ::munmap(pages, 3 * kPage);
}

// Runs first: nobody has asked for the handler.
void the_kernel_is_asked(void **)
{
    struct sigaction now = {};
    assert_false(faults_are_caught());
    look_at_everything();
    assert_int_equal(real.sigaction(SIGSEGV, nullptr, &now), 0);
    assert_false(is_default_handler(now.sa_handler));
}

void needs_the_kernels_signals()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    UNIT_SKIP("the sanitizer has its own handler of SIGSEGV");
#endif
}

// cmocka has a handler in each test.
void catch_ours()
{
    catch_faults();
    for (const int signal : {SIGSEGV, SIGBUS})
        set_signal(signal, SIG_DFL);
}

void an_instruction_finds_out(void **)
{
    needs_the_kernels_signals();
    catch_ours();
    assert_true(faults_are_caught());
    look_at_everything();
}

// A program that has no handler of its own, and an alternate stack in whatever state.
void the_alternate_stack_is_left_alone(void **)
{
    needs_the_kernels_signals();
    catch_ours();
    const auto size = static_cast<std::size_t>(SIGSTKSZ);
    for (const int rights : {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE}) {
        auto *const memory =
            static_cast<char *>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        stack_t stack = {};
        stack.ss_sp = memory;
        stack.ss_size = size;
        assert_int_equal(::sigaltstack(&stack, nullptr), 0);
        assert_int_equal(::mprotect(memory, size, rights), 0);
        expect_reads(nullptr, 1, false);
        if ((rights & PROT_READ) != 0)
            for (std::size_t i = 0; i < size; ++i)
                assert_int_equal(memory[i], 0);
        stack.ss_flags = SS_DISABLE;
        assert_int_equal(::sigaltstack(&stack, nullptr), 0);
        ::munmap(memory, size);
    }
}

// As without us: a stack that is used up, with an alternate one or not.
void a_used_up_stack_ends_the_process(void **)
{
    needs_the_kernels_signals();
    catch_ours();
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none = {};
        ::setrlimit(RLIMIT_CORE, &none);
#if defined(__x86_64__)
        char *const pages = map(PROT_NONE);
        asm volatile("movq %0, %%rsp\n\tpushq %%rax" : : "r"(pages + kPage) : "memory");
#else
        ::raise(SIGSEGV);
#endif
        ::_exit(0);
    }
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

} // namespace

int main()
{
    resolve_real();
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_is_asked),
        cmocka_unit_test(an_instruction_finds_out),
        cmocka_unit_test(the_alternate_stack_is_left_alone),
        cmocka_unit_test(a_used_up_stack_ends_the_process),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
