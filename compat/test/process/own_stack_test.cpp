// SPDX-License-Identifier: BSD-2-Clause
// The stack of the library's own: what is below it stays as it is, and the program's log callback is called on the
// program's.
#include "fabtests/unit.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <new>

#include "compat/src/base/own_stack.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/config/stacks.hpp"

using namespace vma;

namespace {

constexpr std::size_t kBelow = std::size_t{1} << 20;

sock::OwnStack g_stack;
std::uintptr_t g_told_at = 0;
int g_told = 0;

bool lies_in(const sock::OwnStack &stack, std::uintptr_t address)
{
    const auto begin = reinterpret_cast<std::uintptr_t>(&stack);
    return address >= begin && address < begin + sizeof stack;
}

std::uintptr_t here()
{
    return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
}

void note_line(int, const char *)
{
    g_told_at = here();
    ++g_told;
}

void the_log_callback_is_called_on_the_programs(void **)
{
    if (!config::g_switches_stacks)
        UNIT_SKIP("this build does not change stacks");
    char pointer[32];
    std::snprintf(pointer, sizeof pointer, "%p", reinterpret_cast<void *>(&note_line));
    ::setenv("VMA_LOG_CB_FUNC_PTR", pointer, 1);
    config::open_log(config::params());
    std::uintptr_t worked_at = 0;
    g_stack.run([&] {
        VMA_LOG(kError, "one");
        worked_at = here();
        VMA_LOG(kError, "another");
    });
    assert_int_equal(g_told, 2);
    assert_true(lies_in(g_stack, worked_at));
    assert_false(lies_in(g_stack, g_told_at));
    assert_true(g_told_at < here() && here() - g_told_at < 65536); // below this frame
    VMA_LOG(kError, "from here");
    assert_int_equal(g_told, 3);
    config::close_log();
}

[[gnu::noinline]] int take_all(int depth)
{
    volatile char room[1024];
    std::fill(std::begin(room), std::end(room), char(1));
    return depth < 0 ? 0 : take_all(depth + 1) + room[0];
}

// Work that takes more than there is, in a process of its own.
void nothing_below_is_written_to(void **)
{
    if (!config::g_switches_stacks)
        UNIT_SKIP("this build does not change stacks");
    void *const memory =
        ::mmap(nullptr, kBelow + sizeof(sock::OwnStack), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    auto *const below = static_cast<char *>(memory);
    auto *const stack = new (below + kBelow) sock::OwnStack;
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGSEGV, SIG_DFL);
        stack->run([] { ::_exit(take_all(0)); });
    }
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_true(std::all_of(below, below + kBelow, [](char byte) { return byte == 0; }));
    ::munmap(memory, kBelow + sizeof(sock::OwnStack));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_log_callback_is_called_on_the_programs),
        cmocka_unit_test(nothing_below_is_written_to),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
