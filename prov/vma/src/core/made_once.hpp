// SPDX-License-Identifier: BSD-2-Clause
// One object for the process, made when it is first asked for and never destroyed: threads and other libraries' destructors may use it
// at the very end. Unlike a static variable of a function it has no lock that a fork() could leave held in the child.
#pragma once

#include <atomic>
#include <new>

namespace vma::core {

// A constinit variable of a namespace.
template <typename T> class MadeOnce
{
public:
    // `make()`, which gives a T *, may be called by several threads at a time: only one of the objects stays.
    template <typename Make> T &get(const Make &make) noexcept
    {
        T *known = made_.load(std::memory_order_acquire);
        if (known != nullptr) [[likely]]
            return *known;
        T *const mine = make();
        if (made_.compare_exchange_strong(known, mine, std::memory_order_acq_rel))
            return *mine;
        delete mine;
        return *known;
    }
    T &get() noexcept
    {
        return get([] { return new T; });
    }

private:
    std::atomic<T *> made_{nullptr};
};

} // namespace vma::core
