// SPDX-License-Identifier: BSD-2-Clause
// Who waits for a load, and who does not: what is loaded here waits until the test's own thread sleeps.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"

using namespace vma::sock;

namespace {

std::atomic<bool> g_may_end{false};
std::atomic<bool> g_is_over{false};

void load_until_told()
{
    while (!g_may_end.load()) {
    }
    g_is_over.store(true);
}

bool main_sleeps()
{
    const std::string path = "/proc/self/task/" + std::to_string(::getpid()) + "/syscall";
    char text[128] = {}; // "running", or the number of the call that it is in
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t length = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    return length > 0 && std::atol(text) == SYS_futex;
}

void load_until_main_sleeps()
{
    while (!main_sleeps()) {
    }
    g_is_over.store(true);
}

void begin(Part part, void (*run)())
{
    g_may_end.store(false);
    g_is_over.store(false);
    Load &l = g_loading.by_part[static_cast<int>(part)];
    l.run = run;
    l.state.store(0);
    assert_int_equal(static_cast<int>(loaded(part)), static_cast<int>(Loaded::kNotYet));
    assert_false(numbers_move());
    (void)load_what_is_wanted(Patience::kGoesOn);
}

// A stream within the host needs the provider alone.
void one_part_is_not_the_other(void **)
{
    begin(Part::kRdma, load_until_told);
    assert_true(is_loading(Part::kRdma));
    assert_false(is_loading(Part::kProvider));
    assert_false(g_is_over.load()); // nobody waits
    g_may_end.store(true);
    wait_for_loads();
    assert_false(is_loading(Part::kRdma));
}

void whoever_is_given_a_number_waits(void **)
{
    begin(Part::kRdma, load_until_main_sleeps);
    assert_true(numbers_move());
    wait_for_numbers();
    assert_true(g_is_over.load());
    assert_false(numbers_move());
}

// Where somebody has waited in vain for the same load.
void nobody_waits_for_a_slow_one(void **)
{
    begin(Part::kRdma, load_until_told);
    g_loading.by_part[static_cast<int>(Part::kRdma)].is_slow.store(true);
    wait_for_numbers();
    assert_false(g_is_over.load());
    g_may_end.store(true);
    wait_for_loads();
    assert_false(numbers_move());
}

// It would be closed by nobody.
void nothing_is_opened_when_the_process_ends(void **)
{
    begin(Part::kProvider, load_until_main_sleeps);
    end_loads();
    assert_true(g_is_over.load());
    assert_int_equal(static_cast<int>(loaded(Part::kProvider)), static_cast<int>(Loaded::kTried));
    assert_true(engine_is_unstarted());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_part_is_not_the_other),
        cmocka_unit_test(whoever_is_given_a_number_waits),
        cmocka_unit_test(nobody_waits_for_a_slow_one),
        cmocka_unit_test(nothing_is_opened_when_the_process_ends),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
