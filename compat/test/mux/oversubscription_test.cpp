// SPDX-License-Identifier: BSD-2-Clause
// Spinning waits where more threads want to run than there are processors: they end, and for a while none begins. One
// without a limit spins on.
#include "fabtests/unit.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <limits>
#include <thread>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/oversubscription.hpp"
#include "compat/src/base/spin_time.hpp"

namespace {

using namespace vma::mux;

constexpr std::int64_t kHour = 3'600'000'000; // us

void stay_on(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(::pthread_setaffinity_np(::pthread_self(), sizeof one, &one), 0);
}

// Two threads on this thread's processor: what it is like for a spinning one is the same however busy the machine is.
class Oversubscriptioned
{
public:
    explicit Oversubscriptioned(bool computes = false) // the other one: for whole time slices
    {
        assert_int_equal(::pthread_getaffinity_np(::pthread_self(), sizeof before_, &before_), 0);
        const int cpu = ::sched_getcpu();
        stay_on(cpu);
        other_ = std::thread([this, cpu, computes] {
            stay_on(cpu);
            while (!over_.load(std::memory_order_relaxed))
                if (!computes)
                    ::sched_yield();
        });
    }
    Oversubscriptioned(const Oversubscriptioned &) = delete;
    Oversubscriptioned &operator=(const Oversubscriptioned &) = delete;
    ~Oversubscriptioned()
    {
        over_.store(true, std::memory_order_relaxed);
        other_.join();
        ::pthread_setaffinity_np(::pthread_self(), sizeof before_, &before_);
    }

private:
    cpu_set_t before_;
    std::atomic<bool> over_{false};
    std::thread other_;
};

int forget(void **)
{
    vma::sock::g_process.oversubscription.until.store(0, std::memory_order_relaxed);
    return 0;
}

void turns_that_go_to_others_are_a_oversubscription(void **)
{
    const Oversubscriptioned oversubscription;
    const std::int64_t now = now_ns();
    while (!yield_finds_oversubscription(now)) {
    }
    assert_true(oversubscribed(now));
    assert_false(oversubscribed(now + 1'000'000'000)); // then a wait looks again
}

void spin_of_hours_ends(void **)
{
    const Oversubscriptioned oversubscription;
    SpinTime spin(kHour, kForever);
    while (!spin.over()) {
    }
    assert_true(vma::sock::g_process.oversubscription.until.load(std::memory_order_relaxed) != 0);
}

void no_other_begins(void **)
{
    vma::sock::g_process.oversubscription.until.store(std::numeric_limits<std::int64_t>::max(),
                                                      std::memory_order_relaxed);
    SpinTime spin(kHour, kForever);
    assert_true(spin.over());
}

void spin_without_limit_goes_on(void **)
{
    vma::sock::g_process.oversubscription.until.store(std::numeric_limits<std::int64_t>::max(),
                                                      std::memory_order_relaxed);
    const Oversubscriptioned oversubscription;
    SpinTime spin(-1, kForever);
    for (int i = 0; i < 10000; ++i)
        assert_false(spin.over());
}

// What a profile says is no word of the user's: beside a thread that computes such a spin ends too, and the next ones
// rest.
void spin_without_limit_of_a_profile_gives_way(void **)
{
    const Oversubscriptioned oversubscription(true);
    Rest rest;
    SpinTime spin(-1, kForever, &rest);
    assert_true(spin.spins());
    while (!spin.over()) {
    }
    assert_true(rest.until != 0);
    rest.until = std::numeric_limits<std::int64_t>::max();
    assert_false(SpinTime(-1, kForever, &rest).spins());
    assert_true(SpinTime(-1, kForever).spins());
}

// A spin that finds something as soon as it has its processor back, each time, never gets to ask whether it is over.
void what_is_found_after_a_long_turn_counts(void **)
{
    const Oversubscriptioned oversubscription(true);
    Rest rest;
    while (rest.until == 0) {
        SpinTime spin(-1, kForever, &rest);
        for (int turns = 0; turns < 2 && !spin.over();) // polite, and then a turn
            turns += spin.polite() ? 1 : 0;
        spin.hit();
    }
}

void with_a_device_no_profile_gives_way(void **)
{
    auto &words = vma::sock::g_process.oversubscription;
    assert_true(gives_way(true));
    assert_false(gives_way(false));
    for (std::atomic<bool> *word : {&words.devices_are_polled, &words.turns_are_for_ports}) {
        word->store(true, std::memory_order_relaxed);
        assert_false(gives_way(true));
        word->store(false, std::memory_order_relaxed);
    }
}

void with_a_port_nobody_is_oversubscribed(void **)
{
    const Oversubscriptioned oversubscription;
    vma::sock::g_process.oversubscription.turns_are_for_ports.store(true, std::memory_order_relaxed);
    const std::int64_t now = now_ns();
    for (int i = 0; i < 10000; ++i)
        assert_false(yield_finds_oversubscription(now));
    vma::sock::g_process.oversubscription.turns_are_for_ports.store(false, std::memory_order_relaxed);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup(turns_that_go_to_others_are_a_oversubscription, forget),
        cmocka_unit_test_setup(spin_of_hours_ends, forget),
        cmocka_unit_test_setup(no_other_begins, forget),
        cmocka_unit_test_setup(spin_without_limit_goes_on, forget),
        cmocka_unit_test_setup(spin_without_limit_of_a_profile_gives_way, forget),
        cmocka_unit_test_setup(what_is_found_after_a_long_turn_counts, forget),
        cmocka_unit_test_setup(with_a_device_no_profile_gives_way, forget),
        cmocka_unit_test_setup(with_a_port_nobody_is_oversubscribed, forget),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
