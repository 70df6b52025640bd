// SPDX-License-Identifier: BSD-2-Clause
// A word that the holder of a lock changes while others look at it.
#pragma once

#include <atomic>

namespace vma::sock {

// A word that only the holder of a lock changes, and that others look at without it: what they see may be old.
template <typename T> class Racy
{
public:
    constexpr Racy(T value) : value_(value) {}
    Racy(const Racy &) = delete;
    Racy &operator=(const Racy &) = delete;
    operator T() const { return value_.load(std::memory_order_relaxed); }
    T operator->() const // of a pointer
    {
        return *this;
    }
    Racy &operator=(T value)
    {
        value_.store(value, std::memory_order_relaxed);
        return *this;
    }
    Racy &operator+=(T more) { return *this = *this + more; } // not atomic: the lock is held

    // For who has to see what was written before it.
    void publish(T value) { value_.store(value, std::memory_order_release); }
    T acquire() const { return value_.load(std::memory_order_acquire); }

private:
    std::atomic<T> value_;
};

// Most have nothing to change: each page that is written to is copied for a forked child.
template <typename Word, typename Value> void set_if_other(Word &word, Value value)
{
    if (word != value)
        word = value;
}

} // namespace vma::sock
