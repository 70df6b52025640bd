// SPDX-License-Identifier: BSD-2-Clause
// Locks that a thread holds are counted where it was said, and who waits for their end is told of it once.
#include "fabtests/unit.hpp"

#include <mutex>

#include "core/fd.hpp"
#include "core/held.hpp"
#include "core/mutex.hpp"
#include "core/spinlock.hpp"
#include "ether/xdp/group_mutex.hpp"

namespace {

using vma::core::ForkGuard;
using vma::core::Mutex;
using vma::core::SpinGuard;
using vma::core::SpinLock;

thread_local vma::core::Held t_held;
int g_delivered;

void deliver()
{
    ++g_delivered;
    t_held.put_off = 0;
}

void count_here()
{
    vma::core::g_held_place.deliver = deliver;
    vma::core::g_held_place.offset = reinterpret_cast<char *>(&t_held) - vma::core::thread_pointer();
}

int nobody_counts(void **)
{
    vma::core::g_held_place.offset = 0;
    t_held = {};
    g_delivered = 0;
    return 0;
}

void without_a_place(void **)
{
    SpinLock lock;
    const SpinGuard guard(lock);
    assert_int_equal(t_held.locks, 0);
}

void each_kind(void **)
{
    count_here();
    SpinLock spin;
    Mutex mutex;
    vma::ether::GroupMutex *turn = nullptr; // a turn is counted without one, too
#if !defined(__SANITIZE_THREAD__)           // which doesn't know pthread_mutex_clocklock()
    vma::ether::GroupMutex shared;
    assert_true(shared.init());
    turn = &shared;
#endif
    {
        const SpinGuard first(spin);
        assert_int_equal(t_held.locks, 1);
        const std::lock_guard second(mutex);
        assert_int_equal(t_held.locks, 2);
        const ForkGuard third;
        assert_int_equal(t_held.locks, 3);
        const vma::ether::GroupTurn fourth(turn);
        assert_int_equal(t_held.locks, 4);
    }
    assert_int_equal(t_held.locks, 0);
    assert_int_equal(g_delivered, 0);
}

void tries(void **)
{
    count_here();
    SpinLock spin;
    Mutex mutex;
    assert_true(spin.try_lock());
    assert_false(spin.try_lock());
    assert_int_equal(t_held.locks, 1);
    spin.unlock();
    assert_true(mutex.try_lock());
    assert_int_equal(t_held.locks, 1);
    mutex.unlock();
    assert_int_equal(t_held.locks, 0);
}

void one_that_is_switched_off(void **)
{
    count_here();
    SpinLock lock;
    lock.set_enabled(false);
    assert_true(lock.try_lock());
    lock.lock();
    assert_int_equal(t_held.locks, 0);
    lock.unlock();
    assert_int_equal(t_held.locks, 0);
}

void the_last_end_delivers(void **)
{
    count_here();
    SpinLock spin;
    Mutex mutex;
    spin.lock();
    mutex.lock();
    t_held.put_off = 1;
    spin.unlock();
    assert_int_equal(g_delivered, 0);
    mutex.unlock();
    assert_int_equal(g_delivered, 1);
    const SpinGuard guard(spin);
    assert_int_equal(g_delivered, 1);
}

// What was taken before is not counted at its end either.
void a_place_that_comes_late(void **)
{
    SpinLock spin;
    Mutex mutex;
    spin.lock();
    mutex.lock();
    count_here();
    t_held.put_off = 1;
    spin.unlock();
    mutex.unlock();
    assert_int_equal(t_held.locks, 0);
    assert_int_equal(g_delivered, 0);
}

} // namespace

int main()
{
#define CASE(name) cmocka_unit_test_setup(name, nobody_counts)
    const CMUnitTest tests[] = {
        CASE(without_a_place),
        CASE(each_kind),
        CASE(tries),
        CASE(one_that_is_switched_off),
        CASE(the_last_end_delivers),
        CASE(a_place_that_comes_late),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
