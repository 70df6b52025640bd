// SPDX-License-Identifier: BSD-2-Clause
// Who waits for a load, and who does not: what is loaded here waits until the test's own thread sleeps.
#include "fabtests/unit.hpp"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>

#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"

using namespace vma::sock;

namespace {

std::atomic<bool> g_may_end{false};
std::atomic<bool> g_is_over{false};

void load_until_told()
{
    while (!g_may_end.load())
        ::sched_yield();
    g_is_over.store(true);
}

bool main_sleeps()
{
    const std::string path = "/proc/self/task/" + std::to_string(::getpid()) + "/stat";
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::size_t name = text.rfind(") ");
    assert_true(name != std::string::npos);
    return text[name + 2] == 'S';
}

void load_until_main_sleeps()
{
    while (!main_sleeps())
        ::sched_yield();
    g_is_over.store(true);
}

void begin(Part part, void (*run)())
{
    g_may_end.store(false);
    g_is_over.store(false);
    Load &l = g_loading.by_part[static_cast<int>(part)];
    wait_for_loads(); // joins the one before
    g_loading.patience_ns = 60'000'000'000;
    l.is_slow.store(false);
    l.run = run;
    l.state.store(0);
    assert_int_equal(static_cast<int>(loaded(part)), static_cast<int>(Loaded::kNotYet));
    assert_false(is_any_loading());
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
    assert_true(is_any_loading());
    wait_once_for_loads();
    assert_true(g_is_over.load());
    assert_false(is_any_loading());
}

// Where somebody has waited in vain for the same load.
void nobody_waits_for_a_slow_one(void **)
{
    begin(Part::kRdma, load_until_told);
    g_loading.by_part[static_cast<int>(Part::kRdma)].is_slow.store(true);
    wait_once_for_loads();
    assert_false(g_is_over.load());
    g_may_end.store(true);
    wait_for_loads();
    assert_false(is_any_loading());
}

// Also for what another thread has begun.
void whoever_asks_for_latency_waits(void **)
{
    begin(Part::kProvider, load_until_told);
    g_loading.ends.store(true); // nothing is opened behind it
    assert_true(is_loading_still(Patience::kGoesOn));
    g_may_end.store(true);
    wait_for_loads();
    g_loading.ends.store(false);
    begin(Part::kProvider, load_until_main_sleeps);
    g_loading.ends.store(true);
    assert_false(is_loading_still(Patience::kWaits));
    assert_true(g_is_over.load());
    g_loading.ends.store(false);
}

// It would be closed by nobody.
void nothing_is_opened_when_the_process_ends(void **)
{
    begin(Part::kProvider, load_until_main_sleeps);
    end_loads();
    assert_true(g_is_over.load());
    assert_int_equal(static_cast<int>(loaded(Part::kProvider)), static_cast<int>(Loaded::kTried));
    assert_true(engine_is_unstarted());
    begin(Part::kRdma, load_until_told);
    assert_false(is_loading(Part::kRdma));
}

} // namespace

int main()
{
    vma::libc::resolve_real(); // each thread would do so by itself, and store what it finds
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_part_is_not_the_other),
        cmocka_unit_test(whoever_is_given_a_number_waits),
        cmocka_unit_test(nobody_waits_for_a_slow_one),
        cmocka_unit_test(whoever_asks_for_latency_waits),
        cmocka_unit_test(nothing_is_opened_when_the_process_ends),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
