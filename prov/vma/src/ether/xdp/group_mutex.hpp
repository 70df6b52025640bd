// SPDX-License-Identifier: BSD-2-Clause
// A lock in memory that processes share, for what is rare: who has which place, which addresses are named. It passes on
// from who dies with it, and is not waited for where who has it was stopped.
#pragma once

#include <cerrno>
#include <ctime>
#include <pthread.h>

#include "core/held.hpp"

namespace vma::ether {

class GroupMutex
{
public:
    // Once, by who made the memory. False: the system has no such locks.
    [[nodiscard]] bool init() noexcept
    {
        pthread_mutexattr_t how;
        if (::pthread_mutexattr_init(&how) != 0)
            return false;
        const bool made = ::pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED) == 0 &&
                          ::pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST) == 0 &&
                          ::pthread_mutex_init(&mutex_, &how) == 0;
        ::pthread_mutexattr_destroy(&how);
        return made;
    }
    // False: who has it keeps it for a fifth of a second.
    [[nodiscard]] bool lock() noexcept
    {
        constexpr long kSecond = 1'000'000'000;
        timespec until{};
        ::clock_gettime(kClock, &until);
        until.tv_nsec += kSecond / 5;
        until.tv_sec += until.tv_nsec / kSecond;
        until.tv_nsec %= kSecond;
        const int status = lock_until(until);
        // What it protects is right between any two stores.
        return status == 0 || (status == EOWNERDEAD && ::pthread_mutex_consistent(&mutex_) == 0);
    }
    void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

private:
#if defined(__GLIBC__)
    static constexpr clockid_t kClock = CLOCK_MONOTONIC;
    int lock_until(const timespec &until) noexcept
    {
        return ::pthread_mutex_clocklock(&mutex_, kClock, &until);
    }
#else // POSIX has no other one: who sets the clock changes how long is waited, once
    static constexpr clockid_t kClock = CLOCK_REALTIME;
    int lock_until(const timespec &until) noexcept
    {
        return ::pthread_mutex_timedlock(&mutex_, &until);
    }
#endif

    pthread_mutex_t mutex_;
};

// Holds it, if there is one and nobody else keeps it.
class GroupTurn
{
public:
    explicit GroupTurn(GroupMutex *mutex) noexcept
        : mutex_(mutex), counted_(core::begin_hold()), has_(mutex != nullptr && mutex->lock())
    {
    }
    ~GroupTurn()
    {
        if (has_)
            mutex_->unlock();
        core::end_hold(counted_);
    }
    GroupTurn(const GroupTurn &) = delete;
    GroupTurn &operator=(const GroupTurn &) = delete;
    explicit operator bool() const noexcept { return has_; }

private:
    GroupMutex *const mutex_;
    const bool counted_; // before it is waited for: declared in this order
    const bool has_;
};

} // namespace vma::ether
