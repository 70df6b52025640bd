// SPDX-License-Identifier: BSD-2-Clause
// One object for the process, made when it is first asked for and never destroyed: threads and other libraries'
// destructors may use it at the very end. Unlike a static variable of a function it has no lock that a fork() could
// leave held in the child.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

namespace vma::core {

// A constinit variable of a namespace. Several threads may make an object at a time: one of them stays, the others are
// forgotten.
template <typename T> class MadeOnce
{
public:
    T &get()
    {
        return get([](void *place) { return new (place) T; });
    }
    template <typename Make> T &get(const Make &make) // make(place) makes it there
    {
        T *known = made_.load(std::memory_order_acquire);
        if (known != nullptr) [[likely]]
            return *known;
        const unsigned number = taken_.fetch_add(1, std::memory_order_relaxed);
        T *const mine = make(number < kPlaces ? places_[number] : ::operator new(sizeof(T)));
        return made_.compare_exchange_strong(known, mine, std::memory_order_acq_rel) ? *mine : *known;
    }

private:
    static constexpr unsigned kPlaces = 4;

    std::atomic<T *> made_{nullptr};
    std::atomic<unsigned> taken_{0};
    alignas(T) std::byte places_[kPlaces][sizeof(T)] = {};
};

} // namespace vma::core
